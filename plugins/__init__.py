"""What a chain adds: hook specifications, their registry and the built-in plugins."""
