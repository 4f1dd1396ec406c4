"""Models without a network: their replies come from a function or from a file with rules."""

from __future__ import annotations

from fidelio.providers.scripted.provider import ScriptedProvider

__all__ = ["ScriptedProvider"]
