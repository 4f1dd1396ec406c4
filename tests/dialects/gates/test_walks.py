"""Every workflow of the matching generation, walked by the same agent in both dialects to the same end with the same record."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.search_path import bundled_root
from fidelio.definitions.models import Activity, Checkpoint
from fidelio.engine.record import Record, decode_record
from fidelio.ledger import open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.settings import Settings
from fidelio.workflows.report import Report, report_session
from tests.dialects.conftest import Player, ToolReply, playing
from tests.dialects.gates.conftest import person_answers
from tests.dialects.gates.test_dialect_switch import comparable
from tests.support import proves
from tests.support.shared import advised_copy, shared_workflow_roots

MOST_MOVES = 40


def workflows() -> list[tuple[Path, str]]:
    roots = [bundled_root().path, *(root for root in shared_workflow_roots() if root.name == "gates-generation")]
    return [(root, entry.id) for root in roots for entry in Library([Root(root, "all")]).list() if not entry.broken]


class Agent(ABC):
    """Does what is written and answers every required question: with the last option and by the last way on, or the first."""

    def __init__(self, play: Player, settings: Settings, library: Library, *, last: bool) -> None:
        self.play = play
        self.settings = settings
        self._library = library
        self._which = -1 if last else 0
        self.token = ""

    async def walk(self, workflow: str) -> str:
        """To the end; the id of the session."""
        self.token = await self.play.start(workflow)
        definition = self._library.workflow(workflow)
        target, done = definition.initial_activity or definition.activities[self._which].id, list[dict[str, str]]()
        for _ in range(MOST_MOVES):
            await self._move(target, done)
            activity = definition.activity(target)
            if activity is None:
                break
            await self.work(activity)
            done = [{"step_id": step.id, "output": "done"} for step in activity.steps]
            target = self._way_on(await self.ways(activity))
        else:
            await self._move("__terminal__", done)
        return str((await self.play("get_trace", session_token=self.token)).json["traceId"])

    async def _move(self, target: str, done: list[dict[str, str]]) -> None:
        moved = await self.play("next_activity", session_token=self.token, activity_id=target, step_manifest=done)
        self.token = moved.token

    def _way_on(self, ways: list[dict[str, Any]]) -> str:
        possible = [str(way["to"]) for way in ways if way["holds"] is not False]
        return possible[self._which] if possible else "__terminal__"

    def option(self, checkpoint: Checkpoint) -> str:
        return checkpoint.options[self._which].id

    @abstractmethod
    async def work(self, activity: Activity) -> None: ...

    @abstractmethod
    async def ways(self, activity: Activity) -> list[dict[str, Any]]: ...


class WithSessions(Agent):
    async def work(self, activity: Activity) -> None:
        assert not (await self.play("get_activity", session_token=self.token)).is_error
        for checkpoint in activity.checkpoints:
            if checkpoint.required:
                await self._ask(checkpoint)
        for step in activity.steps:
            if step.skill:
                await self.play("get_skill", session_token=self.token, step_id=step.id)

    async def _ask(self, checkpoint: Checkpoint) -> None:
        yielded = await self.play("yield_checkpoint", session_token=self.token, checkpoint_id=checkpoint.id)
        if checkpoint.answered_by == "person":
            await person_answers(self.settings, self.option(checkpoint), checkpoint.id)
            self.token = yielded.token
        else:
            handle, option = yielded.json["checkpoint_handle"], self.option(checkpoint)
            self.token = (await self.play("respond_checkpoint", checkpoint_handle=handle, option_id=option)).token

    async def ways(self, activity: Activity) -> list[dict[str, Any]]:
        status = (await self.play("get_workflow_status", session_token=self.token)).json
        assert status["current_activity"] == activity.id
        found: list[dict[str, Any]] = status["transitions"]
        return found


class WithGates(Agent):
    async def work(self, activity: Activity) -> None:
        for checkpoint in await self._pending(activity):
            await self._answer(checkpoint)
        for step in activity.steps:
            if step.skill:
                await self._read(step.id)

    async def _answer(self, checkpoint: Checkpoint) -> None:
        if checkpoint.answered_by == "person":
            await person_answers(self.settings, self.option(checkpoint), checkpoint.id)
            return
        named = {"session_token": self.token, "checkpoint_id": checkpoint.id}
        self.token = (await self.play("respond_checkpoint", **named, option_id=self.option(checkpoint))).token

    async def _read(self, step: str) -> None:
        skill = await self.play("get_skill", session_token=self.token, step_id=step)
        if skill.is_error:
            # Files that others wrote name skills that are not there; the refusal says so and the walk goes on.
            assert "not found" in skill.text
            return
        for resource in skill.json["skill"].get("_resources", []):
            read = await self.play("get_resource", session_token=self.token, resource_index=resource["index"])
            assert read.json["resource"]["id"] == resource["id"]

    async def _pending(self, activity: Activity) -> list[Checkpoint]:
        again = await self._looked(activity)
        questions = {one.id: one for one in activity.checkpoints}
        found = [questions[one["checkpoint_id"]] for one in again.json["pending_checkpoints"]]
        assert found == [one for one in activity.checkpoints if one.required]
        return found

    async def ways(self, activity: Activity) -> list[dict[str, Any]]:
        again = await self._looked(activity)
        assert again.json["pending_checkpoints"] == []
        found: list[dict[str, Any]] = again.meta["transitions"]
        return found

    async def _looked(self, activity: Activity) -> ToolReply:
        """Entering the current activity again moves nothing and shows where the session stands."""
        return await self.play("next_activity", session_token=self.token, activity_id=activity.id)


def essence(record: Record) -> dict[str, Any]:
    """What a record says about the way and its outcome."""
    names = ("status", "workflow", "version", "visits", "variables", "set_by", "completed", "skipped", "passed")
    # Only `sessions` warns of workflows that were not started, so the warnings are not counted here.
    reported = {name: (summary.visit, summary.steps) for name, summary in record.reported.items()}
    return {"reported": reported, **{name: getattr(record, name) for name in names}}


async def walked(kind: type[Agent], settings: Settings, root: Path, name: str, *, last: bool) -> tuple[Record, Report]:
    dialect = "gates" if kind is WithGates else "sessions"
    async with asyncio.timeout(120), playing(settings, root, dialect=dialect) as play:
        session = await kind(play, settings, Library([Root(root, "all")]), last=last).walk(name)
    async with await open_ledger(settings.ledger) as ledger:
        await verify_session(ledger, session)
        return decode_record((await ledger.session(session)).raw), await report_session(ledger, session)


@proves("gates.every-workflow", "gates.report")
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(("root", "name"), workflows(), ids=lambda value: value.name if isinstance(value, Path) else value)
async def test_both_dialects_lead_to_the_same_end_with_the_same_record(
    settings: Settings, tmp_path: Path, root: Path, name: str, last: bool
) -> None:
    root = advised_copy(root, tmp_path)
    by_sessions, told_by_sessions = await walked(WithSessions, settings, root, name, last=last)
    by_gates, told_by_gates = await walked(WithGates, settings, root, name, last=last)

    assert by_gates.status == "completed"
    assert by_gates.completed
    assert essence(by_gates) == essence(by_sessions)
    assert comparable(told_by_gates) == comparable(told_by_sessions)
