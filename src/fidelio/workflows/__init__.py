"""Workflow sessions: the engine's rules, the library's definitions and the ledger's record, combined in a service."""
