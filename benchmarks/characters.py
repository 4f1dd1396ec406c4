"""Benchmark of what an agent has to read: the characters of walks, and of the lists of tools.

python -m benchmarks characters

The obedient walk through a large workflow that others wrote (`work-package` in ../shared, read where it is) does what the
procedure says: `discover`, `list_workflows`, `start_session`, `get_skills`, and for each of the 14 activities `get_workflow`,
`next_activity` and `get_activity`. With the sizes of the server that the format comes from (25,215 characters a `get_workflow`
with its skill, 300 a token) that is 507,000 characters, of which the agent got 336,000 before: thirteen times the workflow, and
once more the skill.

A second walk, through the bundled workflow of that name, also reads the skill of every step and its resources. Each walk is
made twice: asking for whole texts, and letting the server leave out what the agent got before. Further figures count the events
that equal reads leave in the record, and compare listing many workflows with listing few. Agents list them again and again, and
that is compared; a call after a pause also looks at the file of every workflow, and its whole cost has a bound.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.figures import Figure
from benchmarks.library import make_library
from fidelio.app.application import Application
from fidelio.definitions.library.library import LISTING_MAX_AGE
from fidelio.definitions.library.search_path import bundled_root
from fidelio.settings import load_settings
from fidelio.surfaces.mcp.dialects import DEFAULT, DIALECTS, TOOLSETS, load_tools
from fidelio.surfaces.mcp.endpoint import encode_message
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states

WORKFLOW = "work-package"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "workflows" / "sessions-generation"
# The promises: characters of the obedient walk, of each list of tools, and how much more CPU a list of 500 workflows takes.
MOST_IN_WALK = 200_000
MOST_SHARE = 0.6
MOST_IN_LIST = {
    "sessions": 6_500,
    "gates": 5_500,
    "navigator": 6_000,
    "orchestrator": 8_300,
    "sandbox": 11_000,
    "runtime": 23_000,
}
MOST_OF_WORKER = 4_000
MANY, FEW, MOST_MORE = 500, 12, 3.0
ROUNDS, SECONDS = 5, 0.6
MOST_AFTER_PAUSE_MS = 15
READS, MOST_EVENTS = 1_000, 2
# The bundled walk is about reading: nothing holds it up.
_HOLDS = re.compile(r"^\s*(?:- )?fidelity:.*\n|,? ?\banswered_by: person", re.MULTILINE)


class _Reader:
    """Calls tools over a connection, and counts the characters of the replies."""

    def __init__(self, protocol: Protocol, *, full: bool) -> None:
        self._connection = protocol.connect()
        self._ids = count(1)
        self._full = {"full": True} if full else {}
        self.token = ""
        self.characters = 0

    async def __call__(self, tool: str, **arguments: Any) -> str:
        own = {"session_token": self.token} if self.token else {}
        params = {"name": tool, "arguments": {**own, **arguments}}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        reply = await self._connection.answer(message)
        result = reply["result"]
        assert not result["isError"], result
        self.token = result.get("_meta", {}).get("session_token", self.token)
        texts = [str(block["text"]) for block in result["content"]]
        self.characters += sum(map(len, texts))
        return texts[0]

    async def read(self, tool: str, **arguments: Any) -> str:
        return await self(tool, **arguments, **self._full)


@asynccontextmanager
async def _serving(library: Path) -> AsyncIterator[tuple[Protocol, Application]]:
    with tempfile.TemporaryDirectory() as place:
        settings = load_settings(str(Path(place) / "home"))
        async with Application(settings, [str(library)]) as application:
            application.creates_missing_home = True
            yield (
                Protocol(make_identity(settings), load_tools(DEFAULT, application), make_request_states(settings)),
                application,
            )


async def _walk_obediently(library: Path, *, full: bool) -> int:
    async with _serving(library) as (protocol, application):
        reader = _Reader(protocol, full=full)
        await reader("discover")
        await reader("list_workflows")
        await reader("start_session", workflow_id=WORKFLOW)
        await reader.read("get_skills")
        for activity in (await application.library()).workflow(WORKFLOW).activities:
            await reader.read("get_workflow")
            await reader("next_activity", activity_id=activity.id)
            await reader("get_activity")
        return reader.characters


async def _walk_with_skills(library: Path, *, full: bool) -> int:
    async with _serving(library) as (protocol, application):
        known, reader = await application.library(), _Reader(protocol, full=full)
        await reader("start_session", workflow_id=WORKFLOW)
        for activity in known.workflow(WORKFLOW).activities:
            await reader.read("get_workflow")
            await reader("next_activity", activity_id=activity.id)
            await reader("get_activity")
            for step in activity.steps:
                if step.skill:
                    await reader.read("get_skill", step_id=step.id)
                    skill = known.skill(step.skill, workflow=WORKFLOW, owner=activity.owner).definition
                    for resource in skill.resources:
                        await reader.read("get_resource", resource_id=resource)
        return reader.characters


async def _measure_walks(place: Path) -> AsyncIterator[Figure]:
    if SHARED.is_dir():
        whole, once = [await _walk_obediently(SHARED, full=full) for full in (True, False)]
        yield Figure(name=f"characters of the obedient walk through {WORKFLOW}, every text whole", value=whole, unit="")
        name = f"characters of the obedient walk through {WORKFLOW}"
        yield Figure(name=name, value=once, unit="", at_most=MOST_IN_WALK)
    library = place / "workflows"
    shutil.copytree(bundled_root().path, library)
    for file in library.rglob("*.yaml"):
        file.write_text(_HOLDS.sub("", file.read_text("utf-8")), "utf-8")
    whole, once = [await _walk_with_skills(library, full=full) for full in (True, False)]
    yield Figure(name=f"characters of the bundled {WORKFLOW} with skills, every text whole", value=whole, unit="")
    yield Figure(name=f"characters of the bundled {WORKFLOW} with skills", value=once, unit="")
    yield Figure(name="nothing sent twice / every text whole", value=once / whole, unit="x", at_most=MOST_SHARE)


async def _measure_reads(library: Path) -> AsyncIterator[Figure]:
    async with _serving(library) as (protocol, application):
        reader, records, service = _Reader(protocol, full=False), await application.records(), await application.workflows()
        await reader("start_session", workflow_id=WORKFLOW)
        session = (await records.sessions(kind="workflow")).items[0].id
        before = (await records.find(session)).last_seq
        for _ in range(READS):
            await reader("get_workflow_status")
        await service.unit.close()
        events = (await records.find(session)).last_seq - before
    yield Figure(name=f"events of {READS:,} equal reads", value=events, unit="", at_most=MOST_EVENTS)


def count_list(listed: list[dict[str, Any]]) -> int:
    """The characters of name, description and inputSchema of the tools, as JSON."""
    parts = ({key: tool[key] for key in ("name", "description", "inputSchema")} for tool in listed)
    return sum(len(msgspec.json.encode(part).decode()) for part in parts)


def _measure_lists(place: Path) -> Iterator[Figure]:
    settings = load_settings(str(place / "home"))
    for tools in (*DIALECTS, *TOOLSETS):
        if tools in MOST_IN_LIST:
            size = count_list(load_tools(tools, Application(settings)).table.describe())
            yield Figure(name=f"characters of the tools of {tools}", value=size, unit="", at_most=MOST_IN_LIST[tools])
    size = count_list(load_tools(DEFAULT, Application(settings, worker=True)).table.describe())
    yield Figure(name="characters of the tools of a worker", value=size, unit="", at_most=MOST_OF_WORKER)


async def _time_list(protocol: Protocol) -> float:
    """The CPU seconds of a call of list_workflows."""
    reader = _Reader(protocol, full=False)
    began, until, calls = time.process_time(), time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        await reader("list_workflows")
        calls += 1
    return (time.process_time() - began) / calls


async def _time_list_after_pause(protocol: Protocol) -> float:
    """The CPU seconds of a call of list_workflows that looks for changes of the files, with the encoding of its reply."""
    connection = protocol.connect()
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_workflows", "arguments": {}}}
    await asyncio.sleep(2 * LISTING_MAX_AGE)
    began = time.process_time()
    encode_message(await connection.answer(message))
    return time.process_time() - began


async def _measure_listing(place: Path) -> AsyncIterator[Figure]:
    for number in (FEW, MANY):
        make_library(place / str(number), number)
    async with _serving(place / str(FEW)) as (few, _), _serving(place / str(MANY)) as (many, _):
        for protocol in (few, many):
            await _time_list(protocol)
        rounds = [(await _time_list(many), await _time_list(few)) for _ in range(ROUNDS)]
        pauses = [await _time_list_after_pause(many) for _ in range(ROUNDS)]
    name = f"list_workflows of {MANY} workflows after a pause"
    yield Figure(name=name, value=median(pauses) * 1000, unit="ms CPU", at_most=MOST_AFTER_PAUSE_MS)
    yield Figure(name=f"list_workflows of {MANY} workflows", value=median(many for many, _ in rounds) * 1000, unit="ms CPU")
    more = median(many / few for many, few in rounds)
    yield Figure(name=f"list_workflows of {MANY} / of {FEW} workflows", value=more, unit="x", at_most=MOST_MORE)


async def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        figures = [figure async for figure in _measure_walks(place)]
        figures += [figure async for figure in _measure_reads(place / "workflows")]
        figures += _measure_lists(place)
        return figures + [figure async for figure in _measure_listing(place)]


def main() -> list[Figure]:
    return asyncio.run(measure())
