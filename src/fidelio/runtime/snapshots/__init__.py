"""Snapshots of workspaces: stored before a wake if a tool may have changed something, listed, compared and restored."""
