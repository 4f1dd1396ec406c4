"""Outcomes: what must become true, how it is checked, and the verdicts."""
