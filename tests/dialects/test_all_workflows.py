"""Every workflow there is, bundled or written by others, carried out through the tools to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.search_path import bundled_root
from fidelio.definitions.models import Activity, Checkpoint
from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.settings import Settings
from tests.dialects.conftest import Player, ToolReply, playing
from tests.support import proves
from tests.support.shared import advised_copy, shared_workflow_roots

MOST_MOVES = 60


def workflows() -> list[tuple[Path, str]]:
    roots = [bundled_root().path, *shared_workflow_roots()]
    return [(root, entry.id) for root in roots for entry in Library([Root(root, "all")]).list() if not entry.broken]


class Walker:
    """An agent that does what is written: `last` takes the last option of every question, else the first."""

    def __init__(self, play: Player, settings: Settings, library: Library, *, last: bool) -> None:
        self._play = play
        self._settings = settings
        self._library = library
        self._last = last
        self.token = ""

    async def walk(self, workflow: str) -> str:
        """To the end; the id of the session."""
        self.token = await self._play.start(workflow)
        session = str((await self._play("get_trace", session_token=self.token)).json["traceId"])
        for _ in range(MOST_MOVES):
            target = await self._way_on()
            if target == "__terminal__":
                break
            if await self._enter(workflow, target):
                return session
        await self._move("__terminal__", [])
        return session

    async def _way_on(self) -> str:
        status = (await self._play("get_workflow_status", session_token=self.token)).json
        open_ways = [way["to"] for way in status["transitions"] if way["holds"] is not False]
        return open_ways[-1 if self._last else 0] if open_ways else "__terminal__"

    async def _enter(self, workflow: str, target: str) -> bool:
        """Whether that was the end."""
        if (await self._move(target, [])).json["status"] == "completed":
            return True
        read = await self._play("get_activity", session_token=self.token)
        assert not read.is_error, read.text
        activity = self._library.activity(workflow, target)
        for step in activity.steps:
            await self._ask(activity, step.checkpoint)
        for name in dict.fromkeys(step.checkpoint for step in activity.loop_steps):
            # It does not say what its loops go over, so people are asked about them once.
            if any(one.id == name and one.answered_by == "person" for one in activity.checkpoints):
                await self._ask(activity, name)
        return False

    async def _ask(self, activity: Activity, name: str | None) -> None:
        checkpoint = next((one for one in activity.checkpoints if one.id == name), None)
        if checkpoint is None:
            return
        yielded = (await self._play("yield_checkpoint", session_token=self.token, checkpoint_id=checkpoint.id)).json
        if not yielded.get("already_resolved"):
            await self._answer(checkpoint, yielded)
        self.token = (await self._play("resume_checkpoint", session_token=self.token)).token

    async def _answer(self, checkpoint: Checkpoint, yielded: dict[str, str]) -> None:
        option = checkpoint.options[-1 if self._last else 0].id
        if checkpoint.answered_by == "person":
            async with await open_ledger(self._settings.ledger) as ledger:
                await Inbox(ledger).answer(yielded["request_id"], option, by="person:test", channel="cli")
        else:
            answered = await self._play("respond_checkpoint", checkpoint_handle=yielded["checkpoint_handle"], option_id=option)
            assert answered.json["resolved_option"] == option

    async def _move(self, target: str, manifest: list[dict[str, str]]) -> ToolReply:
        moved = await self._play("next_activity", session_token=self.token, activity_id=target, step_manifest=manifest)
        self.token = moved.token
        return moved


@proves("sessions.every-workflow")
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(("root", "name"), workflows(), ids=lambda value: value.name if isinstance(value, Path) else value)
async def test_it_is_carried_out_through_the_tools_and_its_record_verifies(
    settings: Settings, tmp_path: Path, root: Path, name: str, last: bool
) -> None:
    root = advised_copy(root, tmp_path)
    async with playing(settings, root) as play:
        session = await Walker(play, settings, Library([Root(root, "all")]), last=last).walk(name)
        status = (await play("get_workflow_status", session_token=session)).json
    async with await open_ledger(settings.ledger) as ledger:
        verdict = await verify_session(ledger, session)

    assert status["status"] == "completed"
    assert status["completed_activities"]
    assert verdict.events > 4
