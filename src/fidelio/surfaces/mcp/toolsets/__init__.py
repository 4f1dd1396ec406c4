"""Sets of MCP tools other than the workflow dialects."""
