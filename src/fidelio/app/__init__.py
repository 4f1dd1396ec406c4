"""Composition root: opens the ledger, the library and the services that every surface uses."""
