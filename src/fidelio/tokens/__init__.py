"""Sealed tokens and their keys.

A token is a sealed reference to a record, never the record itself: it names a session, and the ledger has its state.
"""
