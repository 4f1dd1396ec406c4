"""Every workflow there is, walked through the tools and by the rules alone, side by side: the same offers, the same record."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.search_path import bundled_root
from fidelio.definitions.models import Workflow
from fidelio.engine.answers import AnswerContext
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
from fidelio.engine.moves import describe_situation
from fidelio.engine.record import STARTED, VARIABLES_SET, EventDraft, Record, decode_record, fold_drafts
from fidelio.engine.state import Refusal
from fidelio.inbox import Inbox
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.settings import Settings
from fidelio.workflows.navigator.moves import draft_first_entry
from tests.dialects.conftest import Player, playing
from tests.dialects.navigator.conftest import Guide
from tests.dialects.navigator.test_offers import calls, moves
from tests.support import proves
from tests.support.shared import advised_copy, shared_workflow_roots
from tests.support.walker import Robot, RobotReport, possible_acts

MOST_MOVES = 2000
ROBOT = MoveActor("agent:robot", "relayed", "relayed")


def walks() -> list[tuple[Path, str, str]]:
    """Every workflow from its first offers; those written for this dialect, and ours, also from the last."""
    roots = [bundled_root().path, *shared_workflow_roots()]
    listed = [(root, entry.id) for root in roots for entry in Library([Root(root, "all")]).list() if not entry.broken]
    own = [one for one in listed if one[0].name in ("bundled", "navigation-generation")]
    return [*((root, name, "first") for root, name in listed), *((root, name, "last") for root, name in own)]


@dataclass
class Level:
    """One workflow of the walk, as the rules alone see it."""

    workflow: Workflow
    record: Record
    robot: Robot
    reports: dict[str, Any] = field(default_factory=dict)
    answers: list[tuple[str, str]] = field(default_factory=list)
    before: Record | None = None

    def apply(self, *drafts: EventDraft) -> None:
        self.record = fold_drafts(self.record, drafts, 0)

    def report(self, values: dict[str, Any]) -> None:
        """All that is reported before a move goes with it in one call, so it counts as one report."""
        self.before = self.record if self.before is None else self.before
        self.reports |= values
        self.record = self.before
        self.apply(EventDraft(VARIABLES_SET, {"variables": self.reports, "by": "agent:robot"}))


class Pair:
    """The robot decides by the rules; the guide does the same through the tools."""

    def __init__(self, play: Player, ledger: Ledger, library: Library, policy: Any) -> None:
        self.guide = Guide(play)
        self._ledger = ledger
        self._library = library
        self._policy = policy
        self.levels: list[Level] = []

    async def walk(self, workflow: str) -> Level:
        """To the end; what the rules alone have come to there."""
        required = [variable.name for variable in self._library.workflow(workflow).variables if variable.required]
        known = dict.fromkeys(required, "what is needed")
        first = self.begin(workflow, known, "agent:robot")
        self.guide.took(await self.guide.play("nav_start", workflow_id=workflow, agent_id="robot", initial_variables=known))
        for _ in range(MOST_MOVES):
            if first.record.status == "completed":
                break
            await self.move()
        return first

    def begin(self, workflow: str, variables: dict[str, Any], by: str) -> Level:
        definition = self._library.workflow(workflow)
        if workflow == "meta":
            definition = definition.model_copy(update={"initial_activity": None})
        about = {"workflow": workflow, "version": definition.version, "definition": "", "variables_by": by}
        level = Level(definition, Record(), Robot(self._policy))
        level.apply(EventDraft(STARTED, {**about, "variables": variables}))
        level.apply(*draft_first_entry(definition, level.record))
        self.levels.append(level)
        return level

    async def move(self) -> None:
        level = self.levels[-1]
        if not level.reports:
            assert self.offers() == expected(level)
        choice = level.robot.choose(level.workflow, level.record)
        assert choice is not None, level.record
        if isinstance(choice, RobotReport):
            level.report(dict(choice.values))
            return
        drafts = apply_move(level.workflow, level.record, choice, AnswerContext(0, relayed=False), ROBOT)
        assert not isinstance(drafts, Refusal), drafts
        level.apply(*drafts)
        level.before = None
        if choice.option:
            level.answers.append((choice.target, choice.option))
        await self.act(choice, level)
        await self.follow()

    def offers(self) -> set[tuple[Any, ...]]:
        """What the tools offer, to a person too, without the resources, of which the rules know nothing."""
        found = [move for person in (False, True) for move in moves(self.guide.last, person=person)]
        made = [call for move in found if move["action"] != "get_resource" for call in calls(move)]
        return {tuple(sorted((key, str(value)) for key, value in call.items() if key != "loop_items")) for call in made}

    async def act(self, act: MoveRequest, level: Level) -> None:
        question = self.guide.last["checkpoint"] or {}
        if question.get("answered_by") == "person" and act.action == "respond_to_checkpoint":
            await self.ask_the_person(act)
            return
        call = arguments(act) | ({"variables": level.reports} if level.reports else {})
        level.reports = {}
        self.guide.expect(await self.guide.do(**call))

    async def ask_the_person(self, act: MoveRequest) -> None:
        await self.guide.play("nav_action", state=self.guide.state, **arguments(act))
        (request,) = (await Inbox(self._ledger).list_requests()).items
        await Inbox(self._ledger).answer(request.id, act.option, by="person:robot", channel="cli")
        await self.guide.look()

    async def follow(self) -> None:
        """The tools go into a child and come back from it; what goes down and comes back is as the ledger has it."""
        place = self.guide.last["position"]["workflow"]
        if self.levels[-1].record.status == "completed" and len(self.levels) > 1:
            self.levels.pop()
            finished = (await self._ledger.events(types=["child.finished"]))[-1]
            self.levels[-1].apply(EventDraft(finished.type, finished.body))
        elif place != self.levels[-1].workflow.id:
            started = (await self._ledger.events(types=["child.started"]))[-1]
            self.levels[-1].apply(EventDraft(started.type, started.body))
            born = next(one for one in await self._ledger.events(started.body["session"]) if one.type == STARTED)
            self.begin(place, born.body["variables"], "parent")


def arguments(act: MoveRequest) -> dict[str, Any]:
    if act.action == "complete_step":
        return {"action": act.action, "step_id": act.target}
    if act.action == "transition":
        return {"action": act.action, "activity_id": act.target}
    if act.action == "advance_loop":
        items = {"loop_items": list(act.items)} if act.items else {}
        return {"action": act.action, "loop_id": act.target, **items}
    how = {"option_id": act.option} if act.action == "respond_to_checkpoint" else {"condition_not_met": True}
    return {"action": "respond_to_checkpoint", "checkpoint_id": act.target, **how}


def expected(level: Level) -> set[tuple[Any, ...]]:
    acts = possible_acts(describe_situation(level.workflow, level.record))
    calls = [{key: value for key, value in arguments(act).items() if key != "loop_items"} for act in acts]
    return {tuple(sorted((key, str(value)) for key, value in call.items())) for call in calls}


def comparable(record: Record) -> dict[str, Any]:
    whole = {name: getattr(record, name) for name in ("status", "variables", "completed", "skipped", "passed", "visits")}
    return {**whole, "set_by": {name: by for name, by in record.set_by.items() if not by.startswith("child:")}}


def answered(body: dict[str, Any]) -> tuple[str, str]:
    return body["key"].partition("/")[2].partition("#")[0], body["option"]


@proves("navigator.every-workflow")
@pytest.mark.parametrize(
    ("root", "name", "policy"), walks(), ids=lambda value: value.name if isinstance(value, Path) else value
)
async def test_the_tools_come_to_the_same_end_as_the_rules_with_the_same_record(
    settings: Settings, tmp_path: Path, root: Path, name: str, policy: str
) -> None:
    root = advised_copy(root, tmp_path)
    settings.home.ensure()
    async with playing(settings, root, dialect="navigator") as play, await open_ledger(settings.ledger) as ledger:
        pair = Pair(play, ledger, Library([Root(root, "all")]), policy)
        by_rules = await pair.walk(name)
        (session, *_) = [one.session for one in await ledger.events(types=[STARTED])]
        record = decode_record((await ledger.session(session)).raw)
        answers = await ledger.events(session, types=["request.answered"])
        await verify_session(ledger, session)

    assert record.status == "completed"
    assert comparable(record) == comparable(by_rules.record)
    assert [answered(one.body) for one in answers if one.body["option"]] == by_rules.answers
