"""Agents of the runtime: definitions in files or by the API, kept as numbered versions in the ledger."""
