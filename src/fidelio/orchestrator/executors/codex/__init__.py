"""The executor `codex`: Codex as a command or as a server."""
