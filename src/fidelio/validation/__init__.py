"""JSON Schemas and regular expressions of others, checked under a time limit in child processes."""
