"""Evidence for the grader: results of tools and files of the workspace, each under an id that a verdict can cite.

Not citable are the texts of the agent: its messages, its memory, the criteria, the files that the runtime writes about the
session, and everything that a shell has printed, because a command can print anything. Evidence is bounded; the newest counts.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fidelio.errors import RuntimeProblem, SandboxError, UsageProblem
from fidelio.ledger import Ledger
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import Event
from fidelio.ledger.paging import all_events
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.checking import read_file
from fidelio.runtime.outcomes.checks import find_workspace_path
from fidelio.runtime.outcomes.workspace import WorkspaceView
from fidelio.runtime.record import RuntimeRecord
from fidelio.sandbox.model import LEARNINGS, RUNTIME, RUNTIME_LINK, SUBSTRATE, WORKSPACE, ActionError

# How far back results are looked for, in events.
_LOOKED_AT = 4_000
MAX_RESULTS = 24
MAX_FILES = 8
MAX_CHARACTERS = 48_000
_RESULT_CHARACTERS = 3_000
_FILE_CHARACTERS = 6_000
_FILE_BYTES = 256 << 10
# The tools whose results show the state of files. Their file actions by another name are the same.
_CITABLE = frozenset(
    {
        *("read", "write", "edit", "glob", "grep", "bash"),
        *("resources_compare_with_substrate", "resources_promote_to_substrate", "resources_restore_version"),
        *("resources_list_versions", "resources_read_version"),
    }
)
_ACTIONS = {
    "read_text": "read",
    "write_text": "write",
    "append_text": "write",
    "replace_text": "edit",
    "glob_entries": "glob",
    "grep_text": "grep",
    "run_command": "bash",
    "list_dir": "glob",
    "stat": "glob",
}
_CONTENTS = frozenset({"content", "oldText", "newText", "old_string", "new_string"})
_FILE_TOOLS = frozenset({"read", "write", "edit"})
# What the runtime or the agent's memory says about itself.
_EXCLUDED = (RUNTIME, RUNTIME_LINK, LEARNINGS, "/memory", f"{SUBSTRATE}/MEMORY.md", f"{SUBSTRATE}/memory")
_EXCLUDED_NAMES = ("MEMORY.md", RUNTIME_LINK.rpartition("/")[2])


class Evidence(msgspec.Struct, frozen=True):
    """A piece of evidence. `id` is that of an event, or the SHA-256 of a file."""

    id: str
    source: str
    content: str


class ManagedCall(msgspec.Struct, frozen=True):
    """A call whose result can be cited. `tool` is what it really did."""

    tool: str
    arguments: dict[str, Any]


async def collect_evidence(ledger: Ledger, session: str, record: RuntimeRecord, view: WorkspaceView) -> tuple[Evidence, ...]:
    """The newest evidence, oldest first."""
    events = await all_events(ledger, session, after=max(0, record.seq - _LOOKED_AT), types=(e.TOOL_USE, e.TOOL_RESULT))
    calls = await _read_calls(ledger, events)
    results = [event for event in events if event.type == e.TOOL_RESULT and event.body.get("tool_use_id") in calls]
    loaded = [await _show_result(ledger, event, calls) for event in results[-MAX_RESULTS:]]
    shown = [piece for piece in loaded if piece is not None]
    files = await _show_files(view, calls.values())
    # Files as they are now come first: they cannot be outdated.
    chosen = _fit([*files, *reversed(shown)])
    return tuple(sorted(chosen, key=lambda piece: shown.index(piece) if piece in shown else len(shown)))


def _fit(pieces: Iterable[Evidence]) -> list[Evidence]:
    chosen, used = [], 0
    for piece in pieces:
        used += len(piece.content)
        if used > MAX_CHARACTERS:
            break
        chosen.append(piece)
    return chosen


async def _read_calls(ledger: Ledger, events: Iterable[Event]) -> dict[str, ManagedCall]:
    """The citable calls by their ids, in the order of the log."""
    found: dict[str, ManagedCall] = {}
    for event in events:
        body = event.body
        # Most calls are of other tools: their inputs are not loaded.
        # A command of a persistent shell could have written its own result.
        is_shell = body.get("toolset") == e.AGENT_TOOLSET and body.get("name") == "bash"
        if event.type == e.TOOL_USE and body.get("name") in {*_CITABLE, "sandbox_execute"} and not is_shell:
            call = read_call(str(body["name"]), await load_text(ledger, body.get("input")))
            if call is not None:
                found[str(body.get("id"))] = call
    return found


def read_call(name: str, text: str) -> ManagedCall | None:
    """A call whose result can be cited; None for a shell, and for reading what the runtime or the agent says."""
    try:
        arguments = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        # The input was erased: nobody knows what the result is about.
        return None
    if name == "sandbox_execute":
        inner = arguments.get("input")
        name, arguments = _ACTIONS.get(str(arguments.get("name")), ""), inner if isinstance(inner, dict) else {}
    if isinstance(file := arguments.get("file_path"), str):
        arguments = {**arguments, "path": file}
    if name not in _CITABLE or any(_is_excluded(path) for path in _find_paths(arguments)):
        return None
    return ManagedCall(name, arguments)


def _find_paths(arguments: Mapping[str, Any]) -> Iterable[str]:
    base = arguments.get("cwd")
    texts = [arguments.get("path"), base, *(arguments.get("args") or ())]
    for text in texts:
        if isinstance(text, str) and text:
            yield posixpath.normpath(posixpath.join(WORKSPACE, base if isinstance(base, str) else "", text))


def _is_excluded(path: str) -> bool:
    return any(path == taken or path.startswith(f"{taken}/") for taken in _EXCLUDED)


async def _show_result(ledger: Ledger, event: Event, calls: Mapping[str, ManagedCall]) -> Evidence | None:
    body = event.body
    call = calls[str(body["tool_use_id"])]
    about = {name: str(value)[:200] for name, value in call.arguments.items() if name not in _CONTENTS}
    failed = " (failed)" if body.get("is_error") else ""
    text = await load_text(ledger, body.get("result"))
    # A search from above also finds lines of the files that are excluded.
    if call.tool in ("grep", "bash") and any(name in text for name in _EXCLUDED_NAMES):
        return None
    return Evidence(event.id, f"result of {call.tool} {about}{failed}", _cut(text, _RESULT_CHARACTERS))


async def _show_files(view: WorkspaceView, calls: Iterable[ManagedCall]) -> list[Evidence]:
    """The files that the agent's tools have touched, as they are now. The newest first."""
    paths: dict[str, None] = {}
    for call in reversed(list(calls)):
        path = find_workspace_path(str(call.arguments.get("path", ""))) if call.tool in _FILE_TOOLS else None
        if path is not None and not path.startswith(f"{SUBSTRATE}/"):
            paths[path] = None
    try:
        shown = [await _show_file(view, path) for path in list(paths)[:MAX_FILES]]
    except (SandboxError, RuntimeProblem, UsageProblem):
        # Without a sandbox there are no files to cite; the results of tools are still there.
        return []
    return [piece for piece in shown if piece is not None]


async def _show_file(view: WorkspaceView, path: str) -> Evidence | None:
    content = await read_file(view, path, _FILE_BYTES)
    if isinstance(content, ActionError) or len(content) > _FILE_BYTES:
        return None
    text = content.decode("utf-8", "replace")
    return Evidence(hashlib.sha256(content).hexdigest(), f"file {path} now, {len(content)} bytes", _cut(text, _FILE_CHARACTERS))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} ... and {len(text) - limit} more characters"
