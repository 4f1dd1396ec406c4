"""The `navigator` dialect."""
