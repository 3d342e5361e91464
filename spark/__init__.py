"""What history teaches: jobs over exported score histories."""
