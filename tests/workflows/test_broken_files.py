"""Files that cannot be read: what the rest of the workflow still gives, and who is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.settings import Settings
from tests.dialects.conftest import playing
from tests.support import proves

PLAY = "Activity 'play' is left out: 02-play.yaml, line 4: "
CONDUCT = "Skill 'conduct' is left out: 01-conduct.yaml, line 1: "


@pytest.fixture(autouse=True)
def spoilt(library: Path) -> None:
    (library / "score/activities/02-play.yaml").write_text("id: play\nname: Play\nstps: [\n")
    (library / "score/skills/01-conduct.yaml").write_text("id: conduct\n")


def told(warnings: list[str], library: Path) -> list[str]:
    """How the warnings begin. None says where on this machine the library lies."""
    assert str(library) not in "".join(warnings)
    return [next((known for known in (PLAY, CONDUCT) if warning.startswith(known)), warning) for warning in warnings]


@proves("sessions.broken-files")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_the_rest_is_served_and_what_is_missing_is_named(settings: Settings, library: Path, dialect: str) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        started = await play("start_session", workflow_id="score")
        again = await play("start_session", workflow_id="score", session_token=started.token)
        read = await play("get_workflow", session_token=started.token)
        skills = await play("get_skills", session_token=started.token)

    assert told(started.json["warnings"], library) == told(again.json["warnings"], library) == [PLAY]
    assert told(read.warnings, library) == [CONDUCT, PLAY]
    assert PLAY in read.text
    assert "tune" in read.text
    assert told(skills.warnings, library) == [CONDUCT]
    assert "failed_skills" in skills.text


@proves("sessions.broken-files")
async def test_who_is_led_is_told_at_the_start(settings: Settings, library: Path) -> None:
    async with playing(settings, library, dialect="navigator") as play:
        started = await play("nav_start", workflow_id="score")

    assert told(started.json["warnings"], library) == [PLAY]
