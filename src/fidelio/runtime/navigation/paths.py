"""Paths of the files that describe a session inside of its sandbox, as tools name them (`fidelio.runtime.artifacts`)."""

from __future__ import annotations

from collections.abc import Mapping

from fidelio.runtime.record import RuntimeRecord
from fidelio.sandbox.model import RUNTIME_LINK

ENVIRONMENT = f"{RUNTIME_LINK}/environment.json"
SETUP = f"{RUNTIME_LINK}/agent-setup.json"
SETUP_MARKDOWN = f"{RUNTIME_LINK}/agent-setup.md"


def _name_files(*names: str) -> Mapping[str, str]:
    """Paths by the names of files in camel case: `shellHistoryMarkdown` is shell-history.md."""
    return {_to_key(name): f"{RUNTIME_LINK}/{name}" for name in names}


def _to_key(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    first, *rest = stem.split("-")
    return first + "".join(word.capitalize() for word in rest) + ("Markdown" if kind == "md" else "")


# The files that a session has from its first call of a tool on.
_SESSION_FILES = _name_files(
    *("session-runtime.json", "session-runtime.md", "managed-tools.json", "permissions.json", "permissions.md"),
    *("permission-posture.json", "permission-posture.md", "environment.json", "vaults.json", "staged-substrate.json"),
    *("shell-state.json", "shell-history.json", "shell-history.md", "shell-last-output.json", "shell-last-output.md"),
    *("outcome.json", "outcome-grade.json", "outcome-grade.md", "outcome-repair.md", "outcome-evaluation.json"),
    *("outcome-evaluation.md", "outcome-evaluations.json", "outcome-evaluations.md"),
)
# The files that it has from its first wake on.
_WAKE_FILES = _name_files(
    *("session-status.json", "event-feed.json", "event-feed.md", "wake-traces.json", "session-relations.json"),
    *("agent-setup.json", "agent-setup.md", "skills.json"),
)


def list_session_files(record: RuntimeRecord) -> dict[str, str]:
    """The files that a session has now."""
    return {**_SESSION_FILES, **(_WAKE_FILES if record.wakes.setup else {})}
