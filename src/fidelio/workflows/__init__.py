"""Workflow sessions: the engine's rules, the library's definitions and the ledger's record, put together in one service."""
