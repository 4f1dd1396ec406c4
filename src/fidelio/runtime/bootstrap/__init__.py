"""The shared files that every agent begins with and that are part of its prompt."""
