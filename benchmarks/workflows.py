"""Benchmark of a large workflow over stdio: CPU time of a call, and what many workflows and sessions add to it.

python -m benchmarks workflows

The yardstick is a minimal server: it reads the same JSON-RPC message, writes a reply of the same size and appends as many bytes
to SQLite with the same sync. It is started from here: `python -m benchmarks.workflows bare DATABASE`.
"""

from __future__ import annotations

import asyncio
import compileall
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from toon_format import encode

from benchmarks.figures import Figure
from benchmarks.mcp import BARE_PYTHON, FIDELIO, ROOT, environment, handshake, spawn_bare
from benchmarks.measure import interleaved, ratio
from fidelio.definitions.library.memo import TICK_MS

ROUNDS = 7
ACTIVITIES, STEPS, VARIABLES = 14, 20, 79
WALKS = 4
SESSIONS = 1000
AT_REST_SECONDS = 10.0
# What a call of such a walk adds to the events, on average.
EVENT_BYTES = 630


# The library


def write_workflow(root: Path, name: str, *, activities: int = ACTIVITIES, steps: int = STEPS) -> None:
    """Write a workflow of realistic size: a summary of 25 kB, activities of 8 kB."""
    ids = [f"activity-{number:02}" for number in range(activities)]
    variables = [
        {"name": f"variable_{n}", "type": "boolean", "description": "What it means. " * 12, "defaultValue": False}
        for n in range(VARIABLES)
    ]
    head = {"id": name, "version": "1.0.0", "title": name, "description": "A long text. " * 20, "initialActivity": ids[0]}
    folder = root / name / "activities"
    folder.mkdir(parents=True)
    (root / name / "workflow.toon").write_text(encode({**head, "variables": variables}))
    for number, activity in enumerate(ids):
        onward = [{"to": ids[number + 1], "isDefault": True}] if number + 1 < activities else []
        (folder / f"{number:02}-{activity}.toon").write_text(encode(_activity(activity, steps, onward)))


def let_settle() -> None:
    """Wait until the library caches the definitions: files changed a moment ago are read again with every call."""
    time.sleep(TICK_MS / 1000 + 0.1)


def _activity(name: str, steps: int, onward: list[dict[str, Any]]) -> dict[str, Any]:
    options = [{"id": "yes", "label": "Yes", "effect": {"setVariable": {"variable_1": True}}}, {"id": "no", "label": "No"}]
    return {
        "id": name,
        "version": "1.0.0",
        "name": name.title(),
        "steps": [{"id": f"step-{n}", "name": f"Step {n}", "description": "Do this. " * 40} for n in range(steps)],
        "checkpoints": [{"id": "ask", "name": "Ask", "message": "Shall we go on? " * 5, "options": options}],
        **({"transitions": onward} if onward else {}),
    }


# The client


class Client:
    """A process with a pipe on each side, and its CPU time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 1

    def request(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["result"]

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.request("tools/call", {"name": name, "arguments": arguments})
        assert not result.get("isError"), result
        return result

    def cpu_seconds(self) -> float:
        """CPU time of the process so far, read while it sleeps: the kernel adds the time of a thread when it stops."""
        threads = list(Path(f"/proc/{self.process.pid}/task").iterdir())
        give_up = time.monotonic() + AT_REST_SECONDS
        while any(_state_of(thread) != "S" for thread in threads):
            assert time.monotonic() < give_up, "The server does not come to rest."
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def resident_kb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])


def _state_of(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def started(command: list[str], home: str) -> Iterator[Client]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=_without_waiting(home), cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(handshake())
        process.stdin.flush()
        process.stdout.readline()
        try:
            yield Client(process)
        finally:
            process.stdin.close()
            process.wait(timeout=30)


def _without_waiting(home: str) -> dict[str, str]:
    return {**environment(home), "FIDELIO_MIN_RESPONSE_SECONDS": "0"}


def ours(library: Path) -> list[str]:
    return [*FIDELIO, "--workflows", str(library)]


# What is measured


class Call(NamedTuple):
    """CPU time of a call of a walk, and of the yardstick's answer to the same message at the same moment."""

    cost: float
    yardstick: float


# Answers a message with these arguments by a reply of this size, and returns the CPU time.
Yardstick = Callable[[dict[str, Any], int], float]


class Recording:
    """Calls tools and records the CPU time of each call."""

    def __init__(self, client: Client, yardstick: Yardstick | None = None) -> None:
        self._client = client
        self._yardstick = yardstick
        self.calls: list[Call] = []

    def __call__(self, tool: str, **arguments: Any) -> str:
        """Call a tool and return the token of its reply."""
        before = self._client.cpu_seconds()
        result = self._client.tool(tool, **arguments)
        cost = self._client.cpu_seconds() - before
        compared = self._yardstick(arguments, len(json.dumps(result))) if self._yardstick else 0.0
        self.calls.append(Call(cost, compared))
        return self.token_of(result)

    def token_of(self, result: dict[str, Any]) -> str:
        return str(result["_meta"]["session_token"])


MANIFEST = [{"step_id": f"step-{n}", "output": "done"} for n in range(STEPS)]


def walk(client: Client, workflow: str, yardstick: Yardstick | None = None) -> list[Call]:
    """Run a session to its end with all calls of an agent."""
    call = Recording(client, yardstick)
    token = call("start_session", workflow_id=workflow)
    token = call("get_workflow", session_token=token)
    for number in range(ACTIVITIES):
        more = {"step_manifest": MANIFEST} if number else {}
        token = call("next_activity", session_token=token, activity_id=f"activity-{number:02}", **more)
        token = call("get_activity", session_token=token)
        if number % 4 == 0:
            handle = call("yield_checkpoint", session_token=token, checkpoint_id="ask")
            handle = call("respond_checkpoint", checkpoint_handle=handle, option_id="yes")
            token = call("resume_checkpoint", session_token=handle)
    call("next_activity", session_token=token, activity_id="__terminal__", step_manifest=MANIFEST)
    return call.calls


async def cpu_of_walks(client: Client, workflow: str) -> float:
    """The median over the calls of some walks."""
    return median(call.cost for _ in range(WALKS) for call in walk(client, workflow))


def in_pairs(client: Client, yardstick: Yardstick, rounds: int) -> tuple[list[float], list[float]]:
    """The medians of each round, ours and the yardstick's.

    A call and its answer by the yardstick are measured one right after the other: a busy moment of the machine is longer than
    both. The first round only warms up.
    """
    costs, compared = [], []
    for _ in range(rounds + 1):
        calls = [call for _ in range(WALKS) for call in walk(client, "large", yardstick)]
        costs.append(median(call.cost for call in calls))
        compared.append(median(call.yardstick for call in calls))
    return costs[1:], compared[1:]


def in_turns(client: Client, yardstick: Yardstick, rounds: int) -> tuple[list[float], list[float]]:
    """The same with each server busy for several walks in a row, so that its CPU caches stay warm."""
    messages: list[tuple[dict[str, Any], int]] = []

    def note(arguments: dict[str, Any], size: int) -> float:
        messages.append((arguments, size))
        return 0.0

    walk(client, "large", note)
    costs, compared = [], []
    for _ in range(rounds + 1):
        costs.append(median(call.cost for _ in range(WALKS) for call in walk(client, "large")))
        compared.append(median(yardstick(*message) for _ in range(WALKS) for message in messages))
    return costs[1:], compared[1:]


def bare_echo(client: Client) -> Yardstick:
    def answer(arguments: dict[str, Any], size: int) -> float:
        before = client.cpu_seconds()
        client.request("echo", {"size": size, "arguments": arguments})
        return client.cpu_seconds() - before

    return answer


async def spawn_to_session(home: str, library: Path) -> float:
    began = time.perf_counter()
    with started(ours(library), home) as client:
        client.tool("start_session", workflow_id="large")
        return time.perf_counter() - began


async def spawn_to_tools(home: str, library: Path) -> float:
    began = time.perf_counter()
    with started(ours(library), home) as client:
        assert client.request("tools/list", {})["tools"]
        return time.perf_counter() - began


async def cost() -> list[Figure]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        library = Path(place) / "workflows"
        write_workflow(library, "large")
        let_settle()
        client = stack.enter_context(started(ours(library), place))
        database = str(Path(place) / "bare.db")
        bare = stack.enter_context(started([sys.executable, "-m", "benchmarks.workflows", "bare", database], place))
        costs, yardstick = in_pairs(client, bare_echo(bare), ROUNDS)
        busy, busy_yardstick = in_turns(client, bare_echo(bare), ROUNDS)
        memory = client.resident_kb()
    return [
        Figure(name="CPU of the server per session call", value=median(costs) * 1000, unit="ms"),
        Figure(
            name="CPU per session call / bare echo and synced append",
            value=ratio(costs, yardstick),
            unit="x",
            at_most=3.0,
        ),
        Figure(
            name="the same, each server busy for some walks on end",
            value=ratio(busy, busy_yardstick),
            unit="x",
            at_most=3.5,
        ),
        Figure(name="memory after full walks", value=memory / 1000, unit="MB", at_most=60.0),
    ]


async def starts() -> list[Figure]:
    with tempfile.TemporaryDirectory() as place:
        library = Path(place) / "workflows"
        write_workflow(library, "large")
        let_settle()
        measured = {
            "ours": partial(spawn_to_session, place, library),
            "bare": partial(spawn_bare, place),
            "tools": partial(spawn_to_tools, place, library),
        }
        found = await interleaved(ROUNDS, measured)
    return [
        Figure(
            name=f"spawn to tools/list reply / {' '.join(BARE_PYTHON[1:])}",
            value=ratio(found["tools"], found["bare"]),
            unit="x",
            at_most=2.5,
        ),
        Figure(name="spawn to first start_session reply", value=median(found["ours"]) * 1000, unit="ms"),
        Figure(
            name=f"spawn to first start_session reply / {' '.join(BARE_PYTHON[1:])}",
            value=ratio(found["ours"], found["bare"]),
            unit="x",
            at_most=4.0,
        ),
    ]


async def many_workflows() -> list[Figure]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        clients = {}
        for count in (10, 500):
            library = Path(place) / str(count)
            write_workflow(library, "large")
            for number in range(count - 1):
                write_workflow(library, f"small-{number}", activities=2, steps=1)
            clients[count] = stack.enter_context(started(ours(library), str(Path(place) / f"home-{count}")))
        let_settle()
        measured = {str(count): partial(cpu_of_walks, client, "large") for count, client in clients.items()}
        found = await interleaved(ROUNDS, measured)
    return [
        Figure(
            name="CPU per session call with 500 workflows / with 10",
            value=ratio(found["500"], found["10"]),
            unit="x",
            at_most=1.2,
        )
    ]


async def many_sessions() -> list[Figure]:
    with tempfile.TemporaryDirectory() as place:
        library = Path(place) / "workflows"
        write_workflow(library, "large")
        let_settle()
        with started(ours(library), place) as client:
            for _ in range(50):
                client.tool("start_session", workflow_id="large")
            before = client.resident_kb()
            for _ in range(SESSIONS):
                token = client.tool("start_session", workflow_id="large")["_meta"]["session_token"]
                client.tool("next_activity", session_token=token, activity_id="activity-00")
            growth = (client.resident_kb() - before) / SESSIONS
    return [Figure(name=f"memory per open session, {SESSIONS} of them", value=growth, unit="kB", at_most=10.0)]


async def measure() -> list[Figure]:
    return [*await cost(), *await starts(), *await many_workflows(), *await many_sessions()]


def main() -> list[Figure]:
    compileall.compile_dir(ROOT / "src", quiet=2)
    return asyncio.run(measure())


# The yardstick


async def serve_bare(database: str) -> None:
    import apsw  # noqa: PLC0415  # only the yardstick writes by itself

    connection = apsw.Connection(database)
    list(connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE events (body TEXT)"))
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        message = json.loads(line)
        connection.execute("INSERT INTO events VALUES (?)", ("x" * EVENT_BYTES,))
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": {"text": "x" * message["params"].get("size", 1)}}
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(serve_bare(sys.argv[2]))
