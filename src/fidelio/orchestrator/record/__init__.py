"""The record of an agent session: its model, its rules and its unit of work."""
