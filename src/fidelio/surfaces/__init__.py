"""Where the outside world comes in: MCP, the command line. Surfaces translate; the rules live in the rooms below."""
