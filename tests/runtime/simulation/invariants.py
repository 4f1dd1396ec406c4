"""What must hold after a simulation, whatever has happened in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import Event
from fidelio.ledger.paging import all_events
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.wakes.record import DAY_MS, JOB_KINDS
from tests.runtime.simulation.simulation import Simulation

# A request may be made while the budget has one token left.
_LARGEST_REQUEST = 30_000


async def check_invariants(simulation: Simulation) -> None:
    """Add whatever does not hold to the problems of the world."""
    world, effects = simulation.world, Counter[str]()
    # A child is an effect of the call that delegated to it.
    world.effects += Counter(text for sent in simulation.sent.values() for text in sent if text.startswith("task"))
    for session in simulation.sessions:
        log = SessionLog(await all_events(simulation.ledger, session), await simulation.read(session))
        simulation.types |= {event.type for event in log.events}
        for problem in log.find_problems(simulation, session):
            world.complain(f"{session}: {problem}")
        for problem in (await verify_session(simulation.ledger, session)).problems:
            world.complain(f"{session}: {problem}")
        if (requests := (await simulation.ledger.requests(session=session)).items) and not log.is_used_up:
            world.complain(f"{session}: requests are open: {[request.question for request in requests]}")
        effects += log.count_allowed_effects()
    for token, count in world.effects.items():
        if count > effects[token]:
            world.complain(f"the effect {token} has happened {count} times, and {effects[token]} were allowed")
    for problem in (*await find_lost_shares(simulation), *await find_jobs(simulation)):
        world.complain(problem)


async def find_jobs(simulation: Simulation) -> list[str]:
    """Jobs that are left, and those that were given up."""
    problems = []
    for kind in JOB_KINDS:
        if jobs := await simulation.ledger.jobs(kind=kind):
            problems.append(f"jobs are left: {[(job.session, job.due - simulation.clock.now) for job in jobs]}")
        if dead := await simulation.ledger.jobs(kind=kind, dead=True):
            problems.append(f"jobs were given up: {dead}")
    return problems


async def find_lost_shares(simulation: Simulation) -> list[str]:
    """A parent has reserved what its open children have and what the closed ones have used, each of which returned once."""
    problems, records = [], {session: await simulation.read(session) for session in simulation.sessions}
    for session, record in records.items():
        children = await simulation.ledger.sessions(kind="runtime", parent=session, limit=50)
        held = sum(count_held(records[child.id]) for child in children.items)
        if record.wakes.reserved.get("tokens", 0) != held:
            problems.append(f"{session}: {record.wakes.reserved} is reserved, and its children have or have used {held} tokens")
        returns = await simulation.ledger.events(session, types=(e.CHILD_BUDGET_RETURNED,), limit=1_000)
        simulation.returns += len(returns)
        closed = {child.id for child in children.items if records[child.id].is_closed and records[child.id].share["tokens"]}
        if {event.body["childSessionId"] for event in returns} != closed:
            problems.append(f"{session}: {closed} are closed, and {returns} came back")
    return problems


def count_held(child: RuntimeRecord) -> float:
    """How many tokens of its parent a child has, or has used."""
    share = child.share["tokens"]
    return min(share, child.wakes.usage.tokens + child.wakes.reserved.get("tokens", 0)) if child.is_closed else share


class SessionLog:
    """The events of a session, and what they say together."""

    def __init__(self, events: list[Event], record: RuntimeRecord) -> None:
        self.events, self.record = events, record
        self.is_ended = record.is_closed
        # Nothing goes on before somebody raises the budget: not what was sent, and not what was allowed.
        self.is_used_up = record.wakes.stop_reason == "budget_reached"

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [event.body for event in self.events if event.type in types]

    def find_problems(self, simulation: Simulation, session: str) -> Iterator[str]:
        budget = simulation.budgets[session]
        yield from self._find_lost_messages(simulation.sent[session])
        yield from self._find_unpaired_calls()
        yield from self._find_overlapping_wakes()
        yield from self._find_used_budgets(budget)
        if not self.is_ended:
            yield from self._find_open_ends()

    def _find_lost_messages(self, sent: list[str]) -> Iterator[str]:
        """Every message that was acknowledged is the input of exactly one wake."""
        # Blocks as a whole: the notes of the runtime may quote a message of another wake.
        inputs = [{block.get("text") for block in body.get("input", ())} for body in self._list_wakes()]
        waits = self.is_ended or self.is_used_up
        for text in sent:
            count = sum(text in given for given in inputs)
            if count != 1 and not (count == 0 and waits):
                yield f"{text} was the input of {count} wakes"

    def _list_wakes(self) -> list[dict[str, Any]]:
        return [body for body in self.of(e.SPAN_STARTED) if body["span_kind"] == "wake"]

    def _find_unpaired_calls(self) -> Iterator[str]:
        """Every call has exactly one result, and every result its call."""
        calls = Counter(body["id"] for body in self.of(e.TOOL_USE, e.CUSTOM_TOOL_USE))
        results = Counter(
            body.get("tool_use_id") or body["custom_tool_use_id"] for body in self.of(e.TOOL_RESULT, e.USER_TOOL_RESULT)
        )
        for call in calls | results:
            is_open = (self.is_ended or self.is_used_up) and not results[call]
            if (calls[call], results[call]) != (1, 1) and not is_open:
                yield f"the call {call} was made {calls[call]} times and has {results[call]} results"

    def _find_overlapping_wakes(self) -> Iterator[str]:
        """A wake ends before the next one begins, once."""
        current = ""
        for event in self.events:
            if event.type not in (e.SPAN_STARTED, e.SPAN_COMPLETED) or event.body["span_kind"] != "wake":
                continue
            wake = event.body["wake_id"]
            if event.type == e.SPAN_STARTED:
                if current:
                    yield f"{wake} began before {current} ended"
                current = wake
            elif current == wake:
                current = ""
            else:
                yield f"{wake} ended, which was not under way"
        if current and not self.is_ended:
            yield f"{current} never ended"

    def _find_used_budgets(self, budget: dict[str, float]) -> Iterator[str]:
        usage = self.record.wakes.usage
        if (most := budget.get("tokens")) and usage.tokens > most + _LARGEST_REQUEST:
            yield f"it has used {usage.tokens} of {most:g} tokens"
        wakes = Counter(
            event.time // DAY_MS for event in self.events if event.type == e.SPAN_STARTED and event.body["span_kind"] == "wake"
        )
        if self.is_used_up and not budget:
            yield "its budget is used up, and it has none"
        most = budget.get("wakes_per_day", 50)
        if wakes and max(wakes.values()) > most:
            yield f"it has had {max(wakes.values())} wakes a day, and its limit is {most:g}"

    def _find_open_ends(self) -> Iterator[str]:
        """Nothing is under way, pending, open or queued, and the status says so."""
        wakes = self.record.wakes
        if self.record.status != "idle":
            yield f"its status is {self.record.status} with the stop reason {wakes.stop_reason!r}"
        left: dict[str, object] = {"current": wakes.current}
        if not self.is_used_up:
            left |= {"pending": wakes.pending, "queued": wakes.queued}
            left |= {"open_calls": wakes.open_calls, "approvals": self.record.approvals}
        for name, value in left.items():
            if value:
                yield f"{name} is {value}"
        if wakes.interrupt_seq > wakes.interrupted_seq:
            yield "an interrupt was not carried out"

    def count_allowed_effects(self) -> Counter[str]:
        """How often the effect of each call may have happened: once, and once more for each repetition a person allowed."""
        tokens, allowed = dict[str, str](), Counter[str]()
        for body in self.of(e.TOOL_USE):
            given = msgspec.json.decode(body["input"]["text"])
            inner = given.get("arguments", given)
            if body.get("problem"):
                continue
            if token := inner.get("content") or inner.get("message") or str(inner.get("command", "")).removeprefix("make "):
                tokens[body["id"]] = str(token)
        repeats = {body["request"] for body in self.of(e.APPROVAL_REQUESTED) if body.get("is_unknown")}
        used = defaultdict[str, list[str]](list)
        for body in self.of(e.APPROVAL_USED):
            used[body["tool_use_id"]].append(body["request"])
        begun = Counter(body["tool_use_id"] for body in self.of(e.SPAN_STARTED) if body["span_kind"] == "tool")
        names = {body["id"]: body["name"] for body in self.of(e.TOOL_USE)}
        for call, token in tokens.items():
            asked = len(used[call])
            first = 1 if names[call] != "shell_run" else asked - sum(request in repeats for request in used[call])
            most = first + sum(request in repeats for request in used[call])
            allowed[token] += min(most, begun[call])
        return allowed
