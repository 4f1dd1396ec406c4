"""Anchors: signed statements of the heads of all sessions, for storage outside of the ledger.

A hash chain does not show that it was computed again as a whole. An anchor does: it holds the head of every session at a moment
and is signed with a key that is not in the database.
"""
