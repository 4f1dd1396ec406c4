"""The pictures in the docs: they are what the commands print now."""

from __future__ import annotations

from pathlib import Path

from scripts.screenshots import IMAGES, make_pictures, normalize
from tests.support import proves

NAMES = {"run.svg", "question.svg", "events.svg"}


def read_pictures(directory: Path) -> dict[str, str]:
    return {file.name: file.read_text("utf-8") for file in directory.glob("*.svg")}


@proves("screens.images")
async def test_the_pictures_in_the_docs_are_current(tmp_path: Path) -> None:
    await make_pictures(tmp_path)

    made, shown = (read_pictures(directory) for directory in (tmp_path, IMAGES))
    assert made.keys() == NAMES
    assert [name for name in NAMES if made[name] != shown[name]] == [], "Make them again with: python -m scripts.screenshots"


@proves("screens.images")
def test_what_differs_between_two_runs_is_replaced_in_its_width() -> None:
    line = "s_000000000000 waits  r_111111111111  0:59  2026-01-02 03:04:05 CET"

    assert normalize(line) == "s_7k2m9x4qwvtz waits  r_3mvczz2j826k  0:02  2026-11-18 21:04:46 CET"
