"""Reading while one is led: what can be read is listed, everything else is refused in the shape of every reply."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.settings import Settings
from tests.dialects.conftest import Opens
from tests.dialects.navigator.conftest import Guide
from tests.dialects.navigator.test_people import answer
from tests.support import proves


@proves("navigator.resources", "navigator.offers")
async def test_only_what_can_be_read_is_listed_and_only_what_is_listed_is_served(memory: Opens, library: Path) -> None:
    (library / "tour/resources/03-torn.md").write_text("---\nid: [\n---\n")
    (library / "tour/resources/04-noise.md").write_bytes(b"\xff\xfe\x00")
    async with memory() as play:
        guide = await Guide(play).start("tour")
        (read,) = [one for one in guide.last["availableActions"]["optional"] if one["action"] == "get_resource"]
        # A page whose front matter is broken is served whole.
        assert read["resources"] == ["01", "02", "03"]
        for index in ("04", "4", "99", "map", "meta/00", "tour/01", "zzz/01", "../workflow.yaml", "²"):
            refused = await guide.do("get_resource", index=index)
            assert refused.code == "RESOURCE_NOT_FOUND", index
            assert "01, 02, 03" in refused.last["message"]
        assert "not UTF-8" in (await guide.do("get_resource", index="04")).last["message"]
        guide.expect(await guide.do("get_resource", index="01"))


@proves("navigator.resources", "navigator.transitions")
async def test_what_is_reported_with_reading_is_on_record_and_counts(guide: Guide) -> None:
    await guide.start("tour")
    guide.expect(await guide.do("get_resource", index="01", variables={"place": "the sea"}))
    assert guide.last["resource"]["name"] == "map"
    assert guide.last["availableActions"]["required"][0]["description"] == "What to take to the sea"
    assert (await guide.do("get_resource", index="01", variables={"moon": 1})).last["warnings"]


@proves("navigator.lost-question")
@pytest.mark.parametrize("tool", ["nav_situation", "nav_checkpoint"])
async def test_a_question_that_the_definition_has_lost_is_shown_with_what_helps(
    memory: Opens, settings: Settings, library: Path, tool: str
) -> None:
    file = library / "tour/workflow.yaml"
    async with memory() as play:
        guide = await Guide(play).start("tour")
        await guide.step("list", "shine")
        request = guide.last["checkpoint"]["request_id"]
        file.write_text(file.read_text().replace("id: size", "id: weight").replace("checkpoint: size", "checkpoint: weight"))

        shown = (await play(tool, state=guide.state)).json
        assert shown["checkpoint"]["id"] == "size"
        assert shown["checkpoint"]["request_id"] == request
        assert f"fidelio answer {request}" in shown["checkpoint"]["message"]
        refused = await guide.do("respond_to_checkpoint", checkpoint_id="size", option_id="big")
        assert refused.code == "CHECKPOINT_NOT_FOUND"
        assert f"fidelio answer {request}" in refused.last["message"]
        assert await answer(settings, "big") == request
        assert (await guide.look()).last["checkpoint"]["id"] == "weight"
