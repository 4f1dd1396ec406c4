"""Parsing and checking of commands, without running them."""
