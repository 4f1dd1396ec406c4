"""Shared resources: the files that the sessions of an agent in a project share, with all their versions."""
