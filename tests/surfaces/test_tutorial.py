"""The tutorial is carried out as it stands: its files are written, its commands are run, and their output is compared."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import proves
from tests.surfaces.conftest import Fidelio

PAGE = Path(__file__).parents[2] / "docs" / "start" / "write-your-own-workflow.md"
BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"Write this as `(?P<path>[^`]+)`:$")
SECONDS = 60


class Step(NamedTuple):
    """A file to write, or a command with the output that the page shows."""

    file: str = ""
    command: str = ""
    text: str = ""


def steps() -> Iterator[Step]:
    for block in BLOCK.finditer(PAGE.read_text("utf-8")):
        if block["language"] != "console":
            named = FILE.search(block["before"])
            assert named, f"the page does not say which file this is: {block['before']}"
            yield Step(file=named["path"], text=block["text"])
            continue
        assert block["text"].startswith("$ ")
        for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield Step(command=command, text=output)


def pattern(shown: str, ids: dict[str, str]) -> re.Pattern[str]:
    """What the output must look like: `...` stands for any text, also over several lines."""
    return re.compile(re.escape(fill_in(shown, ids).rstrip("\n")).replace(r"\.\.\.", "(?:.|\n)*"))


@pytest.fixture
def environ(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """No named home, as on the machine of a reader."""
    unnamed = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}
    return {**unnamed, "XDG_DATA_HOME": str(tmp_path.parent / f"{tmp_path.name}-data")}


class Reader:
    """Carries out the steps of the page, one after the other."""

    def __init__(self, fidelio: Fidelio, environ: dict[str, str], directory: Path) -> None:
        self.fidelio, self.environ, self.directory = fidelio, environ, directory
        self.ids: dict[str, str] = {}
        self.running: subprocess.Popen[str] | None = None

    def carry_out(self, step: Step) -> None:
        if step.file:
            path = self.directory / step.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, "utf-8")
            return
        program, *arguments = shlex.split(fill_in(step.command, self.ids))
        assert program == "fidelio"
        shown = self._start_run(arguments) if arguments[0] == "run" else self._run(arguments)
        assert pattern(step.text, self.ids).fullmatch(shown.rstrip("\n")), f"{step.command}\n{shown}"

    def _run(self, arguments: list[str]) -> str:
        if arguments[0] == "report":
            self._finish_run()
        done = self.fidelio(*arguments)
        assert done.stderr == "" or arguments[0] == "lint", done.stderr
        return done.stdout

    def _start_run(self, arguments: list[str]) -> str:
        command = [sys.executable, "-m", "fidelio", *arguments]
        self.running = subprocess.Popen(
            command, env=self.environ, cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.running.stdout is not None
        first = self.running.stdout.readline()
        found = re.search(r"\bs_\w+", first)
        assert found, first + self.running.stdout.read()
        self.ids["SESSION"] = found[0]
        self.ids["REQUEST"] = self._wait_for_request()
        return first + "..."

    def _wait_for_request(self) -> str:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if requests := json.loads(self.fidelio("inbox", "--json").stdout)["items"]:
                return str(requests[0]["id"])
        raise AssertionError("the run has asked nothing")

    def _finish_run(self) -> None:
        assert self.running is not None
        self.running.communicate(timeout=SECONDS)
        assert self.running.returncode == 0

    def stop(self) -> None:
        if self.running is not None and self.running.returncode is None:
            self.running.kill()
            self.running.communicate(timeout=SECONDS)


def fill_in(command: str, ids: dict[str, str]) -> str:
    for placeholder, value in ids.items():
        command = command.replace(placeholder, value)
    return command


@proves("project.tutorial")
def test_the_tutorial_can_be_followed_word_for_word(fidelio: Fidelio, environ: dict[str, str], tmp_path: Path) -> None:
    reader = Reader(fidelio, {**environ, "PYTHONPATH": os.pathsep.join(sys.path)}, tmp_path)
    try:
        for step in steps():
            reader.carry_out(step)
    finally:
        reader.stop()


@proves("project.tutorial")
def test_the_tutorial_has_everything_that_it_promises() -> None:
    texts = "".join(step.text for step in steps() if step.file)

    assert all(key in texts for key in ("condition: ", "loops:", "answered_by: person", "triggers:", "skill: ", "resources: "))
    assert {step.command.split()[1] for step in steps() if step.command} >= {"new", "lint", "draw", "run", "inbox", "answer"}
