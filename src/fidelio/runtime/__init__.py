"""Runtime sessions: an agent's tools with a sandbox, a durable shell, shared files and a permission gate, all on record."""
