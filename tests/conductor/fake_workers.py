"""Workers that are Python functions, for tests that repeat a run often or kill it at every commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.conductor.conductor import Conductor
from fidelio.conductor.context import ProgressEvent
from fidelio.conductor.plan import Plan
from fidelio.conductor.workers import Workers
from fidelio.engine.record import CHILD_STARTED, Record
from fidelio.errors import AgentSessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CommitResult
from fidelio.orchestrator.record.model import AgentSession, Run, RunResult, Usage
from tests.conductor.run_setup import RunSetup, report

# Activity and prompt to the last message of the turn.
Respond = Callable[[str, str], Awaitable[str]]


class Killed(Exception):
    """Simulates that the conducting process was killed."""


def find_steps(prompt: str) -> list[str]:
    """The steps that the prompt lists."""
    line = next(line for line in prompt.splitlines() if line.startswith("steps: "))
    return [name for name in line.removeprefix("steps: ").split(", ") if name != "-"]


def find_token(prompt: str) -> str:
    return prompt.partition("session_token: ")[2].split()[0]


async def do_listed_steps(activity: str, prompt: str) -> str:
    """Reports the listed steps, or the single step of a generated activity."""
    return report(*(find_steps(prompt) if "\nsteps: " in prompt else [f"{activity}-step"]))


class FakeWorkers(Workers):
    """Keeps its sessions when a conductor is killed. `prompts` are pairs of activity and prompt, in order."""

    def __init__(self, respond: Respond = do_listed_steps) -> None:
        self._respond = respond
        self._sessions: dict[str, AgentSession] = {}
        self._said: dict[str, str] = {}
        self._runs: dict[str, list[Run]] = {}
        self._activities: dict[str, str] = {}
        self.prompts: list[tuple[str, str]] = []

    @property
    def usage(self) -> Usage:
        return Usage()

    @property
    def names(self) -> list[str]:
        return list(self._sessions)

    async def check(self, blueprint: str, project: str) -> None:
        """Every blueprint is accepted."""

    async def check_caller(self, caller: str | None) -> None:
        """Every caller is accepted."""

    async def find(self, session: str, record: Record, project: str, part: str = "") -> AgentSession | None:  # noqa: ARG002  # the signature is that of `Workers`, which it replaces in tests
        return self._sessions.get(self.build_name(session, record, part))

    async def start(self, session: str, record: Record, plan: Plan, prompt: str, part: str = "") -> AgentSession:  # noqa: ARG002  # the signature is that of `Workers`, which it replaces in tests
        name = self.build_name(session, record, part)
        assert name not in self._sessions, f"{name} is started twice"
        self._activities[name] = record.activity
        return await self._turn(name, prompt)

    async def resume(self, worker: AgentSession, prompt: str) -> None:
        await self._turn(worker.name, prompt)

    async def wait(self, worker: AgentSession, seconds: float) -> AgentSession:  # noqa: ARG002  # the signature is that of `Workers`, which it replaces in tests
        raise AgentSessionNotFound(worker.name, remedy="It has ended already.")

    async def stop(self, worker: AgentSession, *, by: str = "conductor") -> AgentSession:
        raise AssertionError(f"{worker.name} has ended already, {by}")

    async def result(self, worker: AgentSession) -> RunResult:
        return RunResult(session=worker, run=worker.run, text=self._said[worker.name])

    async def runs(self, worker: AgentSession) -> Sequence[Run]:
        return self._runs[worker.name]

    async def _turn(self, name: str, prompt: str) -> AgentSession:
        activity, runs = self._activities[name], self._runs.setdefault(name, [])
        self.prompts.append((activity, prompt))
        self._said[name] = await self._respond(activity, prompt)
        runs.append(Run(id=f"{name}.{len(runs) + 1}", number=len(runs) + 1, state="succeeded"))
        self._sessions[name] = AgentSession(id=name, name=name, project="", blueprint="player", executor="fake", run=runs[-1])
        return self._sessions[name]


class FakeRuns:
    """Runs with fake workers in one application. `events` are the progress events of all of them."""

    def __init__(self, setup: RunSetup, app: Application, workers: FakeWorkers) -> None:
        self.setup, self.app, self.workers = setup, app, workers
        self.events: list[ProgressEvent] = []

    async def conductor(self) -> Conductor:
        workflows = await self.app.workflows()
        return Conductor(workflows, workflows.unit, self.workers, self.setup.settings.home, on_event=self.events.append)

    async def execute(self, workflow: str, **plan: Any) -> Record:
        conductor = await self.conductor()
        return await conductor.run(await conductor.start(self.setup.plan(workflow, **plan)))

    async def session(self, workflow: str) -> str:
        """The only session of a workflow."""
        (found,) = await self.sessions(workflow)
        return found

    async def sessions(self, workflow: str) -> list[str]:
        page = await (await self.ledger()).sessions(kind="workflow", limit=500)
        return [session.id for session in page.items if session.record["workflow"] == workflow]

    async def children(self, parent: str) -> list[Record]:
        """What a session has started, in order."""
        started = await (await self.ledger()).events(parent, types=(CHILD_STARTED,))
        return [await self.record(event.body["session"]) for event in started]

    async def record(self, session: str) -> Record:
        unit = (await self.app.workflows()).unit
        return await unit.load_record(await unit.ledger.session(session))

    async def ledger(self) -> Ledger:
        return (await self.app.workflows()).unit.ledger

    async def kill_at_commit(self, number: int, session: str, *, committed: bool) -> bool:
        """Run the session and kill it at this commit: before it, or after it if `committed`. False if the run ended first."""
        ledger, count = await self.ledger(), 0
        commit = ledger.commit

        async def dying(*changes: Change) -> tuple[CommitResult, ...]:
            nonlocal count
            if count + 1 == number and not committed:
                raise Killed
            done = await commit(*changes)
            # Only successful commits count: a commit that conflicts is retried.
            count += 1
            if count == number:
                raise Killed
            return done

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ledger, "commit", dying)
            try:
                await (await self.conductor()).run(session)
            except Killed:
                return True
        return False


@asynccontextmanager
async def open_fake_runs(setup: RunSetup, respond: Respond = do_listed_steps) -> AsyncIterator[FakeRuns]:
    async with setup.app() as app:
        yield FakeRuns(setup, app, FakeWorkers(respond))


__all__ = ["FakeRuns", "FakeWorkers", "Killed", "do_listed_steps", "find_steps", "find_token", "open_fake_runs"]
