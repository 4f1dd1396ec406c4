"""What a closed child gives back: the rule over random families, and the events of real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fidelio.errors import SequenceConflict
from fidelio.ledger import Ledger
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Change, CommitResult, Session
from fidelio.ledger.redaction import EventView
from fidelio.providers.model import ModelInfo, ModelReply, ModelRequest, Price
from fidelio.runtime import events as e
from fidelio.runtime.closing import return_share
from fidelio.runtime.delegation.rules import BudgetMember, find_unused, plan_returns
from fidelio.runtime.wakes.record import SHARED_LIMITS, WAKE_FOLDS, UsageTotals, WakeRecord
from tests.runtime.wakes.support import Runtime, open_runtime, results_of, say, texts_of, use
from tests.support import proves

LIMITS = {"tokens": 1_000.0, "usd": 5.0, "wall_seconds": 900.0}
PERSON = "person:test"


class Family:
    """A family whose first session has the limits. Changes go through the folds of the record."""

    def __init__(self) -> None:
        self.wakes, self.parents = {"0": WakeRecord()}, dict[str, str]()
        self.shares: dict[str, dict[str, float]] = {"0": LIMITS}
        self.closed: set[str] = set()
        self.returned = dict[str, dict[str, float]]()

    def fold(self, session: str, type_: str, body: dict[str, object]) -> None:
        self.wakes[session] = WAKE_FOLDS[type_](self.wakes[session], EventView(1, type_, 0, body))

    def find_rest(self, session: str) -> dict[str, float]:
        return {} if session in self.closed else find_unused(self.shares[session], self.wakes[session])

    def delegate(self, parent: str) -> None:
        rest = self.find_rest(parent)
        child, share = str(len(self.wakes)), {name: round(value / 2, SHARED_LIMITS[name]) for name, value in rest.items()}
        if parent in self.closed or len(list(self.walk_up(parent))) > 3:
            return
        self.wakes[child], self.parents[child], self.shares[child] = WakeRecord(), parent, share
        self.returned[child] = {}
        self.fold(parent, e.CHILD_CREATED, {"childSessionId": child, "budget": share})

    def use(self, session: str, part: float) -> None:
        """Use a part of what is left of each limit; of more than 1, more than there is."""
        if session in self.closed:
            return
        rest, usage = self.find_rest(session), self.wakes[session].usage
        more = UsageTotals(
            output_tokens=usage.output_tokens + int(rest.get("tokens", 0) * part),
            cost_micros=usage.cost_micros + int(rest.get("usd", 0) * 1_000_000 * part),
            active_ms=usage.active_ms + int(rest.get("wall_seconds", 0) * 1_000 * part),
        )
        self.wakes[session] = replace(self.wakes[session], usage=more)

    def walk_up(self, session: str) -> Iterator[str]:
        yield session
        while session in self.parents:
            session = self.parents[session]
            yield session

    def close(self, session: str) -> tuple[dict[str, float], ...]:
        if session == "0":
            return ()
        self.closed.add(session)
        line = list(self.walk_up(session))
        amounts = plan_returns([BudgetMember(name, self.shares[name], self.wakes[name]) for name in line])
        for child, parent, amount in zip(line, line[1:], amounts, strict=False):
            reserved = self.wakes[parent].reserved
            assert all(0 < value <= reserved[name] for name, value in amount.items()), "more came back than was reserved"
            self.fold(parent, e.CHILD_BUDGET_RETURNED, {"childSessionId": child, "budget": amount})
            for name, value in amount.items():
                self.returned[child][name] = self.returned[child].get(name, 0) + value
        return amounts

    def total(self, name: str) -> float:
        """What all have used, and what those that are open may still use."""
        used = sum(_used(wakes)[name] for wakes in self.wakes.values())
        return used + sum(self.find_rest(session).get(name, 0) for session in self.wakes)


def _used(wakes: WakeRecord) -> dict[str, float]:
    usage = wakes.usage
    return {"tokens": usage.tokens, "usd": usage.cost_micros / 1_000_000, "wall_seconds": usage.active_ms / 1000}


steps = st.lists(st.tuples(st.sampled_from(["delegate", "delegate", "use", "close"]), st.integers(0, 12), st.floats(0, 1)))


def carry_out(family: Family, step: tuple[str, int, float], *, most: float = 1) -> None:
    kind, number, part = step
    session = str(number % len(family.wakes))
    if kind == "delegate":
        family.delegate(session)
    elif kind == "use":
        family.use(session, part * most)
    else:
        family.close(session)


@proves("runtime.child-returns")
@given(steps)
def test_what_a_family_has_used_and_may_still_use_is_always_the_limit_of_its_first_session(
    steps: list[tuple[str, int, float]],
) -> None:
    family = Family()
    for step in steps:
        carry_out(family, step)
        for name, limit in LIMITS.items():
            assert family.total(name) == pytest.approx(limit, abs=1e-6)


@proves("runtime.child-returns")
@given(steps)
def test_no_child_returns_more_than_its_share_even_if_it_has_used_too_much(steps: list[tuple[str, int, float]]) -> None:
    family = Family()
    for step in steps:
        carry_out(family, step, most=3)
    for child in sorted(family.wakes, reverse=True):
        family.close(child)

    for child, returned in family.returned.items():
        spent = {name: family.shares[child].get(name, 0) - value for name, value in returned.items()}
        assert all(value >= -1e-6 for value in spent.values())
        used = _used(family.wakes[child])
        assert all(used[name] <= value + 1e-6 for name, value in spent.items()), "what was used came back"


@proves("runtime.child-returns")
@given(steps, st.integers(0, 12))
def test_a_child_that_is_closed_again_returns_nothing(steps: list[tuple[str, int, float]], number: int) -> None:
    family = Family()
    for step in steps:
        carry_out(family, step)
    session = str(number % len(family.wakes))
    family.close(session)

    assert family.close(session) == ()


@proves("runtime.child-returns")
def test_a_grandchild_of_a_closed_child_returns_its_rest_to_the_first_session() -> None:
    family = Family()
    family.delegate("0")
    family.delegate("1")
    family.use("2", 0.5)
    family.close("1")
    assert family.wakes["0"].reserved["tokens"] == family.shares["2"]["tokens"] == 250

    to_child, to_first = family.close("2")

    assert to_child == to_first
    assert to_first["tokens"] == 125
    assert family.wakes["0"].reserved["tokens"] == 125


@proves("runtime.child-returns")
def test_limits_that_are_off_return_nothing() -> None:
    child = BudgetMember("child", {"tokens": 0, "wall_seconds": 0}, WakeRecord())

    assert plan_returns([child, BudgetMember("first", {}, WakeRecord())]) == ()


def delegate_once(request: ModelRequest) -> ModelReply:
    """The first session delegates a part; everybody else is done at once."""
    is_first = "Work with others." in texts_of(request) and not results_of(request)
    return use(("session_delegate", {"message": "Do a part."})) if is_first else say("Done.", {"outcome": "sleep"})


async def begin_family(runtime: Runtime) -> tuple[str, str]:
    session = await runtime.begin(limits={"tokens": 100_000, "wall_seconds": 1_000})
    await runtime.tell(session, "Work with others.")
    await runtime.work()
    page = await runtime.ledger.sessions(kind="runtime", parent=session, limit=5)
    (child,) = page.items
    return session, child.id


@proves("runtime.child-returns")
@pytest.mark.parametrize("closing", ["end_session", "archive_session"])
async def test_a_closed_child_returns_what_it_has_not_used(tmp_path: Path, closing: str) -> None:
    async with open_runtime(tmp_path, delegate_once, info=ModelInfo(price=Price(input=1.0, output=1.0))) as runtime:
        session, child = await begin_family(runtime)
        share, wakes = (await runtime.record(child)).budget, (await runtime.record(child)).wakes
        used = {"tokens": wakes.usage.tokens, "usd": wakes.usage.cost_micros / 1_000_000}
        await getattr(runtime.service, closing)(child, by=PERSON)

        (event,) = await runtime.events(session, e.CHILD_BUDGET_RETURNED)
        assert used["tokens"] > 0
        assert event.body["budget"]["tokens"] == share["tokens"] - used["tokens"]
        assert event.body["budget"]["usd"] == pytest.approx(share["usd"] - used["usd"], abs=1e-6)
        assert (event.body["childSessionId"], event.actor) == (child, PERSON)
        assert (await runtime.record(session)).wakes.reserved["tokens"] == used["tokens"]


@proves("runtime.child-returns")
async def test_a_child_that_is_archived_then_ended_then_deleted_returns_once(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, delegate_once) as runtime:
        session, child = await begin_family(runtime)
        await runtime.service.archive_session(child, by=PERSON)
        reserved = (await runtime.record(session)).wakes.reserved
        await runtime.service.end_session(child, by=PERSON)
        await runtime.service.delete_session(child, by=PERSON, reason="test")

        assert len(await runtime.events(session, e.CHILD_BUDGET_RETURNED)) == 1
        assert (await runtime.record(session)).wakes.reserved == reserved


@proves("runtime.child-returns")
async def test_a_share_that_a_person_raised_returns_no_more_than_it_was(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, delegate_once) as runtime:
        session, child = await begin_family(runtime)
        share = (await runtime.record(child)).budget["tokens"]
        await runtime.service.set_budget(child, {"tokens": 10_000_000}, by=PERSON)
        used = (await runtime.record(child)).wakes.usage.tokens
        await runtime.service.end_session(child, by=PERSON)

        (event,) = await runtime.events(session, e.CHILD_BUDGET_RETURNED)
        assert event.body["budget"]["tokens"] == share - used


@proves("runtime.child-returns")
async def test_a_child_that_ends_at_work_returns_its_rest_after_its_wake(tmp_path: Path) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def reply(request: ModelRequest) -> ModelReply:
        if "Think." in texts_of(request):
            reached.set()
            await go_on.wait()
        return delegate_once(request)

    async with open_runtime(tmp_path, reply) as runtime:
        session, child = await begin_family(runtime)
        await runtime.tell(child, "Think.")
        assignment = await runtime.claim()
        working = asyncio.create_task(runtime.run(assignment))
        async with asyncio.timeout(20):
            await reached.wait()
            runtime.clock.now += 60_000
            await runtime.service.end_session(child, by=PERSON)
            assert await runtime.events(session, e.CHILD_BUDGET_RETURNED) == ()
            go_on.set()
            await working

        (event,) = await runtime.events(session, e.CHILD_BUDGET_RETURNED)
        record = await runtime.record(child)
        assert record.wakes.usage.active_ms >= 60_000, "the wake that was cut off has worked for a minute"
        assert event.body["budget"]["wall_seconds"] == record.share["wall_seconds"] - record.wakes.usage.active_ms / 1000


@proves("runtime.child-returns")
async def test_the_rest_of_a_child_whose_worker_died_comes_back_with_the_next_worker(tmp_path: Path) -> None:
    async def reply(request: ModelRequest) -> ModelReply:
        if "Think." in texts_of(request):
            raise asyncio.CancelledError
        return delegate_once(request)

    async with open_runtime(tmp_path, reply) as runtime:
        session, child = await begin_family(runtime)
        await runtime.tell(child, "Think.")
        with pytest.raises(asyncio.CancelledError):
            await runtime.run(await runtime.claim())
        await runtime.service.end_session(child, by=PERSON)
        assert await runtime.events(session, e.CHILD_BUDGET_RETURNED) == ()
        runtime.clock.now += 60_000
        lease = await runtime.ledger.claim("another", ("runtime.wake",), lease_ms=30_000, session=child)
        assert lease is not None
        await runtime.run(Assignment(runtime.ledger, lease))

        assert len(await runtime.events(session, e.CHILD_BUDGET_RETURNED)) == 1


@proves("runtime.child-returns")
async def test_a_deleted_child_returns_what_it_has_left(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, delegate_once) as runtime:
        session, child = await begin_family(runtime)
        await runtime.service.delete_session(child, by=PERSON, reason="test")

        assert len(await runtime.events(session, e.CHILD_BUDGET_RETURNED)) == 1
        await return_share(runtime.context, child)
        assert len(await runtime.events(session, e.CHILD_BUDGET_RETURNED)) == 1


@proves("runtime.child-returns")
async def test_children_that_are_closed_at_once_lose_nothing(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> ModelReply:
        is_first = "Work with others." in texts_of(request) and not results_of(request)
        parts = [("session_delegate", {"message": "Do a part."})] * 4
        return use(*parts) if is_first else say("Done.", {"outcome": "sleep"})

    async with open_runtime(tmp_path, reply) as runtime:
        session = await runtime.begin(limits={"tokens": 400_000})
        await runtime.tell(session, "Work with others.")
        await runtime.work()
        children = [found.id for found in (await runtime.ledger.sessions(kind="runtime", parent=session, limit=9)).items]
        async with asyncio.TaskGroup() as tasks:
            for child in (*children, *children):
                tasks.create_task(runtime.service.end_session(child, by=PERSON))

        used = sum([(await runtime.record(child)).wakes.usage.tokens for child in children])
        assert (await runtime.record(session)).wakes.reserved["tokens"] == used
        assert sorted(
            event.body["childSessionId"] for event in await runtime.events(session, e.CHILD_BUDGET_RETURNED)
        ) == sorted(children)


@proves("runtime.child-returns")
async def test_a_parent_that_stopped_at_its_budget_goes_on_with_what_comes_back(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, delegate_once) as runtime:
        session, child = await begin_family(runtime)
        wakes = (await runtime.record(session)).wakes
        limit = wakes.usage.tokens + wakes.reserved["tokens"]
        await runtime.service.set_budget(session, {"tokens": limit}, by=PERSON)
        await runtime.tell(session, "Now the rest.")
        await runtime.work()
        assert (await runtime.record(session)).wakes.stop_reason == "budget_reached"
        await runtime.service.end_session(child, by=PERSON)
        await runtime.work()

        record = await runtime.record(session)
        assert (record.wakes.stop_reason, record.wakes.pending) == ("end_turn", 0)


@proves("runtime.child-returns")
async def test_closing_and_returning_are_a_single_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_runtime(tmp_path, delegate_once) as runtime:
        session, child = await begin_family(runtime)
        commit, changed = type(runtime.ledger).commit, list[set[str]]()

        async def record_commit(ledger: Ledger, *changes: Change) -> tuple[CommitResult, ...]:
            changed.append({change.session for change in changes})
            if len(changed) == 1:
                raise SequenceConflict(child, 1, 2)
            return await commit(ledger, *changes)

        monkeypatch.setattr(type(runtime.ledger), "commit", record_commit)
        await runtime.service.end_session(child, by=PERSON)

        assert changed == [{session, child}, {session, child}]
        assert (await runtime.record(child)).status == "terminated"


@proves("runtime.archive-dismisses")
async def test_a_session_that_is_archived_before_its_wake_begins_has_no_wake(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Go.")
        assignment = await runtime.claim()
        load, loads = type(runtime.ledger).session, list[str]()

        async def archive_after_load(ledger: Ledger, name: str) -> Session:
            found = await load(ledger, name)
            loads.append(name)
            if loads == [session]:
                await runtime.service.archive_session(session, by=PERSON)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(runtime.ledger), "session", archive_after_load)
            await runtime.run(assignment)

        assert runtime.requests == []
        assert (await runtime.record(session)).wakes.count == 0
