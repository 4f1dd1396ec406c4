"""MCP tools of one sandbox session: files, shell, shared resources and permissions."""
