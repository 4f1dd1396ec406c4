"""Locations of the coding agents that the tests run: Claude Code in a Python package, the others from npm."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from tests.conformance.node import is_installed, node, programs
from tests.support.parts import require_part

PINS = Path(__file__).parent
# Of a package that is a shell around one program for each platform, that program: the shell needs a script to have run first.
# OpenCode's for old processors runs on all.
PLACES = {
    "codex": ("@openai/codex-*/vendor/*/bin/codex",),
    "gemini": (".bin/gemini",),
    "opencode": ("opencode-*-baseline/bin/opencode", "opencode-*/bin/opencode"),
    "qwen": (".bin/qwen",),
}
TITLES = {"codex": "Codex", "gemini": "Gemini CLI", "opencode": "OpenCode", "qwen": "Qwen Code"}


def claude_program() -> Path | None:
    found = importlib.util.find_spec("claude_agent_sdk")
    if found is None or found.origin is None:
        return None
    program = Path(found.origin).parent / "_bundled" / "claude"
    return program if program.is_file() else None


def require_claude() -> Path:
    found = claude_program()
    if found is None:
        require_part(
            "Claude Code", "It comes inside the package claude-agent-sdk, which has no wheel with it for this machine."
        )
    return found


def npm_program(name: str) -> Path | None:
    if not is_installed(PINS):
        return None
    modules = programs(PINS) / "node_modules"
    return next((found for place in PLACES[name] for found in sorted(modules.glob(place))), None)


def require_npm_program(name: str) -> Path:
    """The program, for a test that is skipped where it was not asked for."""
    found = npm_program(name)
    if found is None:
        require_part(TITLES[name], "`make test FIDELIO_AGENTS=1` brings it when the package registry can be reached.")
    return found


def search_path() -> str:
    """A PATH with Node in front: two of the agents are written for it."""
    home = node()
    return os.pathsep.join([str(home.parent), os.defpath]) if home is not None else os.defpath
