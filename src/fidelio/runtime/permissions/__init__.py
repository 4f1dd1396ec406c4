"""The permission gate: which calls run, which wait for a person, and the tools that explain it."""
