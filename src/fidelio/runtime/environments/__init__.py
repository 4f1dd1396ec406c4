"""Environments of sandboxes: their versions in the ledger, their files, and the preparation that a version may need."""
