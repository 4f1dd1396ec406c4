"""What a person sees of `fidelio run`: where it is, who is at it, for how long, and what it has cost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.conductor.orchestra import SECONDS, Orchestra, activity, report, write_workflow
from tests.support import proves

LOOK = {"call": {"tool": "get_skill", "arguments": {"session_token": "{saved.token}", "step_id": "tune-step"}}}


@pytest.fixture
def priced(orchestra: Orchestra) -> Orchestra:
    """A workflow with a skill, and a worker that loads it, costs money, and reports."""
    steps = [{"id": "tune-step", "name": "Tune", "skill": "tuning"}]
    write_workflow(orchestra.workflows, "concert", activity("tune", steps=steps))
    skills = orchestra.workflows / "concert" / "skills"
    skills.mkdir()
    (skills / "tuning.yaml").write_text("id: tuning\nversion: 1.0.0\ncapability: Tunes.\ndescription: Tunes.\n")
    turn = [
        {"find": {"token": r"session_token:? *`?([^\s`]+)"}},
        LOOK,
        {"use": {"input_tokens": 10, "cost_usd": 1.25}},
        {"say": "It is in tune."},
        {"pause": 2.5},
        {"result": report("tune-step")},
    ]
    orchestra.blueprint("tuner", {"turns": [turn]})
    return orchestra


def run(orchestra: Orchestra, *more: str) -> str:
    environ = {**os.environ, "FIDELIO_HOME": str(orchestra.home)}
    command = [sys.executable, "-m", "fidelio", "run", "concert", "--agent", "tuner", "--workflows", str(orchestra.workflows)]
    done = subprocess.run(
        [*command, *more],
        cwd=orchestra.project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@proves("conductor.shows-progress")
def test_every_line_shows_the_time_the_place_the_agent_and_the_cost(priced: Orchestra) -> None:
    first, *lines = run(priced).splitlines()
    assert re.fullmatch(r"concert begins as s_\w+\.", first)
    assert all(re.match(r" +\d+:\d\d  \S", line) for line in lines)
    assert re.search(r"0:\d\d  tune +tuner begins$", lines[0])
    assert any(re.search(r"  tune/tune-step +tuner: It is in tune\.  \$1\.25$", line) for line in lines), lines
    assert re.search(r"completed\. See: .* report s_\w+  \$1\.25$", lines[-1])


@proves("conductor.shows-progress")
def test_json_lines_have_the_step_and_the_cost(priced: Orchestra) -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in run(priced, "--json").splitlines()]
    kinds = [line["kind"] for line in lines]
    assert (kinds[:2], kinds[-1]) == (["begun", "entered"], "completed")
    said = next(line for line in lines if line.get("detail") == "It is in tune.")
    shown = {key: said[key] for key in ("activity", "step", "agent", "cost_usd")}
    assert shown == {"activity": "tune", "step": "tune-step", "agent": "tuner", "cost_usd": 1.25}
    assert [line["elapsed_ms"] for line in lines[1:]] == sorted(line["elapsed_ms"] for line in lines[1:])
