"""Contract tests of the ledger, run against every database."""
