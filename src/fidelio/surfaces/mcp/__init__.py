"""Model Context Protocol server: protocol without transport, a stdio loop, and the sets of tools.

Nothing heavy is imported before the first reply: agents start this server anew for every conversation.
"""
