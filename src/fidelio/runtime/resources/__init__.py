"""Shared resources: the files that the sessions of an agent in a project share, with all their versions."""

from __future__ import annotations

from fidelio.runtime.resources.tools import IMPLEMENTATIONS

__all__ = ["IMPLEMENTATIONS"]
