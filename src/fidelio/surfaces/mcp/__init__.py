"""Workflows over the Model Context Protocol: one table of tools, served by a small stdio loop of our own.

Nothing heavy is imported before the first reply: agents start this server anew for every conversation.
"""
