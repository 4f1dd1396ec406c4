"""Test bench for executors of real agents: an agent in a home of its own, a scripted model, and a recording reporter.

Each kind of agent has a `Harness` that knows how it is installed, where the address of its model is configured, and the name of
its shell tool. Everything else is the same for all.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint, PermissionMode, Permissions
from fidelio.orchestrator.executors.contract import Executor, Turn, TurnResult
from fidelio.processes.spooled import find_marked
from fidelio.processes.table import ProcessIdentity
from tests.agents.model import SECONDS, ModelCall, ScriptedModel, scripted_model
from tests.agents.model.script import ApiScript
from tests.orchestrator.executors.recording import RecordingReporter, make_turn

SYSTEM_PROMPT = "You are the porter of this test. --version"


class Harness(Protocol):
    """What a test needs to know of a kind of agent. Picklable, because it is passed to another process."""

    @property
    def can_be_adopted(self) -> bool: ...

    def executor(self) -> Executor: ...

    def environment(self, home: Path, model: str) -> dict[str, str]:
        """The whole environment of its process. Writes its settings into `home`. Skips the test if it is not installed."""

    def adjusted(self, blueprint: Blueprint, model: str) -> Blueprint:
        """The blueprint with the options of this kind, such as the address of its model."""

    def shell(self, command: str, *, asks: bool = False) -> ModelCall:
        """A call of its shell tool. `asks`: the command needs approval, which a sandboxed agent's model has to request."""


@dataclass(frozen=True, slots=True)
class Bench:
    """An agent with its directories and model. No process is left when the test is over."""

    harness: Harness
    place: Path
    model: ScriptedModel
    environment: dict[str, str]
    turns: list[Turn] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.place / "project"

    def turn(self, prompt: str, *, mode: PermissionMode = "full", conversation: str | None = None, **changes: Any) -> Turn:
        server = McpServer(
            command=sys.executable, args=("-m", "fidelio", "mcp"), env={"FIDELIO_HOME": str(self.place / "fidelio")}
        )
        blueprint = Blueprint(
            name="porter",
            description="Opens doors.",
            system_prompt=SYSTEM_PROMPT,
            permissions=Permissions(mode=mode, allow=("mcp__fidelio",)),
            mcp_servers={"fidelio": server},
        )
        turn = make_turn(
            self.place,
            prompt,
            blueprint=self.harness.adjusted(msgspec.structs.replace(blueprint, **changes), self.model.address),
            conversation=conversation,
            fresh=str(uuid4()),
            environment=self.environment,
        )
        self.turns.append(turn)
        return turn

    async def carry_out(self, turn: Turn, reporter: RecordingReporter) -> TurnResult:
        async with asyncio.timeout(SECONDS):
            return await self.harness.executor().carry_out(turn, reporter)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: RecordingReporter) -> TurnResult | None:
        async with asyncio.timeout(SECONDS):
            return await self.harness.executor().adopt(turn, process, reporter)


@asynccontextmanager
async def bench(harness: Harness, place: Path, script: ApiScript) -> AsyncIterator[Bench]:
    home = place / "home"
    home.mkdir()
    async with scripted_model(script) as model:
        proxies = {"HTTP_PROXY": model.address, "HTTPS_PROXY": model.address, "NO_PROXY": "127.0.0.1,localhost"}
        made = Bench(harness, place, model, {"HOME": str(home), **proxies, **harness.environment(home, model.address)})
        try:
            yield made
        finally:
            left = [process for turn in made.turns for process in find_marked(turn.run)]
    assert left == [], "an agent was left behind"


class Doorbell:
    """A named pipe in the project that an agent's command writes to, for a test that waits until the command runs."""

    def __init__(self, project: Path) -> None:
        self.path = project / "doorbell"
        project.mkdir(exist_ok=True)
        os.mkfifo(self.path)

    async def rings(self) -> None:
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        pipe = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        loop.add_reader(pipe, rung.set)
        try:
            async with asyncio.timeout(SECONDS):
                await rung.wait()
        finally:
            loop.remove_reader(pipe)
            os.close(pipe)
