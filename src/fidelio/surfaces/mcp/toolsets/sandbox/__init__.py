"""MCP tools of a sandbox session: files, shell, shared resources and permissions."""
