"""A large ledger for the benchmark of the web page, and one real example of everything that a page shows.

Most sessions are written directly into the tables, without the chain, because lists and search only need their number. The
examples are written by the services, so that pages that verify, describe or compare find what they would find in use.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from benchmarks.wakes import Bench
from fidelio.app.application import Application
from fidelio.clock import now_ms
from fidelio.inbox import APPROVAL, open_request
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, NewEvent, NewSession, OpenRequest
from fidelio.orchestrator.record.model import StartAgent
from fidelio.providers.model import ModelReply, ModelRequest, TextBlock, ToolUseBlock
from fidelio.providers.registry import Providers
from fidelio.providers.scripted import ScriptedProvider
from fidelio.runtime.agents.definition import AgentDefinition, Budget
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.bootstrap.files import render_text
from fidelio.runtime.ports import RuntimePorts
from fidelio.runtime.resources.memory_file import MEMORY_FILES, write_section
from fidelio.runtime.resources.versions import Substrate

EVENTS_PER_SESSION = 100
# Sessions that ask, and the requests of each; agents of this project, and of others; versions of a memory; wakes of a session.
ASKING, REQUESTS, AGENTS, FOREIGN_AGENTS, VERSIONS, WAKES = 200, 5, 20, 1_000, 20, 30
PROJECT = "/bench"
_BATCH = 1_000
_WORDS = ("garden", "ladder", "window", "marmalade", "harbour", "violin", "granite", "lantern", "orchard", "compass")
# One of eight events changes the state, as in a run with three calls of tools.
_TYPES: Mapping[str, tuple[str, ...]] = {
    "agent": (
        *("run.starting", "agent.said", "agent.called", "agent.returned"),
        *("agent.called", "agent.returned", "run.used", "run.succeeded"),
    ),
    "runtime": (
        *("session.status_running", "user.message", "span.model_request_end", "agent.message"),
        *("agent.tool_use", "agent.tool_result", "agent.message", "session.status_idle"),
    ),
    "workflow": (
        *("activity.entered", "content.loaded", "skill.loaded", "step.completed"),
        *("step.completed", "checkpoint.yielded", "request.answered", "checkpoint.resumed"),
    ),
}
_RECORDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "agent": ("succeeded", {"blueprint": "writer", "project": "/work/shop", "run": {"state": "succeeded"}}),
    "runtime": ("idle", {"agent": "clerk", "project": "/work/shop", "agent_version": 1}),
    "workflow": ("active", {"workflow": "work-package", "here": {"activity": "implement"}, "agent": "worker"}),
}
_SESSION = """
INSERT INTO sessions (id, kind, namespace, name, status, reason, last_seq, head, created_at, updated_at, record)
VALUES (?, ?, ?, ?, ?, '', ?, x'', ?, ?, ?)
"""
_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, 'agent', ?, ?, x'', x'', x'')"
_YES_OR_NO = ({"id": "allow", "label": "Allow it once"}, {"id": "deny", "label": "Refuse it"})


def fill(path: Path, events: int, foreign_agents: int = FOREIGN_AGENTS) -> None:
    """Write sessions of all three kinds, and agents of other projects, into an empty ledger."""
    connection, now = apsw.Connection(str(path)), now_ms()
    chance, count = random.Random(1), max(3, events // EVENTS_PER_SESSION)
    with connection:
        connection.executemany(_SESSION, _list_stores(foreign_agents, now))
    for first in range(0, count, _BATCH):
        numbers = range(first, min(first + _BATCH, count))
        with connection:
            connection.executemany(_SESSION, _list_sessions(numbers, now))
            connection.executemany(_EVENT, _list_events(numbers, chance, now))
    connection.close()


def _list_stores(count: int, now: int) -> Iterator[tuple[object, ...]]:
    for number in range(count):
        record = {"role": "store", "agent": "clerk", "project": f"/work/{number}", "directory": f"{number:016x}"}
        raw = msgspec.json.encode(record).decode()
        name = f"clerk@{number:024x}"
        yield f"s_store{number:07}", "runtime", "runtime-store:substrate", name, "", 0, now - 10**8, now - 10**8, raw


def _find_kind(number: int) -> str:
    return ("agent", "runtime", "workflow")[number % 3]


def _list_sessions(numbers: Sequence[int], now: int) -> Iterator[tuple[object, ...]]:
    for number in numbers:
        kind = _find_kind(number)
        status, record = _RECORDS[kind]
        raw, time = msgspec.json.encode(record).decode(), now - 10**7 + number
        yield f"s_{number:012}", kind, "bench", f"{kind}{number}", status, EVENTS_PER_SESSION, time, time, raw


def _list_events(numbers: Sequence[int], chance: random.Random, now: int) -> Iterator[tuple[object, ...]]:
    for number in numbers:
        types = _TYPES[_find_kind(number)]
        for seq in range(1, EVENTS_PER_SESSION + 1):
            position = number * EVENTS_PER_SESSION + seq
            raw = msgspec.json.encode(make_body(seq, chance)).decode()
            yield position, f"s_{number:012}", seq, f"e_{position}", types[seq % len(types)], now - 10**7 + position, raw


def make_body(number: int, chance: random.Random) -> dict[str, Any]:
    """A body that has what any of the types needs."""
    text, call = " ".join(chance.choices(_WORDS, k=12)), f"c{number // 2}"
    return {
        "text": text,
        "content": [{"type": "text", "text": text}],
        "call": call,
        "id": call,
        "tool_use_id": call,
        "name": "Bash",
        "usage": {"input_tokens": number * 100, "cost_usd": number / 100},
        "activity": "implement",
        "step": "write",
        "output": text,
    }


class Examples(msgspec.Struct):
    """Ids of the examples, by the words that addresses of pages have in their place."""

    RUN: str = ""
    AGENT: str = ""
    RUNTIME: str = ""
    QUESTION: str = ""
    PERMISSION: str = ""

    def fill_in(self, address: str) -> str:
        """An address of a page with the ids of the examples."""
        return address.format(**msgspec.structs.asdict(self))


async def write_examples(application: Application, directory: Path, run: str, question: str) -> Examples:
    """Write what pages show in detail. `run`: a workflow session that waits at `question`."""
    ledger = (await application.records())._ledger
    await _write_workers(ledger, run)
    agent, permission = await _write_agent(application, directory), await _write_requests(ledger)
    runtime = await _write_runtime(application, str(directory))
    return Examples(run, agent, runtime, question, permission)


async def _write_workers(ledger: Ledger, run: str) -> None:
    """Agents that carry out a run."""
    for number in range(5):
        create = NewSession(kind="agent", name=f"worker{number}", parent=run)
        events = _make_agent_events(EVENTS_PER_SESSION)
        await ledger.commit(
            Change(session=f"s_worker{number:06}", create=create, events=events, record=_RECORDS["agent"][1], status="running")
        )


def _make_agent_events(count: int) -> tuple[NewEvent, ...]:
    chance, types = random.Random(2), _TYPES["agent"]
    return tuple(
        NewEvent(type=types[number % len(types)], body=make_body(number, chance), actor="agent") for number in range(count)
    )


async def _write_agent(application: Application, directory: Path) -> str:
    """A session of an agent with 2,000 events, and with a worktree in which it has changed ten files."""
    service = await application.agents(host=False)
    started = await service.start(StartAgent(name="example", prompt="Tidy up.", blueprint="echo", project=str(directory)))
    ledger = (await application.records())._ledger
    tree = directory / "worktree"
    base = _make_worktree(tree)
    record = {**(await ledger.session(started.id)).record, "worktree": str(tree), "branch": "main", "base": base}
    for _ in range(20):
        events = _make_agent_events(EVENTS_PER_SESSION)
        await ledger.commit(Change(session=started.id, events=events, record=record, status="running"))
    return started.id


def _make_worktree(tree: Path) -> str:
    tree.mkdir()
    for number in range(10):
        (tree / f"file{number}.txt").write_text("one\ntwo\nthree\n" * 100)
    _git(tree, "init", "-q")
    _git(tree, "add", ".")
    _git(tree, "commit", "-qm", "first")
    for number in range(10):
        (tree / f"file{number}.txt").write_text("one\nthree\nfour\n" * 100)
    return _git(tree, "rev-parse", "HEAD")


def _git(directory: Path, *arguments: str) -> str:
    command = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(directory), *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


async def _write_requests(ledger: Ledger) -> str:
    """Sessions that wait for answers to requests of every kind, with long texts; return the id of a permission."""
    found = ""
    for number in range(ASKING):
        requests = [_make_request(key) for key in range(REQUESTS)]
        asked = [NewEvent(type="run.waiting", body={"request": request.id}) for request in requests]
        events = (*_make_agent_events(50), *asked)
        create = NewSession(kind="agent", name=f"asking{number}")
        record = {**_RECORDS["agent"][1], "project": f"/work/project{number % 7}"}
        await ledger.commit(
            Change(
                session=f"s_asking{number:06}",
                create=create,
                events=events,
                record=record,
                status="waiting",
                requests=tuple(requests),
            )
        )
        found = requests[0].id
    return found


def _make_request(key: int) -> OpenRequest:
    text = " ".join(_WORDS * 20)
    edit = {"file_path": "/src/app.py", "old_string": "first\nsecond\n" * 20, "new_string": "first\nchanged\n" * 20}
    command = {"command": "make && make test", "cwd": "/work/shop"}
    kinds: Sequence[tuple[str, str, Mapping[str, Any]]] = (
        ("permission", f"May I edit the file?\n{text}", {"tool": "Edit", "input": edit}),
        ("permission", f"May I run the command?\n{text}", {"tool": "Bash", "input": command}),
        (APPROVAL, f"May the agent run this command?\n{text}", {"tool": "shell_exec"}),
        ("question", f"Which colour? {text}", {}),
        ("custom_tool", f"The agent asks for the result of weigh. {text}", {"tool": "weigh", "tool_use_id": "c3"}),
    )
    kind, question, detail = kinds[key % len(kinds)]
    options = _YES_OR_NO if kind in ("permission", APPROVAL) else ()
    return open_request(kind, f"request{key}", question, options, detail)


async def _write_runtime(application: Application, directory: str) -> str:
    """Agents of the runtime with a memory, and a session that was woken often and has an outcome."""
    service = await application.runtime()
    definition = AgentDefinition(model="scripted:bench", limits=Budget(tokens=0, wakes_per_day=0))
    for number in range(AGENTS):
        await define_agent(service.context, directory, f"agent{number}", definition, by="bench")
    await define_agent(service.context, PROJECT, "bench", definition, by="bench")
    substrate = await Substrate.open(service.context, PROJECT, "bench")
    for number in range(VERSIONS):
        # Each version adds a line and changes one.
        notes = "\n".join(
            f"- {line} {word}" for line, word in enumerate((*_WORDS * (number // 10 + 8), *_WORDS[: number % 10]))
        )
        text = write_section(render_text(MEMORY_FILES[0], "bench"), "notes", notes)
        await substrate.store_file(MEMORY_FILES[0], text.encode(), origin="person", by="person:bench")
    ports = RuntimePorts(models=Providers({"scripted": ScriptedProvider(_reply)}))
    bench = Bench(msgspec.structs.replace(service.context, ports=ports), [])
    bench.session = await bench.start()
    for number in range(WAKES):
        await bench.wake(f"Number {number}. {' '.join(_WORDS * 200)}")
    rubric = {"type": "text", "content": "The door is open."}
    outcome = {"type": "user.define_outcome", "description": "The shop opens", "rubric": rubric}
    await service.send(bench.session, [outcome], by="person:bench", channel="cli")
    return bench.session


def _reply(request: ModelRequest) -> ModelReply:
    """Call a tool, then answer."""
    if any(isinstance(block, TextBlock) for block in request.messages[-1].content):
        name = f"c{len(request.messages)}"
        return ModelReply(content=(ToolUseBlock(name, "memory_list", {}),), stop_reason="tool_use")
    return ModelReply(content=(TextBlock(" ".join(_WORDS * 20)),), stop_reason="end_turn")
