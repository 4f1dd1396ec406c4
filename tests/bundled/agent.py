"""An honest agent over the real tools: it does what is written and reports what it was asked to find out, no more.

What it finds out and what people answer is given to it beforehand, each as a row of values of which the last one stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fidelio.definitions import TERMINAL
from fidelio.definitions.conditions import holds
from fidelio.definitions.models import Activity, Checkpoint, Loop, Step
from fidelio.engine.scope import add_defaults
from fidelio.engine.transitions import list_outgoing_transitions
from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.bundled.reading import workflow
from tests.dialects.conftest import Player, ToolReply

MOST_VISITS = 60
Rows = Mapping[str, Sequence[Any]]


@dataclass
class Life:
    """What happens while one workflow is carried out. `children` are the lives of the workflows that it starts, in order."""

    answers: Rows = field(default_factory=dict)
    finds: Rows = field(default_factory=dict)
    begins_with: Mapping[str, Any] = field(default_factory=dict)
    children: Sequence[Life] = ()


class Agent:
    """Carries out one session. `visits` are the activities that it was in, `children` the agents of the sessions it started."""

    def __init__(self, play: Player, settings: Settings, name: str, life: Life) -> None:
        self._play, self._settings, self._life, self._workflow = play, settings, life, workflow(name)
        self._rows: dict[str, Iterator[Any]] = {}
        self._manifest: list[dict[str, str]] = []
        self._found: dict[str, Any] = {}
        self._bound: dict[str, Any] = {}
        self._forced = ""
        self.token = ""
        self.visits: list[str] = []
        self.children: list[Agent] = []

    async def walk(self, *, most: int = MOST_VISITS, **more: Any) -> Mapping[str, Any]:
        """From the beginning to the end, or until so many visits are done and not yet left; the status of the session then."""
        self.token = (await self._play("start_session", workflow_id=self._workflow.id, **more)).token
        target, self._found = self._workflow.initial_activity or "", dict(self._life.begins_with)
        for _ in range(most):
            await self._move(target)
            if target == TERMINAL:
                break
            self.visits.append(target)
            target = await self._carry_out(target)
        return await self.status()

    async def status(self) -> Mapping[str, Any]:
        return dict((await self._play("get_workflow_status", session_token=self.token)).json)

    async def _carry_out(self, name: str) -> str:
        """Does an activity; where the way leads then."""
        activity = self._workflow.activity(name)
        assert activity is not None
        await self._do(activity, activity.steps)
        for loop in activity.loops:
            await self._repeat(activity, loop)
        values = await self._known()
        for edge in list_outgoing_transitions(activity):
            if not self._forced and edge.condition is not None and holds(edge.condition, values):
                return edge.to
        return self._forced or next((edge.to for edge in list_outgoing_transitions(activity) if edge.default), TERMINAL)

    async def _repeat(self, activity: Activity, loop: Loop) -> None:
        items = list((await self._known())[loop.over]) if loop.over else [None] * loop.max_iterations
        for number, item in enumerate(items):
            first = number == 0 and loop.type == "doWhile"
            if self._forced or not (first or holds(loop.condition, await self._known())):
                return
            self._bound = {loop.variable: item} if loop.variable else {}
            await self._do(activity, loop.steps)
            self._bound = {}
            if loop.break_condition is not None and holds(loop.break_condition, await self._known()):
                return

    async def _do(self, activity: Activity, steps: Sequence[Step]) -> None:
        for step in steps:
            if self._forced or holds(step.condition, await self._known()) is False:
                continue
            await self._ask(next((one for one in activity.checkpoints if one.id == step.checkpoint), None))
            wanted = [act.target for act in step.actions if act.action == "set" and act.value is None and act.target]
            self._found |= {name: self._next(self._life.finds, name) for name in wanted}
            self._manifest.append({"step_id": step.id, "output": f"Did {step.id}."})
            for trigger in step.triggers:
                await self._start(activity, trigger.workflow)

    async def _start(self, activity: Activity, name: str) -> None:
        kept, self._manifest = self._manifest, []
        await self._move(activity.id)
        self._manifest = kept
        child = Agent(self._play, self._settings, name, self._life.children[len(self.children)])
        self.children.append(child)
        await child.walk(parent_session_token=self.token)

    async def _ask(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None or holds(checkpoint.condition, await self._known()) is False:
            return
        yielded = (await self._call("yield_checkpoint", checkpoint_id=checkpoint.id, variables=self._found)).json
        self._found, option = {}, self._next(self._life.answers, checkpoint.id)
        if checkpoint.answered_by == "person":
            async with await open_ledger(self._settings.ledger) as ledger:
                await Inbox(ledger).answer(yielded["request_id"], option, by="person:test", channel="cli")
        else:
            passed = await self._play("respond_checkpoint", checkpoint_handle=yielded["checkpoint_handle"], option_id=option)
            assert not passed.is_error, passed.text
        self._forced = (await self._call("resume_checkpoint")).json["effect"].get("transitionTo", "")

    async def _move(self, target: str) -> None:
        manifest = {"step_manifest": self._manifest} if self._manifest else {}
        await self._call("next_activity", activity_id=target, variables=self._found, **manifest)
        self._manifest, self._found, self._forced = [], {}, ""

    async def _call(self, tool: str, **arguments: Any) -> ToolReply:
        reply = await self._play(tool, session_token=self.token, **arguments)
        assert (reply.is_error, reply.warnings) == (False, []), f"{tool} {arguments}"
        self.token = reply.token
        return reply

    async def _known(self) -> dict[str, Any]:
        reported = (await self.status())["variables"]
        return {**add_defaults(self._workflow, {**reported, **self._found}), **self._bound}

    def _next(self, rows: Rows, name: str) -> Any:
        row = self._rows.setdefault(name, iter(rows[name]))
        return next(row, rows[name][-1])
