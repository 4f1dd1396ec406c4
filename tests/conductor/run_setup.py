"""Test setup of the conductor: a home with blueprints of scripted workers, and generated workflows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from fidelio.app.application import Application
from fidelio.conductor.conductor import Conductor
from fidelio.conductor.context import ProgressEvent
from fidelio.conductor.plan import Plan
from fidelio.engine.record import Record
from fidelio.inbox import Inbox
from fidelio.settings import Settings, load_settings

SECONDS = 60.0
CHOICE = {"type": "simple", "variable": "windy", "operator": "==", "value": True}


def activity(name: str, **more: Any) -> dict[str, Any]:
    steps = [{"id": f"{name}-step", "name": f"Do {name}"}]
    return {"id": name, "version": "1.0.0", "name": name.title(), "steps": steps, **more}


def write_workflow(root: Path, name: str, *activities: dict[str, Any], variables: tuple[dict[str, Any], ...] = ()) -> None:
    head = {"id": name, "version": "1.0.0", "title": name.title(), "initialActivity": activities[0]["id"]}
    folder = root / name
    (folder / "activities").mkdir(parents=True)
    (folder / "workflow.yaml").write_text(yaml.safe_dump({**head, "variables": list(variables)}))
    for number, definition in enumerate(activities):
        (folder / "activities" / f"{number:02}-{definition['id']}.yaml").write_text(yaml.safe_dump(definition))


def report(*steps: str, **variables: Any) -> str:
    return json.dumps({"steps": [{"step_id": step, "output": "Done."} for step in steps], "variables": variables})


class RunSetup:
    """A home with workflows and blueprints."""

    def __init__(self, place: Path) -> None:
        self.root = place
        self.workflows = place / "workflows"
        self.project = place / "project"
        self.project.mkdir()
        self.home = place / "home"
        (self.home / "agents").mkdir(parents=True)
        self.write_blueprint("robot", "workflow-worker")

    def write_blueprint(self, name: str, script: Any, **options: Any) -> None:
        front = {
            "name": name,
            "description": "A worker for tests.",
            "executor": "scripted",
            "options": {"script": script, **options},
        }
        (self.home / "agents" / f"{name}.md").write_text(f"---\n{yaml.safe_dump(front)}---\nYou are {name}.\n")

    def write_agent(self, name: str, *results: str) -> None:
        """Write a worker whose turns end with these messages; the last message repeats."""
        self.write_blueprint(name, {"turns": [[{"result": result}] for result in results]})

    @property
    def settings(self) -> Settings:
        return load_settings(environ={"FIDELIO_HOME": str(self.home), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})

    def plan(self, workflow: str, **more: Any) -> Plan:
        return Plan(workflow=workflow, **{"agent": "robot", "project": str(self.project), **more})

    @asynccontextmanager
    async def app(self, seconds: float = SECONDS) -> AsyncIterator[Application]:
        directories = [str(self.workflows)] if self.workflows.exists() else []
        async with asyncio.timeout(seconds), Application(self.settings, directories, with_bundled=True) as app:
            yield app

    async def execute(
        self,
        plan: Plan,
        seen: list[ProgressEvent] | None = None,
        answers: dict[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> Record:
        """Run a plan to its end; `answers` are the options a person chooses, by checkpoint."""
        has_request = asyncio.Event()

        def watch(event: ProgressEvent) -> None:
            if seen is not None:
                seen.append(event)
            if event.kind == "waiting":
                has_request.set()

        async with self.app(seconds) as app:
            conductor = await app.conductor(watch)
            person = asyncio.create_task(answer_requests(app, answers or {}, has_request))
            try:
                return await conductor.run(await conductor.start(plan))
            finally:
                person.cancel()
                await asyncio.gather(person, return_exceptions=True)


async def answer_requests(app: Application, answers: dict[str, str], has_request: asyncio.Event) -> None:
    """Answer requests like a person, after the first `waiting` event."""
    await has_request.wait()
    inbox = Inbox((await app.workflows()).unit.ledger)
    async for request in inbox.follow():
        if request.state == "open" and (option := answers.get(request.detail.get("checkpoint", ""))):
            await inbox.answer(request.id, option, by="person:tester", channel="cli")


async def list_workers(app: Application, session: str) -> list[Any]:
    page = await (await app.agents()).list()
    return [worker for worker in reversed(page.items) if worker.name.startswith(session)]


__all__ = ["Conductor", "RunSetup", "activity", "answer_requests", "list_workers", "report", "write_workflow"]
