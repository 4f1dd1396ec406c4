"""Tools of runtime sessions, by family."""
