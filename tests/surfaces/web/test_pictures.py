"""The pictures of the page in README and docs: each page has a current one that is small and shown."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from fidelio.surfaces.web.application import _GROUPS
from scripts.page_pictures import CHROMIUM, IMAGES, PICTURES
from tests.support import proves
from tests.support.parts import require_part

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs/guides/web-page.md").read_text("utf-8")
# Pages that only confirm or detail what the page before them shows.
SMALL = {
    "/inbox/{request}",
    "/sessions/{session}/events/{seq}",
    "/sessions/{session}/delete",
    "/sessions/{session}/file",
    "/sessions/{session}/changes",
    "/sessions/{session}/memory",
    "/passkeys/registration",
    "/passkeys/confirmation",
    "/passkeys/at-localhost",
}


@proves("web.pictures")
def test_every_page_has_a_small_picture_that_the_guide_shows() -> None:
    for picture in PICTURES:
        file = IMAGES / f"web-{picture.name}.png"
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size < 150_000, file.name
        assert f"../images/{file.name}" in GUIDE, file.name
    assert {file.name for file in IMAGES.glob("web-*.png")} == {f"web-{picture.name}.png" for picture in PICTURES}
    assert "docs/images/web-" in (ROOT / "README.md").read_text("utf-8")


@proves("web.pictures")
def test_no_page_is_without_a_picture() -> None:
    taken = [picture.path.partition("?")[0].split("/") for picture in PICTURES]
    pages = [route.path for route in chain.from_iterable(_GROUPS) if route.show is not None and route.path not in SMALL]

    for page in pages:
        parts = page.split("/")
        assert any(_matches(parts, path) for path in taken), page


def _matches(page: list[str], path: list[str]) -> bool:
    same = zip(page, path, strict=False)
    return len(page) == len(path) and all(part == found or part.startswith("{") for part, found in same)


@proves("web.pictures")
@pytest.mark.timeout(300)
def test_the_pictures_can_be_taken_again(tmp_path: Path) -> None:
    if not os.access(CHROMIUM, os.X_OK):
        require_part("Chromium", "Install it with: sudo apt-get install chromium")
    command = [sys.executable, "-m", "scripts.page_pictures", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {f"web-{picture.name}.png" for picture in PICTURES}
