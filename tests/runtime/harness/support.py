"""Sandboxes for tests of the whole harness: every effect is counted."""

from __future__ import annotations

from tests.runtime.support import FakeSandboxes


def make_sandboxes() -> FakeSandboxes:
    """Sandboxes that write, read and run commands without doing anything."""
    return FakeSandboxes(
        {
            "write_text": lambda given: {"path": given["path"], "bytes": len(given["content"])},
            "read_text": lambda given: {"path": given["path"], "content": "A", "truncated": False},
            "run_shell": lambda given: {
                "commandId": given["commandId"],
                "status": "completed",
                "exitCode": 0,
                "stdout": "ok",
            },
        }
    )
