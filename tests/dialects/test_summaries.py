"""The summary of a workflow is shorter than the workflow, whatever the workflow is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toon_format import decode

from fidelio.definitions.library.search_path import bundled_root
from fidelio.definitions.models import Workflow
from fidelio.definitions.toon_writer import encode_toon
from fidelio.settings import load_settings
from fidelio.surfaces.mcp.dialects.sessions.handlers import encode_summary
from tests.dialects.conftest import playing
from tests.support import proves

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "workflows"
LIBRARIES = [bundled_root().path, *(SHARED / f"{name}-generation" for name in ("sessions", "gates", "navigation"))]
words = st.text("abc de\n", max_size=120)
names = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True)


def _activity(name: str, description: str) -> dict[str, Any]:
    return {"id": name, "version": "1.0.0", "name": name, "description": description}


@st.composite
def workflows(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The file of a workflow, and the activities that are in files of their own."""
    activities = [_activity(name, draw(words)) for name in draw(names)]
    head: dict[str, Any] = {"id": "wf", "version": "1.0.0", "title": "A workflow"}
    more = {
        "description": words,
        "rules": st.lists(words, max_size=3),
        "variables": st.lists(st.builds(lambda text: {"name": "v", "type": "string", "description": text}, words), max_size=1),
        "initialActivity": st.just(activities[0]["id"]),
    }
    head |= {key: draw(value) for key, value in more.items() if draw(st.booleans())}
    return (head, activities) if draw(st.booleans()) else ({**head, "activities": activities}, [])


@proves("dialects.short-summaries")
@given(workflows())
def test_a_summary_is_never_longer_than_the_workflow(written: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    file, others = written
    workflow, source = Workflow.model_validate({"activities": others, **file}), encode_toon(file)
    summary = encode_summary(workflow, source=source)
    # What stands in other files is the only reason to be longer than the file.
    room = len(encode_toon({"activities": [{**activity, "required": True} for activity in others]})) + 1 if others else 0

    assert len(summary) < len(source) + room or summary == source
    decoded = decode(summary)
    assert isinstance(decoded, dict)
    assert [activity["id"] for activity in decoded["activities"]] == [activity.id for activity in workflow.activities]
    assert decoded.get("rules", []) == list(workflow.rules)
    assert decoded.get("initialActivity") == workflow.initial_activity


def _list_workflows() -> Iterator[tuple[Path, str]]:
    for library in LIBRARIES:
        for file in sorted(library.glob("*/workflow.*")) if library.is_dir() else ():
            yield library, file.parent.name


@proves("dialects.short-summaries")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
@pytest.mark.parametrize(("library", "workflow"), list(_list_workflows()), ids=lambda part: getattr(part, "name", part))
async def test_the_summaries_of_real_workflows_are_shorter(tmp_path: Path, library: Path, workflow: str, dialect: str) -> None:
    settings = load_settings(environ={"FIDELIO_HOME": str(tmp_path / "home")})
    async with playing(settings, library, dialect=dialect) as play:
        token = await play.start(workflow, agent_id="one")
        short, whole = [
            len((await play("get_workflow", session_token=token, summary=summary, full=True)).text) for summary in (True, False)
        ]

    # In `navigation-generation` the activities are in files of their own, and the file of the workflow has 500 characters.
    assert short < whole or (library.name, dialect) == ("navigation-generation", "sessions")
