"""The contract as tests: the same for every database."""
