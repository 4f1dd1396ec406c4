"""What a reply offers is exactly what is accepted, however a workflow is written and wherever a walk has led."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.app.application import Application
from fidelio.definitions.models import Workflow
from fidelio.inbox import Inbox
from fidelio.settings import load_settings
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.toolkit import Done
from tests.dialects.navigator.conftest import KEYS
from tests.engine.test_properties import TARGETS, workflows
from tests.support import proves
from tests.support.tool_calls import call_tool

Json = dict[str, Any]
LONGEST = 25
STEPS, QUESTIONS, LOOPS = ("s0", "s1", "s2", "x0", "x1", "zzz"), ("c0", "c1", "zzz"), ("l0", "l1", "zzz")
EVERYTHING: list[Json] = [
    *({"action": "complete_step", "step_id": name} for name in STEPS),
    *({"action": "respond_to_checkpoint", "checkpoint_id": name, "option_id": "yes"} for name in QUESTIONS),
    *({"action": "respond_to_checkpoint", "checkpoint_id": name, "condition_not_met": True} for name in QUESTIONS),
    *({"action": "respond_to_checkpoint", "checkpoint_id": name, "auto_advance": True} for name in QUESTIONS),
    *({"action": "transition", "activity_id": name} for name in TARGETS),
    *({"action": "advance_loop", "loop_id": name, "loop_items": ["a", "b"]} for name in LOOPS),
    *({"action": "get_resource", "index": name} for name in ("01", "02", "map", "meta/01", "../workflow.json")),
]


class Stage:
    """One server for all walks; every walk brings its own workflow."""

    def __init__(self, place: Path, runner: asyncio.Runner) -> None:
        self._library = place / "workflows"
        self._library.mkdir()
        (self._library / "meta.yaml").write_text("id: meta\nversion: 1.0.0\ntitle: Meta\n")
        environ = {"FIDELIO_HOME": str(place / "home"), "FIDELIO_MIN_RESPONSE_SECONDS": "0"}
        self.house = Application(load_settings(environ=environ), [str(self._library)])
        self._tools = load_tools("navigator", self.house)
        self._runner = runner
        self._count = 0

    def write(self, definition: Workflow) -> str:
        self._count += 1
        name = f"walk-{self._count}"
        written = definition.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"broken"})
        (self._library / name / "resources").mkdir(parents=True)
        (self._library / name / "workflow.json").write_text(json.dumps({**written, "id": name}))
        (self._library / name / "resources" / "01-map.md").write_text("# The map\n")
        (self._library / name / "resources" / "02-torn.md").write_text("---\nid: [\n---\n")
        return name

    def call(self, tool: str, **arguments: Any) -> Json:
        """The reply, when what only time can change has changed."""
        done = self._runner.run(call_tool(self._tools, tool, arguments))
        said = done if isinstance(done, Done) else done.waiting_reply
        assert said is not None
        reply = dict(json.loads(said.text))
        return self.call("nav_situation", state=reply["state"]) if reply["success"] and in_a_moment(reply) else reply

    def answer_as_person(self, reply: Json, move: Json) -> Json:
        """A relayed answer is refused and puts the question on record; then a person answers it."""
        option = move["options"][0]
        named = {"action": "respond_to_checkpoint", "checkpoint_id": move["checkpoint"], "option_id": option}
        refused = self.call("nav_action", state=reply["state"], **named)
        assert refused["error"]["code"] == "CHECKPOINT_PERSON"
        self._runner.run(self._answer(refused["checkpoint"]["request_id"], option))
        return self.call("nav_situation", state=refused["state"])

    async def _answer(self, request: str, option: str) -> None:
        inbox = Inbox((await self.house.workflows()).unit.ledger)
        await inbox.answer(request, option, by="person:test", channel="cli")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        found = Stage(tmp_path_factory.mktemp("stage"), runner)
        yield found
        runner.run(found.house.__aexit__(None, None, None))


def in_a_moment(reply: Json) -> bool:
    return any(move["reason"].startswith("Its 1 ms") for move in reply["availableActions"]["blocked"])


def moves(reply: Json, *, person: bool) -> list[Json]:
    """What a reply offers to the agent, or asks a person for."""
    actions = reply["availableActions"]
    return [move for move in (*actions["required"], *actions["optional"]) if ("answered_by" in move) is person]


def offered(reply: Json) -> list[Json]:
    """The calls that a reply offers, one for each option."""
    return [call for move in moves(reply, person=False) for call in calls(move)]


def refusable(reply: Json) -> list[Json]:
    """Everything that is not offered. To ask for what only a person may answer changes something: then they are asked."""
    possible, theirs = offered(reply), {move["checkpoint"] for move in moves(reply, person=True)}
    return [call for call in EVERYTHING if call not in possible and call.get("checkpoint_id") not in theirs]


def calls(move: Json) -> list[Json]:
    if move["action"] == "get_resource":
        return [{"action": "get_resource", "index": index} for index in move["resources"]]
    named = {"action": move["action"], **{f"{key}_id": move[key] for key in KEYS if key in move}}
    flags: Json = {key: True for key in ("condition_not_met", "auto_advance") if key in move}
    if flags or move["action"] != "respond_to_checkpoint":
        items = {"loop_items": ["a", "b"]} if move["action"] == "advance_loop" else {}  # the same in every pass
        return [{**named, **flags, **items}]
    return [{**named, "option_id": option} for option in move["options"]]


@proves("navigator.offers")
@settings(max_examples=20, deadline=None)
@given(definition=workflows(), seed=st.integers(0, 9999))
def test_everything_offered_is_accepted_and_everything_else_is_refused_with_the_reason(
    stage: Stage, definition: Workflow, seed: int
) -> None:
    chance = Random(seed)
    known = {"p": chance.random() < 0.5} if seed % 3 else {}
    reply = stage.call("nav_start", workflow_id=stage.write(definition), initial_variables=known)
    for _ in range(LONGEST):
        possible, theirs, state = offered(reply), moves(reply, person=True), reply["state"]
        assert possible or theirs or reply["status"] == "completed", reply
        for call in chance.sample(refusable(reply), 4):
            refused = stage.call("nav_action", state=state, **call)
            assert refused["success"] is False, call
            assert refused["error"]["code"]
            assert refused["error"]["message"]
            assert (refused["state"], refused["availableActions"]) == (state, reply["availableActions"])
        if not possible and not theirs:
            break
        if theirs and (not possible or chance.random() < 0.5):
            reply = stage.answer_as_person(reply, theirs[0])
        else:
            reply = stage.call("nav_action", state=state, **chance.choice(possible))
        assert reply["success"] is True, reply


@proves("navigator.offers")
@settings(max_examples=30, deadline=None)
@given(definition=workflows(), seed=st.integers(0, 9999))
def test_every_single_offer_is_accepted(stage: Stage, definition: Workflow, seed: int) -> None:
    """From one place of a walk, every offer is tried in a session of its own that was led there in the same way."""
    chance, workflow = Random(seed), stage.write(definition)
    reply, path = stage.call("nav_start", workflow_id=workflow), list[Json]()
    for _ in range(chance.randrange(6)):
        if possible := offered(reply):
            path.append(chance.choice(possible))
            reply = stage.call("nav_action", state=reply["state"], **path[-1])
    for call in offered(reply)[:8]:
        again = stage.call("nav_start", workflow_id=workflow)
        for made in path:
            again = stage.call("nav_action", state=again["state"], **made)
        assert again["availableActions"] == reply["availableActions"]
        assert stage.call("nav_action", state=again["state"], **call)["success"] is True
