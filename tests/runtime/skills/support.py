"""Skills on disk, and a context that finds them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from fidelio.clock import now_ms
from fidelio.home import Home
from fidelio.ledger import Ledger
from fidelio.runtime.ports import RuntimePorts, SkillRoot
from fidelio.runtime.tools.model import RuntimeContext
from tests.runtime.support import KEYS, FakeSandboxes


def write_skill(directory: Path, content: str | bytes) -> Path:
    """Write a skill into its own directory."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "SKILL.md"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def make_context(*roots: SkillRoot, ledger: Ledger | None = None) -> RuntimeContext:
    """A context with these roots. Skills need no ledger."""
    ports = RuntimePorts(skill_roots=lambda _: roots)
    return RuntimeContext(cast("Ledger", ledger), now_ms, Home(Path("/nowhere")), FakeSandboxes(), lambda: KEYS, ports)
