"""The `sessions` dialect."""
