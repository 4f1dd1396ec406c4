"""Output of `fidelio run`: activity and step, agent, elapsed time and cost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.conductor.run_setup import SECONDS, RunSetup, activity, report, write_workflow
from tests.support import proves

LOOK = {"call": {"tool": "get_skill", "arguments": {"session_token": "{saved.token}", "step_id": "tune-step"}}}


@pytest.fixture
def priced(setup: RunSetup) -> RunSetup:
    """A workflow with a skill, and a worker that loads it, has a cost, and reports."""
    steps = [{"id": "tune-step", "name": "Tune", "skill": "tuning"}]
    write_workflow(setup.workflows, "concert", activity("tune", steps=steps))
    skills = setup.workflows / "concert" / "skills"
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
    setup.write_blueprint("tuner", {"turns": [turn]})
    return setup


def run(setup: RunSetup, *more: str) -> str:
    environ = {**os.environ, "FIDELIO_HOME": str(setup.home), "COLUMNS": "300"}
    command = [sys.executable, "-m", "fidelio", "run", "concert", "--agent", "tuner", "--workflows", str(setup.workflows)]
    done = subprocess.run(
        [*command, *more],
        cwd=setup.project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@proves("conductor.shows-progress")
def test_every_line_shows_time_activity_agent_and_cost(priced: RunSetup) -> None:
    first, *lines = run(priced).splitlines()
    assert re.fullmatch(r"concert begins as s_\w+\.", first)
    assert all(re.match(r" +\d+:\d\d  \S", line) for line in lines)
    assert re.search(r"0:\d\d  tune/tune-step +tuner begins$", lines[0])
    assert any(re.search(r"  tune/tune-step +tuner: It is in tune\.  10 tokens  \$1\.25$", line) for line in lines), lines
    assert re.search(r"completed\. See: .* report s_\w+`  10 tokens  \$1\.25$", lines[-1])


@proves("conductor.shows-progress")
def test_json_lines_have_the_step_and_the_cost(priced: RunSetup) -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in run(priced, "--json").splitlines()]
    kinds = [line["kind"] for line in lines]
    assert (kinds[:2], kinds[-1]) == (["begun", "entered"], "completed")
    said = next(line for line in lines if line.get("detail") == "It is in tune.")
    shown = {key: said[key] for key in ("activity", "step", "agent", "cost_usd")}
    assert shown == {"activity": "tune", "step": "tune-step", "agent": "tuner", "cost_usd": 1.25}
    assert [line["elapsed_ms"] for line in lines[1:]] == sorted(line["elapsed_ms"] for line in lines[1:])
