"""The conductor runs the bundled workflows with agents of the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.conductor.context import ProgressEvent
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from tests.conductor.run_setup import RunSetup
from tests.runtime.executor.worker_model import WorkerModel
from tests.support import proves

BLUEPRINT = """---
name: own
description: A worker of the runtime.
executor: fidelio
model: scripted:worker
permissions: {mode: edit, allow: [mcp__fidelio]}
---
You carry out one activity.
"""


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSetup:
    def open_scripted(**_: Any) -> Providers:
        return Providers({"scripted": ScriptedProvider(WorkerModel())})

    monkeypatch.setattr("fidelio.app.runtime.open_providers", open_scripted)
    made = RunSetup(tmp_path)
    (made.home / "agents" / "own.md").write_text(BLUEPRINT)
    return made


ANSWERS = {"choose-tone": "brief", "choose-route": "full", "confirm-requirements": "return-issue"}


@pytest.mark.timeout(180)
@proves("runtime.executor-conducted")
@pytest.mark.parametrize(
    ("workflow", "inputs", "last"), [("hello", {}, ""), ("work-package", {"issue": "A brief"}, "returned")]
)
async def test_the_conductor_carries_out_a_workflow_with_runtime_agents(
    setup: RunSetup, workflow: str, inputs: dict[str, str], last: str
) -> None:
    seen: list[ProgressEvent] = []
    record = await setup.execute(setup.plan(workflow, agent="own", inputs=inputs), seen, answers=ANSWERS, seconds=150)

    assert (record.status, record.variables.get("outcome", "")) == ("completed", last)
    async with setup.app() as app:
        sessions = (await (await app.records()).sessions(kind="runtime")).items
        assert [session for session in sessions if session.record.get("agent") == "blueprint-own"]
