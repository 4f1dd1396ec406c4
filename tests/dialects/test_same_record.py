"""The same choices in all three dialects lead to the same end with the same record, in every workflow that all can lead.

The server leads in `navigator`, so that walk is the score; `sessions` and `gates` play it again, event by event.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.search_path import bundled_root
from fidelio.definitions.models import Activity, Checkpoint, Workflow
from fidelio.engine.record import ANSWERED, COMPLETED, ENTERED, STARTED, STEP_COMPLETED, VARIABLES_SET, Record, decode_record
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import Event
from fidelio.settings import Settings
from fidelio.workflows.report import Report, report_session
from tests.dialects.conftest import Player, ToolReply, playing
from tests.dialects.gates.conftest import person_answers
from tests.dialects.navigator.test_all_workflows import Pair
from tests.support import proves
from tests.support.shared import advised_copy, shared_workflow_roots

MOST_SHARED = 6
Choice = dict[str, Any]
# A report gathers under this name what was said before the first activity.
BEFORE = "Before the first activity"


def readable(root: Path) -> list[tuple[Path, str]]:
    """Without those that begin children by themselves, which only one of the dialects does."""
    library = Library([Root(root, "all")])
    names = [entry.id for entry in library.list() if not entry.broken]
    return [(root, name) for name in names if not any(map(begins_children, library.workflow(name).activities))]


def begins_children(activity: Activity) -> bool:
    return bool(activity.triggers) or any(step.triggers for step in activity.all_steps)


def walks() -> list[tuple[Path, str, str]]:
    """Ours from their first offers and from their last."""
    own = readable(bundled_root().path)
    shared = [one for root in shared_workflow_roots() for one in readable(root)][:MOST_SHARED]
    return [*((*one, "first") for one in (*own, *shared)), *((*one, "last") for one in own)]


class Replay(ABC):
    """Does again what the events say, in another dialect."""

    dialect: str

    def __init__(self, play: Player, settings: Settings, workflow: Workflow) -> None:
        self.play = play
        self.settings = settings
        self._workflow = workflow
        self._done: list[dict[str, str]] = []
        self._known: dict[str, Any] = {}
        self.activity = ""
        self.token = ""

    async def play_all(self, events: Sequence[Event]) -> str:
        """To the end; the id of the session."""
        self.token = await self.play.start(self._workflow.id)
        for event in events:
            await self._play(event.type, event.body)
        return str((await self.play("get_trace", session_token=self.token)).json["traceId"])

    async def _play(self, kind: str, body: dict[str, Any]) -> None:
        if kind == STARTED:
            self._known = body.get("variables", {})
        elif kind in (ENTERED, COMPLETED):
            await self.leave()
            await self._move(body.get("activity", "__terminal__"))
        elif kind == STEP_COMPLETED and not body.get("loop"):
            self._done.append({"step_id": body["step"], "output": "done"})
        elif kind == VARIABLES_SET and self._reports(body["by"]):
            self.took(await self.entered(self.activity, variables=body["variables"]))
        elif kind == ANSWERED:
            name, _, _ = body["key"].partition("/")[2].partition("#")
            chosen = {"option_id": body["option"]} if body["option"] else {"condition_not_met": True}
            checkpoint = self.checkpoint(name)
            # A question for a person that does not apply is not put to them, or they wave it away when the activity is left.
            if body["option"] or checkpoint.answered_by != "person":
                await self.answer(checkpoint, chosen)

    def _reports(self, author: str) -> bool:
        """What a step sets is done by the server where its manifest reports the step. Those of loops are not in ours."""
        activity, _, step = author.removeprefix("step:").partition("/")
        found = self._workflow.activity(activity) if author.startswith("step:") else None
        return author.startswith("agent:") or (found is not None and step not in [one.id for one in found.steps])

    async def _move(self, activity: str) -> None:
        more = {"step_manifest": self._done} if self.activity else {"variables": self._known}
        self.took(await self.entered(activity, **more))
        self.activity, self._done = activity, []

    async def entered(self, activity: str, **more: Any) -> ToolReply:
        return await self.play("next_activity", session_token=self.token, activity_id=activity, **more)

    def took(self, reply: ToolReply) -> None:
        self.token = reply.token

    def checkpoint(self, name: str) -> Checkpoint:
        activity = self._workflow.activity(self.activity)
        assert activity is not None
        return next(one for one in activity.checkpoints if one.id == name)

    @abstractmethod
    async def leave(self) -> None:
        """What the dialect wants before it lets the session go on."""

    @abstractmethod
    async def answer(self, checkpoint: Checkpoint, choice: Choice) -> None: ...


class InSessions(Replay):
    dialect = "sessions"

    async def leave(self) -> None:
        assert (await self.play("get_workflow_status", session_token=self.token)).json["status"] == "active"

    async def answer(self, checkpoint: Checkpoint, choice: Choice) -> None:
        yielded = await self.play("yield_checkpoint", session_token=self.token, checkpoint_id=checkpoint.id)
        assert "already_resolved" not in yielded.json
        if checkpoint.answered_by == "person":
            await person_answers(self.settings, choice["option_id"], checkpoint.id)
        else:
            await self.play("respond_checkpoint", checkpoint_handle=yielded.token, **choice)
        self.took(await self.play("resume_checkpoint", session_token=yielded.token))


class InGates(Replay):
    dialect = "gates"

    async def answer(self, checkpoint: Checkpoint, choice: Choice) -> None:
        if checkpoint.answered_by == "person" and "option_id" in choice:
            await person_answers(self.settings, choice["option_id"], checkpoint.id)
            return
        named = {"session_token": self.token, "checkpoint_id": checkpoint.id}
        self.took(await self.play("respond_checkpoint", **named, **choice))

    async def leave(self) -> None:
        """Everything was asked at the door; what the other dialects never came to is waved away, or answered without effect."""
        if not self.activity:
            return
        for one in (await self.entered(self.activity)).json["pending_checkpoints"]:
            checkpoint = self.checkpoint(one["checkpoint_id"])
            plain = next((option.id for option in checkpoint.options if option.effect is None), checkpoint.options[0].id)
            relayed = checkpoint.answered_by != "person"
            dismissible = relayed and checkpoint.condition is not None and one["condition_holds"] is not True
            await self.answer(checkpoint, {"condition_not_met": True} if dismissible else {"option_id": plain})


async def walked(settings: Settings, root: Path, name: str, policy: str) -> tuple[str, list[Event]]:
    """The session that the server has led through, and its events."""
    settings.home.ensure()
    async with playing(settings, root, dialect="navigator") as play, await open_ledger(settings.ledger) as ledger:
        await Pair(play, ledger, Library([Root(root, "all")]), policy).walk(name)
        (born,) = await ledger.events(types=[STARTED])
        return born.session, [event async for event in every_event(ledger, born.session)]


async def every_event(ledger: Ledger, session: str) -> AsyncIterator[Event]:
    after = 0
    while events := await ledger.events(session, after=after):
        for event in events:
            yield event
        after = events[-1].seq


async def replayed(kind: type[Replay], settings: Settings, root: Path, name: str, events: list[Event]) -> str:
    async with playing(settings, root, dialect=kind.dialect) as play:
        return await kind(play, settings, Library([Root(root, "all")]).workflow(name)).play_all(events)


async def told(settings: Settings, session: str) -> tuple[Record, Report]:
    async with await open_ledger(settings.ledger) as ledger:
        await verify_session(ledger, session)
        return decode_record((await ledger.session(session)).raw), await report_session(ledger, session)


def answers(report: Report) -> list[tuple[str, dict[str, str]]]:
    """The visits in order, each with the option that every question of it got."""
    visits = (visit for visit in report.visits if visit.name != BEFORE)
    return [(visit.activity, {one.checkpoint: one.option for one in visit.answers if one.option}) for visit in visits]


@proves("gates.same-record")
@pytest.mark.parametrize(
    ("root", "name", "policy"), walks(), ids=lambda value: value.name if isinstance(value, Path) else value
)
async def test_the_same_choices_lead_to_the_same_record_in_every_dialect(
    settings: Settings, tmp_path: Path, root: Path, name: str, policy: str
) -> None:
    root = advised_copy(root, tmp_path)
    async with asyncio.timeout(300):
        led, events = await walked(settings, root, name, policy)
        others = [await replayed(kind, settings, root, name, events) for kind in (InSessions, InGates)]
    (record, report), *found = [await told(settings, session) for session in (led, *others)]

    assert record.status == "completed"
    assert report.completed
    for other, other_report in found:
        assert (other.status, other_report.completed) == (record.status, True)
        assert other.completed == record.completed
        assert {name: other.variables.get(name) for name in record.variables} == record.variables
        # What more was set was set by answers to what the others never came to.
        assert all(other.set_by[name].startswith("checkpoint:") for name in other.variables.keys() - record.variables.keys())
    assert found[0][0].variables.keys() == record.variables.keys()
    by_sessions, by_gates = (answers(one) for _, one in found)
    assert by_sessions == answers(report)
    assert [visit for visit, _ in by_gates] == [visit for visit, _ in by_sessions]
    # An activity that asks at its door asks at least what the others came to.
    for (_, asked), (_, reached) in zip(by_gates, by_sessions, strict=True):
        assert reached.items() <= asked.items()
