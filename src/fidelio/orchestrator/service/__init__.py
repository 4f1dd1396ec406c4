"""The service for agent sessions that every surface calls."""
