"""A small workflow, workers without a mind, and a house to play it in."""

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
from fidelio.conductor.context import Happening
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
    for number, one in enumerate(activities):
        (folder / "activities" / f"{number:02}-{one['id']}.yaml").write_text(yaml.safe_dump(one))


def report(*steps: str, **variables: Any) -> str:
    return json.dumps({"steps": [{"step_id": step, "output": "Done."} for step in steps], "variables": variables})


class Orchestra:
    """One home with workflows and blueprints."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.workflows = place / "workflows"
        self.project = place / "project"
        self.project.mkdir()
        self.home = place / "home"
        (self.home / "agents").mkdir(parents=True)
        self.blueprint("robot", "workflow-worker")

    def blueprint(self, name: str, script: Any, **options: Any) -> None:
        front = {
            "name": name,
            "description": "A worker for tests.",
            "executor": "scripted",
            "options": {"script": script, **options},
        }
        (self.home / "agents" / f"{name}.md").write_text(f"---\n{yaml.safe_dump(front)}---\nYou are {name}.\n")

    def says(self, name: str, *results: str) -> None:
        """A worker whose turns end with these messages, the last one again and again."""
        self.blueprint(name, {"turns": [[{"result": result}] for result in results]})

    @property
    def settings(self) -> Settings:
        return load_settings(environ={"FIDELIO_HOME": str(self.home), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})

    def plan(self, workflow: str, **more: Any) -> Plan:
        return Plan(workflow=workflow, **{"agent": "robot", "project": str(self.project), **more})

    @asynccontextmanager
    async def house(self, seconds: float = SECONDS) -> AsyncIterator[Application]:
        directories = [str(self.workflows)] if self.workflows.exists() else []
        async with asyncio.timeout(seconds), Application(self.settings, directories, with_bundled=True) as house:
            yield house

    async def play(
        self,
        plan: Plan,
        seen: list[Happening] | None = None,
        answers: dict[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> Record:
        """Carries a plan out to its end, with a person who gives these answers, by checkpoint."""
        told = asyncio.Event()

        def watch(happening: Happening) -> None:
            if seen is not None:
                seen.append(happening)
            if happening.kind == "waiting":
                told.set()

        async with self.house(seconds) as house:
            conductor = await house.conductor(watch)
            person = asyncio.create_task(answering(house, answers or {}, told))
            try:
                return await conductor.carry_out(await conductor.begin(plan))
            finally:
                person.cancel()
                await asyncio.gather(person, return_exceptions=True)


async def answering(house: Application, answers: dict[str, str], told: asyncio.Event) -> None:
    """A person who answers what they were told of."""
    await told.wait()
    inbox = Inbox((await house.workflows()).unit.ledger)
    async for request in inbox.follow():
        if request.state == "open" and (option := answers.get(request.detail.get("checkpoint", ""))):
            await inbox.answer(request.id, option, by="person:tester", channel="cli")


async def workers_of(house: Application, session: str) -> list[Any]:
    page = await (await house.agents()).list()
    return [one for one in reversed(page.items) if one.name.startswith(session)]


__all__ = ["Conductor", "Orchestra", "activity", "answering", "report", "workers_of", "write_workflow"]
