"""What only a file on disk can suffer."""
