"""Sandboxes whose files are on disk, so that snapshots have something to show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fidelio.runtime.specs import session_directory
from fidelio.sandbox.model import ActionResult, SandboxSpec
from tests.runtime.support import FakeSandboxes, fail
from tests.runtime.wakes.support import Runtime


class DiskSandboxes(FakeSandboxes):
    """Writes the files of `write_text` into the workspace of the session."""

    async def call(
        self, spec: SandboxSpec, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0
    ) -> ActionResult:
        if action == "write_text":
            path = Path(spec.directory) / "workspace" / arguments["path"].removeprefix("/workspace/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(arguments["content"])
        self.replies.setdefault("write_text", lambda given: {"path": given["path"], "bytes": len(given["content"])})
        self.replies.setdefault("read_text", lambda given: {"path": given["path"], "content": "A", "truncated": False})
        self.replies.setdefault("inspect_persistent_shell", lambda _: fail("not_found"))
        return await super().call(spec, action, arguments, timeout=timeout)


def write(path: str, content: str) -> tuple[str, dict[str, str]]:
    return "write", {"path": path, "content": content}


async def find_workspace(runtime: Runtime, session: str) -> Path:
    return session_directory(runtime.context, await runtime.record(session)) / "workspace"
