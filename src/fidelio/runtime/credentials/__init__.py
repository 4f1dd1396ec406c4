"""Vaults of the API: credentials for MCP servers, which only our own clients use. See `service`."""
