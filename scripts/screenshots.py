"""Makes the pictures of the terminal in docs/images: commands run at a pseudo-terminal, and their screens become SVG.

What differs between two runs (ids, times, tokens) is replaced by constants, so that the test can compare the pictures that are
there with new ones. `python -m scripts.screenshots` writes them.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.conductor.run_setup import RunSetup, activity, report, write_workflow
from tests.surfaces.screens.terminal import DrawnTerminal, run_in_terminal

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
COLUMNS = 80
_COLORS = {"brown": "yellow", "brightbrown": "bright_yellow", "brightblack": "bright_black"}
_FONT = re.compile(r"\s*@font-face \{[^}]*\}")
# What differs between two runs, and the constant of the same width that stands for it.
_VARIABLE = (
    (re.compile(r"\bs_[0-9a-z]{12}\b"), "s_7k2m9x4qwvtz"),
    (re.compile(r"\br_[0-9a-z]{12}\b"), "r_3mvczz2j826k"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d CES?T"), "2026-11-18 21:04:46 CET"),
    (re.compile(r"(?<=\s)\d:\d\d(?=\s|$)"), "0:02"),
    (re.compile(r"waiting \d+ s"), "waiting 2 s"),
    (re.compile(r"\b\d\.\d s\b"), "2.1 s"),
)


def normalize(line: str) -> str:
    for pattern, constant in _VARIABLE:
        line = pattern.sub(constant, line)
    return line


def draw(screen: pyte.Screen, title: str) -> str:
    """The screen as an SVG picture."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard", legacy_windows=False
    )
    lines = [line.rstrip() for line in screen.display]
    last = max((at for at, line in enumerate(lines) if line), default=0)
    for at in range(last + 1):
        console.print(Text.assemble(*_read_line(screen, at)), soft_wrap=True, highlight=False)
    svg = console.export_svg(title=title, unique_id=re.sub(r"\W", "-", title))
    # Rich names a font of another site, and a picture in the docs loads nothing. The second font of the list is the system's.
    return _FONT.sub("", svg)


def _read_line(screen: pyte.Screen, at: int) -> Iterator[tuple[str, Style]]:
    row = [screen.buffer[at][column] for column in range(screen.columns)]
    text = normalize("".join(sign.data for sign in row).rstrip())
    signs = ((sign, _find_style(cell)) for sign, cell in zip(text, row, strict=False))
    for style, group in itertools.groupby(signs, key=lambda pair: pair[1]):
        yield "".join(sign for sign, _ in group), style


def _find_style(cell: Char) -> Style:
    color = _COLORS.get(cell.fg, cell.fg)
    return Style(color=None if color == "default" else color, bold=cell.bold)


async def make_pictures(directory: Path) -> None:
    """Write the pictures into the directory."""
    with tempfile.TemporaryDirectory() as place:
        setup = _prepare(Path(place))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FIDELIO_")}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        environ = {**inherited, "PATH": path, "FIDELIO_HOME": str(setup.home), "FIDELIO_MIN_RESPONSE_SECONDS": "0"}
        run = ("run", "release", "--agent", "builder", "--activity-agent", "test=tester", "--workflows", str(setup.workflows))
        async with run_in_terminal(*run, environ=environ, directory=setup.project, rows=20) as terminal:
            await terminal.until("Every suite passes.")
            await terminal.until("├── ✓ build")
            _save(terminal, directory / "run.svg", f"fidelio {' '.join(run[:2])}")
        async with run_in_terminal("run", "hello", "--agent", "robot", environ=environ, directory=setup.project) as terminal:
            await terminal.until("Arrow keys")
            _save(terminal, directory / "question.svg", "fidelio run hello")
            terminal.press("1")
            await terminal.wait()
        (setup.root / "gate").touch()
        async with run_in_terminal(
            "agents", "start", "review", "Review it.", "-b", "writer", environ=environ, directory=setup.project
        ) as terminal:
            await terminal.wait()
        async with run_in_terminal("agents", "events", "review", environ=environ, directory=setup.project) as terminal:
            await terminal.wait()
            _save(terminal, directory / "events.svg", "fidelio agents events review")


def _prepare(place: Path) -> RunSetup:
    setup = RunSetup(place)
    write_workflow(
        setup.workflows,
        "release",
        activity("build", transitions=[{"to": "test", "isDefault": True}]),
        activity("test", transitions=[{"to": "announce", "isDefault": True}]),
        activity("announce"),
    )
    pause = {"pause": {"until": str(place / "gate"), "seconds": 60}}
    build = [{"use": {"input_tokens": 18_200, "output_tokens": 1_450, "cost_usd": 0.12}}, {"result": report("build-step")}]
    test = [{"use": {"input_tokens": 9_400, "output_tokens": 820, "cost_usd": 0.06}}, {"say": "Every suite passes."}, pause]
    setup.write_blueprint("builder", {"turns": [build]})
    setup.write_blueprint("tester", {"turns": [[*test, {"result": report("test-step")}]]})
    setup.write_blueprint("writer", {"turns": [[{"say": "I read the last commit."}, {"result": "It can be merged."}]]})
    return setup


def _save(terminal: DrawnTerminal, file: Path, title: str) -> None:
    file.write_text(draw(terminal.screen, title) + "\n", "utf-8")


def main() -> None:
    asyncio.run(make_pictures(IMAGES))
    print(f"The pictures are in {IMAGES}.")


if __name__ == "__main__":
    main()
