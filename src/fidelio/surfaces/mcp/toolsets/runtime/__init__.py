"""All tools of a runtime session over MCP, for a client that has its own model."""
