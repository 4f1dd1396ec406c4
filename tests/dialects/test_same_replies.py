"""Every tool of the `sessions` dialect has the same reply in memory, over stdio and over HTTP, in both eras of the protocol."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.mcp.dialects import DEFAULT, load_tools
from tests.dialects.conftest import Opens, Player, ToolReply
from tests.support import proves

TUNED = [{"step_id": "hear", "output": "442 Hz"}, {"step_id": "ask", "output": "asked"}]
WALK: list[tuple[str, dict[str, Any]]] = [
    ("discover", {}),
    ("list_workflows", {}),
    ("health_check", {}),
    ("start_session", {"workflow_id": "score", "agent_id": "worker-1"}),
    ("get_workflow", {}),
    # What the connection has delivered before is not sent again; a way without connections sends everything whole.
    ("get_workflow", {"summary": False, "full": True}),
    ("get_skills", {"full": True}),
    ("get_activity", {}),
    ("next_activity", {"activity_id": "tune"}),
    ("get_activity", {}),
    ("get_skill", {"step_id": "hear"}),
    ("get_skill", {"step_id": "nothing"}),
    ("get_resource", {"resource_id": "01"}),
    ("get_resource", {"resource_id": "../01"}),
    ("yield_checkpoint", {"checkpoint_id": "how", "variables": {"mood": "bright", "tempo": 1}}),
    ("present_checkpoint", {}),
    ("get_workflow_status", {}),
    ("next_activity", {"activity_id": "play"}),
    ("respond_checkpoint", {"option_id": "loudest"}),
    ("respond_checkpoint", {"option_id": "forte"}),
    ("respond_checkpoint", {"option_id": "piano"}),
    ("resume_checkpoint", {}),
    ("next_activity", {"activity_id": "play", "step_manifest": TUNED, "transition_condition": "loud == true"}),
    ("next_activity", {"activity_id": "bow", "step_manifest": "none"}),
    ("next_activity", {"activity_id": "bow"}),
    ("next_activity", {"activity_id": "__terminal__", "step_manifest": [{"step_id": "smile", "output": "é😀\u2028"}]}),
    ("get_workflow_status", {}),
    ("get_trace", {}),
    ("get_trace", {"trace_tokens": ["forged"]}),
    ("get_activity", {"session_token": "forged"}),
    ("start_session", {"session_token": "forged"}),
    ("no_such_tool", {}),
]
WITHOUT_SESSION = {"discover", "list_workflows", "health_check", "start_session"}
# What cannot be the same twice: moments, durations, and the names of one session, its events and its questions.
MEASURED = re.compile(r'"(ts|ms|timestamp|uptime_seconds|spanId)":\s*("[^"]*"|\d+)')
NAMES = re.compile(r"\b[sr]_[0-9a-z]{12}\b")


async def walked(play: Player) -> list[dict[str, Any]]:
    """Every reply, without what is new in every session."""
    sealed, token, found = list[str](), "", list[dict[str, Any]]()
    for tool, arguments in WALK:
        own = {} if tool in WITHOUT_SESSION else {"session_token": token}
        reply = await play(tool, **{**own, **arguments})
        token = reply.meta.get("session_token", token)
        sealed += [reply.meta[name] for name in ("session_token", "trace_token") if name in reply.meta]
        found.append({"tool": tool, "arguments": arguments, **comparable(reply, sealed)})
    return found


def comparable(reply: ToolReply, sealed: list[str]) -> dict[str, Any]:
    meta = {key: value for key, value in reply.meta.items() if "/" not in key}
    texts = {"text": reply.text, "meta": json.dumps(meta), "structured": json.dumps(reply.structured)}
    return {"is_error": reply.is_error, **{name: same_for_all(text, sealed) for name, text in texts.items()}}


def same_for_all(text: str, sealed: list[str]) -> str:
    for one in sealed:
        text = text.replace(one, "TOKEN")
    return NAMES.sub("NAME", MEASURED.sub(r"\1", text))


@proves("mcp.same-replies")
@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_whole_walk_has_the_same_replies_on_every_way(
    memory: Opens, stdio: Opens, http: Opens, tmp_path: Path, era: str
) -> None:
    def home(name: str) -> Settings:
        return load_settings(environ={"FIDELIO_HOME": str(tmp_path / name), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})

    async with memory(house_settings=home("memory")) as play:
        expected = await walked(play)
    for name, way in (("stdio", stdio), ("http", http)):
        async with way(house_settings=home(name), era=era) as play:
            assert await walked(play) == expected


@proves("mcp.same-replies")
def test_the_walk_calls_every_tool(settings: Settings) -> None:
    listed = {tool["name"] for tool in load_tools(DEFAULT, Application(settings)).table.describe()}

    assert {tool for tool, _ in WALK} - {"no_such_tool"} == listed
