"""Tests that concern only the SQLite implementation."""
