"""What is said: topic names, messages, how they are signed and named, and how they are judged."""
