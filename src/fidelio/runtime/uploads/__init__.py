"""Files that programs upload: stored in the ledger, attached to sessions, shown to their sandboxes."""
