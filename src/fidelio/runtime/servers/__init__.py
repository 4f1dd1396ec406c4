"""MCP servers of the user whose tools an agent of the runtime gets (ownership `mcp`)."""
