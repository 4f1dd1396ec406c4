"""The command line: `main` holds the commands together, one module per subject holds them."""
