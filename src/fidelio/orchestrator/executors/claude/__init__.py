"""The executor `claude`: Claude Code as a process."""
