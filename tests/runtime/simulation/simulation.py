"""A simulation: one seed decides who does what and when, which processes die, which replies fail, and how time passes.

    await Simulation(seed, directory).run()

First everything goes wrong, then the faults stop, all requests are answered, and what was begun has to come to an end. Then
`fidelio` must have lost nothing, done nothing twice, and left nothing open (`tests.runtime.simulation.invariants`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

from fidelio.app.records import record_type
from fidelio.errors import LedgerError, RequestClosed, SessionNotFound, StaleLease, UsageProblem
from fidelio.home import Home
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.jobs import STOPPED, Assignment
from fidelio.ledger.model import Completion, Lease, Retry
from fidelio.providers.registry import Providers
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.service import NewAgentSession, RuntimeService
from fidelio.runtime.sessions import session_namespace
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.runtime.wakes.model_calls import Timing
from fidelio.runtime.wakes.record import JOB_KINDS
from fidelio.runtime.wakes.wake import WakeRunner
from tests.runtime.simulation.scheduler import Actor, Gate, Killed, Scheduler, gate_ledger
from tests.runtime.simulation.world import SimulatedModel, SimulatedSandboxes, World
from tests.runtime.support import KEYS
from tests.support.ledgers import MovingClock

PROJECT = "/project"
LEASE_MS = 30_000
STEPS = 280
# After the faults everything has to come to an end within so many rounds.
CALM_ROUNDS = 400
PERSON = "person:simulation"
_REFUSALS = (UsageProblem, RequestClosed, SessionNotFound)
_AGENT = {
    "model": "scripted:simulation",
    "grader": "none",
    "tools": {"custom": [{"name": "weather", "description": "The weather.", "input_schema": {"type": "object"}}]},
}


class Simulation:
    """A run of one seed. `trace` is what happened, in order."""

    def __init__(self, seed: int, directory: Path, *, steps: int = STEPS) -> None:
        self.seed, self._directory, self._steps = seed, directory, steps
        self.random = Random(seed)
        self.world = World(self.random)
        self.clock = MovingClock(1_700_000_000_000)
        self.scheduler = Scheduler()
        self.sessions: list[str] = []
        self.budgets: dict[str, dict[str, float]] = {}
        # The texts that were sent and acknowledged, by session.
        self.sent: dict[str, list[str]] = {}
        self.trace: list[str] = []
        self.kills = 0
        # How often a closed child returned a part of its budget.
        self.returns = 0
        # The types of all events.
        self.types: set[str] = set()
        self._workers = self.random.randint(2, 4)
        self._names = 0

    def note(self, text: str) -> None:
        self.trace.append(f"{self.clock.now - 1_700_000_000_000:>12,} {text}")

    async def run(self, check: Callable[[Simulation], Awaitable[None]]) -> None:
        """Carry out the simulation and check what it left."""
        home = Home(self._directory / "home")
        home.ensure()
        async with await open_ledger(str(home.ledger), clock=self.clock) as self.ledger:
            self.ledger.record_type = record_type
            self._home = home
            try:
                await self._begin()
                for _ in range(self._steps):
                    await self._step()
                await self._calm_down()
                await check(self)
            finally:
                await self.scheduler.close()

    # Actors

    def new_actor(self, kind: str) -> Actor:
        self._names += 1
        return Actor(self.scheduler, f"{kind}{self._names}")

    def context(self, actor: Actor) -> RuntimeContext:
        """The ports of a process."""
        ports = RuntimePorts(models=Providers({"scripted": SimulatedModel(self.world, actor)}))
        ledger = gate_ledger(self.ledger, actor)
        return RuntimeContext(ledger, self.clock, self._home, SimulatedSandboxes(self.world, actor), lambda: KEYS, ports)

    async def _begin(self) -> None:
        setup = RuntimeContext(
            self.ledger,
            self.clock,
            self._home,
            SimulatedSandboxes(self.world, self.new_actor("setup")),
            lambda: KEYS,
            RuntimePorts(models=Providers({"scripted": SimulatedModel(self.world, self.new_actor("setup"))})),
        )
        await define_agent(setup, PROJECT, "helper", parse_agent(_AGENT, "The agent"), by=PERSON)
        service = RuntimeService(setup)
        for _ in range(self.random.randint(1, 3)):
            budget = self.random.choice(({}, {}, {"wakes_per_day": 4.0}, {"tokens": 60_000.0}))
            session = await service.start_session(NewAgentSession(project=PROJECT, agent="helper", budget=budget))
            self.sessions.append(session)
            self.budgets[session], self.sent[session] = dict(budget), []

    def _start_worker(self) -> None:
        actor = self.new_actor("worker")
        actor.start(self._work(actor))

    async def _work(self, actor: Actor) -> None:
        """Claim a job and carry it out, as the job loop of a worker does."""
        context = self.context(actor)
        lease = await context.ledger.claim(actor.name, JOB_KINDS, lease_ms=LEASE_MS)
        if lease is None:
            return
        actor.lease = lease
        assignment = Assignment(context.ledger, lease)
        try:
            await WakeRunner(context, timing=Timing(self._sleep_of(actor), self.random.random)).run(assignment)
        except StaleLease:
            self.note(f"{actor.name} has lost its lease")
            return
        except asyncio.CancelledError:
            if not actor.is_dead:
                await self._settle(context.ledger, lease, is_settled=assignment.is_settled, again=True)
            raise
        await self._settle(context.ledger, lease, is_settled=assignment.is_settled, again=False)

    async def _settle(self, ledger: Ledger, lease: Lease, *, is_settled: bool, again: bool) -> None:
        if is_settled:
            return
        try:
            await ledger.settle(lease, Retry(due=self.clock.now, error=STOPPED) if again else Completion())
        except LedgerError as error:
            self.note(f"the end of a job was not stored: {error.code}")

    def _sleep_of(self, actor: Actor) -> Callable[[float], Awaitable[None]]:
        async def sleep(seconds: float) -> None:
            await actor.pass_gate("sleep")
            self.clock.now += int(seconds * 1000)

        return sleep

    def _send(self, session: str, *events: dict[str, Any]) -> None:
        actor = self.new_actor("person")
        actor.start(self._deliver(actor, session, events))

    async def _deliver(self, actor: Actor, session: str, events: tuple[dict[str, Any], ...]) -> None:
        service = RuntimeService(self.context(actor))
        for event in events:
            try:
                await service.send(session, [event], by=PERSON, channel="cli")
            except _REFUSALS as refusal:
                self.note(f"{event['type']} to {session} is refused: {refusal.code}")
                continue
            if event["type"] == "user.message":
                self.sent[session].append(event["content"])

    # Steps

    async def _step(self) -> None:
        await self.scheduler.settle()
        self._reap()
        actions: list[tuple[float, Callable[[], Awaitable[None] | None]]] = [(1.5, self._send_something)]
        if self.scheduler.gates:
            actions += [(14, self._open_gate), (0.4, self._kill), (0.15, self._stop_worker)]
        if sum(actor.name.startswith("worker") for actor in self.scheduler.live) < self._workers:
            actions.append((3, self._start_worker))
        actions += [(1, self._pass_time), (0.25, self._stall)]
        (chosen,) = self.random.choices([action for _, action in actions], [weight for weight, _ in actions])
        done = chosen()
        if done is not None:
            await done

    def _reap(self) -> None:
        """Read the results of actors that have ended. Whatever they raise is a defect, unless they were killed."""
        ended = [actor for actor in self.scheduler.actors if actor.is_done]
        self.scheduler.actors = self.scheduler.live
        for actor in ended:
            assert actor.task is not None
            error = None if actor.task.cancelled() else actor.task.exception()
            if error is not None and not isinstance(error, Killed):
                self.world.complain(f"{actor.name} failed: {type(error).__name__}: {error}")
                logging.getLogger(__name__).error("%s failed", actor.name, exc_info=error)

    def _open_gate(self) -> None:
        gate = self.random.choice(self.scheduler.gates)
        self.note(f"{gate.actor.name}: {gate.what}")
        self.scheduler.open(gate)

    def _find_gates_of_workers(self) -> list[Gate]:
        return [gate for gate in self.scheduler.gates if gate.actor.name.startswith("worker")]

    def _kill(self) -> None:
        """Kill a worker before or after something that it is about to do."""
        if gates := self._find_gates_of_workers():
            gate = self.random.choice(gates)
            fate = self.random.choice(("before", "after"))
            self.note(f"{gate.actor.name} is killed {fate} {gate.what}")
            self.kills += 1
            if fate == "before":
                gate.actor.kill()
            else:
                self.scheduler.open(gate, "die")

    def _stop_worker(self) -> None:
        """Stop a worker as a person does who ends its process: the job is given back."""
        if gates := self._find_gates_of_workers():
            actor = self.random.choice(gates).actor
            self.note(f"{actor.name} is stopped")
            actor.stop()

    async def _pass_time(self) -> None:
        """Time passes, and every worker that lives renews its lease."""
        for actor in self.scheduler.live:
            if actor.lease is not None and not actor.is_dead:
                await self._renew(actor, actor.lease)
        self.clock.now += self.random.choice((1, 100, 1_000, 9_000))

    async def _renew(self, actor: Actor, lease: Lease) -> None:
        try:
            await self.ledger.heartbeat(lease, lease_ms=LEASE_MS)
        except StaleLease:
            self.note(f"{actor.name} learns that it has lost its lease")
            actor.lease = None
            actor.stop()

    def _stall(self) -> None:
        """The clock jumps: a machine that slept, or workers that did not run for a while. Leases expire."""
        jump = self.random.choice((LEASE_MS + 1, 120_000, 3_600_000, 90_000_000))
        self.note(f"the clock jumps by {jump / 1000:g} s")
        self.clock.now += jump

    async def _find_children(self) -> None:
        """Add the sessions that agents have delegated to. Their task was sent with their beginning."""
        for session in (await self.ledger.sessions(kind="runtime", namespace=session_namespace(PROJECT), limit=100)).items:
            if session.id not in self.budgets:
                (task,) = (await self.ledger.events(session.id, types=(e.USER_MESSAGE,), limit=1))[:1]
                record = await self.read(session.id)
                self.sessions.append(session.id)
                self.budgets[session.id] = dict(record.budget)
                self.sent[session.id] = [task.body["content"][0]["text"]]

    async def _send_something(self) -> None:
        await self._find_children()
        session, random = self.random.choice(self.sessions), self.random
        record = await self.read(session)
        kinds = {"message": 8, "answer": 6, "interrupt": 1, "outcome": 0.3, "end": 0.1, "archive": 0.1}
        (kind,) = random.choices(list(kinds), list(kinds.values()))
        if kind == "answer" and record.wakes.blocking:
            call = random.choice(record.wakes.blocking)
            self._answer(session, call.id, call.state)
        elif kind == "interrupt":
            self.note(f"interrupt {session}")
            more = [self._message()] if random.random() < 0.5 else []
            self._send(session, {"type": "user.interrupt"}, *more)
        elif kind == "outcome":
            title = self.world.new_token("outcome")
            self._send(session, {"type": "user.define_outcome", "title": title, "successCriteria": ["It is done."]})
        elif kind == "end":
            self.note(f"end {session}")
            actor = self.new_actor("person")
            actor.start(RuntimeService(self.context(actor)).end_session(session, by=PERSON))
        elif kind == "archive":
            self.note(f"archive {session}")
            actor = self.new_actor("person")
            actor.start(self._archive(actor, session))
        else:
            self._send(session, self._message())

    async def _archive(self, actor: Actor, session: str) -> None:
        try:
            await RuntimeService(self.context(actor)).archive_session(session, by=PERSON)
        except UsageProblem as refusal:
            self.note(f"archiving {session} is refused: {refusal}")

    def _message(self) -> dict[str, Any]:
        return {"type": "user.message", "content": self.world.new_token("message")}

    def _answer(self, session: str, call: str, state: str) -> None:
        """Answer a call that waits, sometimes twice and differently."""
        if state == "custom":
            event: dict[str, Any] = {"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": "21 degrees"}
        else:
            result = self.random.choice(("allow", "allow", "deny"))
            event = {"type": "user.tool_confirmation", "tool_use_id": call, "result": result}
        self.note(f"answer {call} in {session}: {event.get('result', 'a result')}")
        self._send(session, event)
        if self.random.random() < 0.15:
            self._send(session, {**event, "result": "deny"} if state != "custom" else event)

    async def read(self, session: str) -> RuntimeRecord:
        return (await self._plain_context().unit.load(session)).record

    def _plain_context(self) -> RuntimeContext:
        sandboxes = SimulatedSandboxes(self.world, self.new_actor("reader"))
        return RuntimeContext(self.ledger, self.clock, self._home, sandboxes, lambda: KEYS)

    # The end

    async def _calm_down(self) -> None:
        """Let everything that was begun come to an end, without faults."""
        self.note("the faults stop")
        self.world.is_calm = True
        await self._open_all()
        await self._close_children()
        for _ in range(CALM_ROUNDS):
            due = await self.ledger.next_due(JOB_KINDS)
            if due is not None and due <= self.clock.now:
                self._start_worker()
                await self._open_all()
            elif not await self._answer_all():
                if due is None:
                    return
                self.clock.now = due
        self.world.complain(f"after {CALM_ROUNDS} rounds without faults there is still something to do")

    async def _close_children(self) -> None:
        """End or archive some of the sessions that agents have delegated to."""
        await self._find_children()
        for session in self.sessions:
            if (await self.read(session)).depth and self.random.random() < 0.5:
                actor = self.new_actor("person")
                service = RuntimeService(self.context(actor))
                is_end = self.random.random() < 0.5
                actor.start(service.end_session(session, by=PERSON) if is_end else self._archive(actor, session))
        await self._open_all()

    async def _open_all(self) -> None:
        """Let the actors go on, in their order, until none is left."""
        await self.scheduler.settle()
        while self.scheduler.gates:
            self._reap()
            self.note(f"{self.scheduler.gates[0].actor.name}: {self.scheduler.gates[0].what}")
            self.scheduler.open(self.scheduler.gates[0])
            await self.scheduler.settle()
        self._reap()

    async def _answer_all(self) -> bool:
        """Answer everything that waits for a person; False if nothing does."""
        found = False
        await self._find_children()
        for session in self.sessions:
            record = await self.read(session)
            for call in () if record.is_closed else record.wakes.blocking:
                approval = record.approvals.get(call.request)
                if approval is None or (approval.state == "open" and approval.expires > self.clock.now):
                    found = True
                    self._answer(session, call.id, call.state)
        await self._open_all()
        return found
