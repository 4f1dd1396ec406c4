"""Keys that survive a restart, and tokens sealed with them.

A token is a sealed key to a record, never the record itself: it says which session it means, and the ledger decides.
"""
