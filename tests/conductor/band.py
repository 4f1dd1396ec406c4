"""Workers that are functions: quick enough to try a run again and again, killed at every moment that matters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.conductor.conductor import Conductor
from fidelio.conductor.context import Happening
from fidelio.conductor.plan import Plan
from fidelio.conductor.workers import Workers
from fidelio.engine.record import CHILD_STARTED, Record
from fidelio.errors import AgentSessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CommitResult
from fidelio.orchestrator.record.model import AgentSession, Run, RunResult
from tests.conductor.orchestra import Orchestra, report

# What a worker answers to the prompt of its activity.
Play = Callable[[str, str], Awaitable[str]]


class Killed(Exception):
    """The process that conducts has ended."""


def steps_in(prompt: str) -> list[str]:
    """The steps that the prompt lists."""
    line = next(line for line in prompt.splitlines() if line.startswith("steps: "))
    return [name for name in line.removeprefix("steps: ").split(", ") if name != "-"]


def token_in(prompt: str) -> str:
    return prompt.partition("session_token: ")[2].split()[0]


async def obedient(activity: str, prompt: str) -> str:
    """Does what is listed, else the one step that test activities have."""
    return report(*(steps_in(prompt) if "\nsteps: " in prompt else [f"{activity}-step"]))


class Band(Workers):
    """Outlives those who conduct it. `heard` are the prompts, by activity, in order."""

    def __init__(self, play: Play = obedient) -> None:
        self._play = play
        self._sessions: dict[str, AgentSession] = {}
        self._said: dict[str, str] = {}
        self._runs: dict[str, list[Run]] = {}
        self._activities: dict[str, str] = {}
        self.heard: list[tuple[str, str]] = []

    @property
    def cost_usd(self) -> float:
        return 0.0

    @property
    def names(self) -> list[str]:
        return list(self._sessions)

    async def check(self, blueprint: str, project: str) -> None:
        """Everybody can play."""

    async def check_caller(self, caller: str | None) -> None:
        """Everybody may ask."""

    async def find(self, session: str, record: Record, project: str, part: str = "") -> AgentSession | None:  # noqa: ARG002  # as in `Workers`
        return self._sessions.get(self.name(session, record, part))

    async def start(self, session: str, record: Record, plan: Plan, prompt: str, part: str = "") -> AgentSession:  # noqa: ARG002  # as in `Workers`
        name = self.name(session, record, part)
        assert name not in self._sessions, f"{name} is started twice"
        self._activities[name] = record.activity
        return await self._turn(name, prompt)

    async def resume(self, worker: AgentSession, prompt: str) -> None:
        await self._turn(worker.name, prompt)

    async def wait(self, worker: AgentSession, seconds: float) -> AgentSession:  # noqa: ARG002  # as in `Workers`
        raise AgentSessionNotFound(worker.name, remedy="It has ended already.")

    async def stop(self, worker: AgentSession) -> AgentSession:
        raise AssertionError(f"{worker.name} has ended already")

    async def result(self, worker: AgentSession) -> RunResult:
        return RunResult(session=worker, run=worker.run, text=self._said[worker.name])

    async def runs(self, worker: AgentSession) -> Sequence[Run]:
        return self._runs[worker.name]

    async def _turn(self, name: str, prompt: str) -> AgentSession:
        activity, runs = self._activities[name], self._runs.setdefault(name, [])
        self.heard.append((activity, prompt))
        self._said[name] = await self._play(activity, prompt)
        runs.append(Run(id=f"{name}.{len(runs) + 1}", number=len(runs) + 1, state="succeeded"))
        self._sessions[name] = AgentSession(id=name, name=name, project="", blueprint="player", executor="band", run=runs[-1])
        return self._sessions[name]


class Concert:
    """A house in which a band plays."""

    def __init__(self, orchestra: Orchestra, house: Application, band: Band) -> None:
        self.orchestra, self.house, self.band = orchestra, house, band
        self.seen: list[Happening] = []

    async def conductor(self) -> Conductor:
        workflows = await self.house.workflows()
        return Conductor(workflows, workflows.unit, self.band, self.orchestra.settings.home, watch=self.seen.append)

    async def play(self, workflow: str, **plan: Any) -> Record:
        conductor = await self.conductor()
        return await conductor.carry_out(await conductor.begin(self.orchestra.plan(workflow, **plan)))

    async def session(self, workflow: str) -> str:
        """The only session of a workflow."""
        (found,) = await self.sessions(workflow)
        return found

    async def sessions(self, workflow: str) -> list[str]:
        page = await (await self.ledger()).sessions(kind="workflow", limit=500)
        return [one.id for one in page.items if one.record["workflow"] == workflow]

    async def children(self, parent: str) -> list[Record]:
        """What a session has started, in order."""
        started = await (await self.ledger()).events(parent, types=(CHILD_STARTED,))
        return [await self.record(event.body["session"]) for event in started]

    async def record(self, session: str) -> Record:
        desk = (await self.house.workflows()).unit
        return await desk.load_record(await desk.ledger.session(session))

    async def ledger(self) -> Ledger:
        return (await self.house.workflows()).unit.ledger

    async def killed_at(self, number: int, session: str, *, written: bool) -> bool:
        """Carries a run out and ends it at the commit with this number, before it is made or after. False: it came through."""
        ledger, count = await self.ledger(), 0
        commit = ledger.commit

        async def dying(*changes: Change) -> tuple[CommitResult, ...]:
            nonlocal count
            if count + 1 == number and not written:
                raise Killed
            done = await commit(*changes)
            # Only what was written counts: one that came too late is made again.
            count += 1
            if count == number:
                raise Killed
            return done

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ledger, "commit", dying)
            try:
                await (await self.conductor()).carry_out(session)
            except Killed:
                return True
        return False


@asynccontextmanager
async def concert(orchestra: Orchestra, play: Play = obedient) -> AsyncIterator[Concert]:
    async with orchestra.house() as house:
        yield Concert(orchestra, house, Band(play))


__all__ = ["Band", "Concert", "Killed", "concert", "obedient", "steps_in", "token_in"]
