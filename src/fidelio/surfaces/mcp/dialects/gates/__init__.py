"""The `gates` dialect."""
