"""The same player in the `navigator` dialect, and a guide that keeps the state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.library import memo
from tests.dialects.conftest import Player, ToolReply
from tests.dialects.navigator.sample_workflows import write_sample_workflows

Json = dict[str, Any]
KEYS = ("step", "checkpoint", "activity", "loop")


@pytest.fixture
def dialect() -> str:
    return "navigator"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_sample_workflows(tmp_path / "workflows")


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as written long ago: definitions stay the same from call to call, and what was shown is remembered."""
    monkeypatch.setattr(memo, "TICK_MS", -1_000_000)


class Guide:
    """An agent that is led: it keeps the last reply, and calls what it is told to call."""

    def __init__(self, play: Player, state: str = "") -> None:
        self.play = play
        self.state = state
        self.last: Json = {}
        self.reply: ToolReply | None = None

    async def start(self, workflow: str, **variables: Any) -> Guide:
        more = {"initial_variables": variables} if variables else {}
        return self.took(await self.play("nav_start", workflow_id=workflow, **more))

    async def look(self) -> Guide:
        return self.took(await self.play("nav_situation", state=self.state))

    async def do(self, action: str, **more: Any) -> Guide:
        """One action; a refusal is kept as the last reply, too."""
        return self.took(await self.play("nav_action", state=self.state, action=action, **more))

    async def step(self, *names: str, **more: Any) -> Guide:
        for name in names:
            self.expect(await self.do("complete_step", step_id=name, **more))
        return self

    async def go(self, *names: str, **more: Any) -> Guide:
        for name in names:
            self.expect(await self.do("transition", activity_id=name, **more))
        return self

    async def say(self, checkpoint: str, option: str) -> Guide:
        return self.expect(await self.do("respond_to_checkpoint", checkpoint_id=checkpoint, option_id=option))

    async def advance(self, loop: str, *items: Any) -> Guide:
        more = {"loop_items": list(items)} if items else {}
        return self.expect(await self.do("advance_loop", loop_id=loop, **more))

    def expect(self, _: Guide) -> Guide:
        assert self.last["success"], self.last
        return self

    def took(self, reply: ToolReply) -> Guide:
        self.reply = reply
        self.last = json.loads(reply.text)
        self.state = self.last["state"]
        return self

    @property
    def token(self) -> str:
        """The session token of the last reply."""
        assert self.reply is not None
        return self.reply.token

    @property
    def required(self) -> list[tuple[str, str]]:
        return [named(move) for move in self.last["availableActions"]["required"]]

    @property
    def optional(self) -> list[tuple[str, str]]:
        return [named(move) for move in self.last["availableActions"]["optional"]]

    @property
    def blocked(self) -> dict[tuple[str, str], str]:
        return {named(move): move["reason"] for move in self.last["availableActions"]["blocked"]}

    def place(self) -> tuple[str, Any, Any]:
        position = self.last["position"]
        activity, step = position["activity"], position["step"]
        return position["workflow"], activity and activity["id"], step and step["id"]

    @property
    def code(self) -> str:
        assert not self.last["success"]
        return str(self.last["error"]["code"])


def named(move: Json) -> tuple[str, str]:
    return move["action"], next((str(move[key]) for key in KEYS if key in move), "")


@pytest.fixture
def guide(play: Player) -> Guide:
    return Guide(play)
