"""The part of the sandbox that runs inside of it: pid 1, its file actions, commands and shell. Standard library only."""
