"""A small MCP client: connects to a server, calls one tool at a time, disconnects."""
