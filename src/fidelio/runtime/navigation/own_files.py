"""Files that describe a session inside of its own sandbox: where they are, and which of them a tool may name.

A tool names only files that `read` opens. Some exist from the first call of a tool on, because every call writes what is
missing; others only after a wake has written them (`fidelio.runtime.artifacts`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.model import RuntimeContext, ToolCall
from fidelio.sandbox.model import RUNTIME_LINK


def runtime_directory(context: RuntimeContext, record: RuntimeRecord) -> str:
    """The directory of the host with the files of a session."""
    return f"{context.home.path}/sandboxes/{record.directory}/runtime"


def has_file(directory: str, name: str) -> bool:
    # Not by pathlib, which takes longer than the call itself: every call of a tool asks.
    try:
        os.stat(f"{directory}/{name}")  # noqa: PTH116  # see above
    except OSError:
        return False
    return True


def _name_files(*names: str) -> Mapping[str, str]:
    """Paths by the names of files in camel case: `shellHistoryMarkdown` is shell-history.md."""
    return {_to_key(name): f"{RUNTIME_LINK}/{name}" for name in names}


def _to_key(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    first, *rest = stem.split("-")
    return first + "".join(word.capitalize() for word in rest) + ("Markdown" if kind == "md" else "")


# A session has these from its first call of a tool on.
_SESSION_FILES = _name_files(
    *("session-runtime.json", "session-runtime.md", "managed-tools.json", "permissions.json", "permissions.md"),
    *("permission-posture.json", "permission-posture.md", "environment.json", "vaults.json", "staged-substrate.json"),
    *("shell-state.json", "shell-history.json", "shell-history.md", "shell-last-output.json", "shell-last-output.md"),
    *("outcome.json", "outcome-grade.json", "outcome-grade.md", "outcome-repair.md", "outcome-evaluation.json"),
    *("outcome-evaluation.md", "outcome-evaluations.json", "outcome-evaluations.md"),
)
# It has these after its first wake.
_WAKE_FILES = _name_files(
    *("session-status.json", "event-feed.json", "event-feed.md", "wake-traces.json", "session-relations.json"),
    *("agent-setup.json", "agent-setup.md", "skills.json"),
)


def name_session_files(call: ToolCall) -> dict[str, str]:
    """The paths of the files that the session of the call has."""
    return {**_SESSION_FILES, **name_files(call, _WAKE_FILES)}


def name_files(call: ToolCall, files: Mapping[str, str]) -> dict[str, str]:
    """Those of some paths at which the session has a file."""
    directory = runtime_directory(call.context, call.record)
    return {key: path for key, path in files.items() if has_file(directory, path.rpartition("/")[2])}
