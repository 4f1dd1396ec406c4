"""A walk of an agent through every tool that it has. Later calls use the results of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fidelio.providers.model import ModelReply
from tests.runtime.scenarios.stage import StageReply, StageTurn, call

# What no result may contain.
SECRET = "zebra-1f2e3d4c-umbrella"
VAULT_SECRET = "quartz-9a8b7c6d-lantern"
TITLE = "Notes exist"
_EXISTS = {"text": "The notes exist.", "check": {"type": "file_exists", "path": "/workspace/notes.txt"}}


def _then(tool: str, build: Callable[[StageTurn], Mapping[str, Any]]) -> tuple[str, StageReply]:
    """A call whose arguments come from the results so far."""

    def reply(turn: StageTurn) -> ModelReply:
        return call(tool, **build(turn))

    return tool, reply


def _now(tool: str, **arguments: Any) -> tuple[str, StageReply]:
    return tool, call(tool, **arguments)


def _find(turn: StageTurn, *path: str | int) -> Any:
    """The newest value at this path in the results."""
    for result in reversed(turn.results):
        value: Any = result
        try:
            for key in path:
                value = value[key]
        except (KeyError, IndexError, TypeError):
            continue
        return value
    raise AssertionError(f"no result has {path}")


_FILES = (
    _now("write", path="notes.txt", content="one\ntwo\n"),
    _now("read", path="notes.txt"),
    _now("edit", path="notes.txt", oldText="two", newText="three"),
    _now("glob", path="/workspace", pattern="*.txt"),
    _now("grep", path="/workspace", query="three"),
    _now("bash", command="wc", args=["-l", "notes.txt"]),
    _now("sandbox_describe"),
    _now("sandbox_execute", name="mkdir", input={"path": "box"}),
)
_SHELL = (
    _now("shell_describe"),
    _now("shell_set_env", key="TOKEN", value=SECRET),
    _now("shell_set_cwd", path="/workspace/box"),
    _now("shell_open"),
    _now("shell_run", command="echo run"),
    _now("shell_exec", command="echo exec"),
    _now("shell_history"),
    _now("shell_read_last_output"),
    _then("shell_read_command", lambda turn: {"commandId": _find(turn, "commands", 0, "commandId")}),
    _now("shell_exec", command="cat", timeoutMs=100),
    # While it runs, everything suggests to wait for it.
    _now("shell_describe"),
    _now("permissions_check", toolName="shell_run", toolArgs={"command": "make"}),
    _now("session_get_snapshot"),
    _now("shell_send_input", text="hello\n"),
    _now("shell_wait", timeoutMs=200),
    _now("shell_interrupt"),
    _now("shell_unset_env", key="TOKEN"),
    _now("shell_restart"),
    _now("shell_close"),
)
_SHARED = (
    _now("resources_list"),
    _now("resources_stage_from_substrate", sourcePath="TOOLS.md"),
    _now("edit", path="/workspace/TOOLS.md", oldText="# Tools", newText="# Our tools"),
    _now("resources_list_staged_drafts"),
    _now("resources_compare_with_substrate", sessionPath="TOOLS.md"),
    _then(
        "resources_promote_to_substrate",
        lambda turn: {
            "sourcePath": "TOOLS.md",
            "overwrite": True,
            "expectedVersionId": _find(turn, "promotePrecondition", "expectedVersionId"),
        },
    ),
    _now("resources_list_versions", targetPath="TOOLS.md"),
    _then("resources_read_version", lambda turn: {"versionId": _find(turn, "versions", -1, "versionId")}),
    _then("resources_restore_version", lambda turn: {"versionId": _find(turn, "version", "versionId")}),
    _now("vault_list"),
    _now("permissions_check", toolName="shell_run", toolArgs={"command": "cat /workspace/notes.txt"}),
    _now("permissions_describe"),
)
_OUTCOMES = (
    _now("outcome_grade"),
    _now("outcome_define", title=TITLE, successCriteria=[_EXISTS]),
    _now("permissions_check", toolName="memory_promote_note", toolArgs={"content": "x"}),
    _now("outcome_read"),
    _now("outcome_evaluate"),
    _now("outcome_history"),
)
_MEMORY = (
    _now("memory_list"),
    _now("memory_write", target="session_state", content="The harbour is closed on Sundays."),
    _now("memory_read", target="session_state"),
    _now("memory_list_versions", target="session_state"),
    _then(
        "memory_read_version",
        lambda turn: {"target": "session_state", "versionId": _find(turn, "versions", 0, "versionId")},
    ),
    _now("memory_promote_note", content="Ferries leave at noon."),
    _now("learning_list"),
    _now("retrieval_search", query="harbour lighthouse", includeCurrent=True),
    _now("memory_search", query="harbour"),
    _now("session_search_context", query="lighthouse"),
    _now("session_search_traces", query="lighthouse"),
    _now("skills_list"),
    _now("skills_search", query="remember"),
    _then("skills_read", lambda turn: {"name": _find(turn, "hits", 0, "name")}),
)
_NAVIGATION = (
    _now("environment_describe"),
    _now("agent_describe_setup"),
    _now("session_list", includeCurrent=False),
    _then("agent_compare_setup", lambda turn: {"sessionId": _find(turn, "sessions", 0, "sessionId")}),
    _now("session_get_snapshot"),
    _now("session_describe_context"),
    _now("session_get_events", limit=5),
    _now("session_list_traces"),
    _then("session_get_trace", lambda turn: {"wakeId": _find(turn, "traces", 0, "wakeId")}),
    _now("session_delegate", message="Count the ferries."),
    _then("session_run_child", lambda turn: {"sessionId": _find(turn, "childSession", "sessionId")}),
    _now("session_list_children"),
    _now("tools_open", group="recall"),
)
# Each with the name of its tool: the tool that is really called is not in a reply that is made later.
WALK: tuple[tuple[str, StageReply], ...] = (*_FILES, *_SHELL, *_SHARED, *_OUTCOMES, *_MEMORY, *_NAVIGATION)
