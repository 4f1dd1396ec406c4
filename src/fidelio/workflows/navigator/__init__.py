"""Workflow sessions that the server leads move by move."""
