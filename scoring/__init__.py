"""Who is trusted: peer scores and the thresholds they are held against."""
