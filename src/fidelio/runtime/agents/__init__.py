"""Definitions of agents: their content, their numbered versions in the ledger, and their files."""
