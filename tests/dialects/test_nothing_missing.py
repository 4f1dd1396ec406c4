"""What is left out of a reply because it was given before was given whole, on a walk through a large workflow."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from fidelio.app.application import Application
from fidelio.definitions.library.search_path import bundled_root
from fidelio.settings import Settings
from tests.dialects.conftest import Player
from tests.dialects.test_repeated_texts import UNCHANGED, connect, serving
from tests.support import proves
from tests.support.shared import shared

WORKFLOW = "work-package"
LIBRARIES = [place for place in (bundled_root().path, shared("data", "workflows", "sessions-generation")) if place]
# The walk is about reading: nothing holds it up.
HOLDS = re.compile(r"^\s*(?:- )?fidelity:.*\n|,? ?\banswered_by: person", re.MULTILINE)
# Between a skill and what follows it in a reply.
PART = "\n\n---\n\n"


class TwoReaders:
    """Reads everything twice: over a connection that leaves out what it gave, and over another that gives everything whole."""

    def __init__(self, sparing: Player, generous: Player) -> None:
        self._sparing, self._generous = sparing, generous
        self._given: list[str] = []
        self.token = ""
        self.omitted = 0

    async def move(self, tool: str, **arguments: str) -> None:
        own = {"session_token": self.token} if self.token else {}
        reply = await self._sparing(tool, **own, **arguments)
        self.token = reply.token

    async def read(self, tool: str, **arguments: str) -> bool:
        """Whether there is such a text: the workflows of others name some that are not among them."""
        given = await self._sparing(tool, session_token=self.token, **arguments)
        full = {} if tool == "get_activity" else {"full": True}
        whole = await self._generous(tool, session_token=self.token, **arguments, **full)
        assert given.is_error is whole.is_error, given.text
        if given.is_error:
            return False
        self._compare(_without_token(given.text), _without_token(whole.text))
        self.token = given.token
        return True

    def _compare(self, given: str, whole: str) -> None:
        """Whatever is in the whole reply is in this one, or in one before."""
        assert UNCHANGED in given or given == whole
        self._given.append(given)
        for part in whole.split(PART):
            # Without the lines that name the text; they are in both.
            body = part.partition("\n\n")[2] if part.startswith(("session_token:", "resource_id:")) else part
            self.omitted += body.strip() not in given
            assert any(body.strip() in text for text in self._given), body


def _without_token(text: str) -> str:
    return re.sub(r"^session_token: .*$", "session_token: T", text, flags=re.MULTILINE)


@proves("dialects.sent-once")
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
async def test_nothing_that_is_left_out_was_not_given_before(settings: Settings, library: Path, tmp_path: Path) -> None:
    copy = tmp_path / "library"
    shutil.copytree(library, copy)
    for file in copy.rglob("*.yaml"):
        file.write_text(HOLDS.sub("", file.read_text("utf-8")), "utf-8")
    async with serving(settings, copy) as protocol:
        readers, known = TwoReaders(connect(protocol), connect(protocol)), await Application(settings, [str(copy)]).library()
        await readers.move("start_session", workflow_id=WORKFLOW, agent_id="worker")
        await readers.read("get_skills")
        for activity in known.workflow(WORKFLOW).activities:
            await readers.read("get_workflow")
            await readers.move("next_activity", activity_id=activity.id)
            await readers.read("get_activity")
            for step in activity.steps:
                if not step.skill or not await readers.read("get_skill", step_id=step.id):
                    continue
                skill = known.skill(step.skill, workflow=WORKFLOW, owner=activity.owner).definition
                for resource in skill.resources:
                    await readers.read("get_resource", resource_id=resource)

    assert readers.omitted > 20
