"""Helpers for tests of the files that describe a session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime.agents.definition import AgentDefinition, AgentVersion
from fidelio.runtime.artifacts import ArtifactState, write_state_artifacts
from fidelio.runtime.calls import Calls, Finished
from fidelio.runtime.navigation.context import ContextBudget, budget_document
from fidelio.runtime.setup.setup import Setup, describe_setup, setup_document
from fidelio.runtime.tools.definitions import RUNTIME_TOOL_NAMES, RUNTIME_TOOLS
from tests.runtime.notes.support import SkillExample
from tests.runtime.resources.support import Bench

AGENT = AgentVersion("default", 1, AgentDefinition(model="scripted:echo"))
BUDGET = ContextBudget(window=200_000, reply=8_000, system={"guidance": 2_000}, tools={"read": 300}, history=900)
SKILLS = (SkillExample("review"),)


class FileBench(Bench):
    """Sessions whose tools are called as a client calls them, and whose wakes write their files."""

    async def append(self, session: str, *events: NewEvent, **more: Any) -> None:
        await self.context.unit.update(session, lambda _: SessionDecision(None, events=events, **more))

    async def use(self, session: str, tool: str, **arguments: Any) -> Mapping[str, Any]:
        """The output of a call that must work."""
        outcome = await Calls(self.context).carry_out(session, tool, arguments, tools=RUNTIME_TOOL_NAMES)
        assert isinstance(outcome, Finished), outcome
        assert not outcome.is_error, outcome.output
        return outcome.output

    async def describe(self, session: str) -> Setup:
        loaded = await self.load(session)
        return await describe_setup(self.context, loaded, agent=AGENT, prompt_sections={"agent": "x"}, tools=RUNTIME_TOOLS)

    async def begin_wake(self, session: str) -> Setup:
        """What a wake does at its beginning: record setup and context, write the files."""
        setup = await self.describe(session)
        documents = (setup_document(session, setup), budget_document(session, BUDGET))
        await self.context.unit.update(session, lambda _: SessionDecision(None, documents=documents))
        state = ArtifactState(tools=RUNTIME_TOOL_NAMES, setup=setup, skills=SKILLS, budget=BUDGET)
        await write_state_artifacts(self.context, await self.load(session), state)
        return setup

    async def end_wake(self, session: str) -> None:
        state = ArtifactState(tools=RUNTIME_TOOL_NAMES, budget=BUDGET, is_end=True)
        await write_state_artifacts(self.context, await self.load(session), state)

    async def files(self, session: str) -> Path:
        return await self.directory(session) / "runtime"

    async def read(self, session: str, name: str) -> Any:
        return msgspec.json.decode((await self.files(session)).joinpath(name).read_text())

    async def times(self, session: str) -> dict[str, int]:
        """When each file was written last."""
        return {path.name: path.stat().st_mtime_ns for path in (await self.files(session)).iterdir()}
