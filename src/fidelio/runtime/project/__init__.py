"""The user's project in a sandbox: how it is mounted, its copy, and the changes that come back after a look."""

from __future__ import annotations

from fidelio.runtime.project.mounting import ProjectMount, parse_mount

__all__ = ["ProjectMount", "parse_mount"]
