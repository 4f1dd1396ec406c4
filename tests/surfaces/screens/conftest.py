"""Fixtures of the screens: a home with scripted agents, and a command at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.conductor.run_setup import RunSetup, activity, report, write_workflow
from tests.surfaces.screens.terminal import DrawnTerminal, run_in_terminal

AtTerminal = Callable[..., AbstractAsyncContextManager[DrawnTerminal]]


@pytest.fixture
def setup(tmp_path: Path) -> RunSetup:
    return RunSetup(tmp_path)


@pytest.fixture
def place(setup: RunSetup) -> dict[str, str]:
    """The environment of commands of this home."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FIDELIO_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**inherited, "PATH": path, "FIDELIO_HOME": str(setup.home), "FIDELIO_MIN_RESPONSE_SECONDS": "0"}


@pytest.fixture
def at_terminal(setup: RunSetup, place: dict[str, str]) -> AtTerminal:
    """Run a command at a terminal, in the project of the home."""
    return partial(run_in_terminal, environ=place, directory=setup.project)


@pytest.fixture
def concert(setup: RunSetup) -> RunSetup:
    """A workflow of two activities, and an agent that works until a file appears."""
    write_workflow(
        setup.workflows, "concert", activity("tune", transitions=[{"to": "play", "isDefault": True}]), activity("play")
    )
    gate = setup.root / "gate"
    tune = [
        {"use": {"input_tokens": 1200, "cost_usd": 0.25}},
        {"say": "I look at the strings of all the instruments, one after the other."},
        {"pause": {"until": str(gate), "seconds": 50}},
        {"result": report("tune-step")},
    ]
    setup.write_blueprint("tuner", {"turns": [tune]})
    setup.write_agent("player", report("play-step"))
    return setup
