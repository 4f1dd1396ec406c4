"""Surfaces: command line, MCP and HTTP. They translate and render; the rules are in the packages below."""
