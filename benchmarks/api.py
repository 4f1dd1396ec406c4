"""Benchmark of the HTTP API of `fidelio up`: creating sessions, sending events, streams that are open, and streams that wait.

python -m benchmarks api

The server is a process of its own, and its clients speak plain HTTP, so that they need little of the two cores. A rate is bound
twice: per second of CPU time of the server, which does not depend on what else the machine does, and per second.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure
from benchmarks.mcp import environment

TOKEN = "key-of-the-benchmark"
CLIENTS = 8
SESSIONS, EVENTS, TURNS, STREAMS = 400, 2_400, 40, 200
IDLE_SECONDS = 20.0
SECONDS = 60.0
_TICK = os.sysconf("SC_CLK_TCK")


class ApiServer:
    """A server that runs, seen by its clients."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid = pid
        self._port = port

    def connect(self) -> ApiConnection:
        return ApiConnection(http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS))

    def cpu_seconds(self) -> float:
        times = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / _TICK

    @contextmanager
    def stream(self, session: str) -> Iterator[socket.socket]:
        request = f"GET /v1/sessions/{session}/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: {TOKEN}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self._port), timeout=SECONDS) as opened:
            opened.sendall(request.encode())
            head = opened.recv(65536)
            assert head.startswith(b"HTTP/1.1 200"), head
            yield opened


class ApiConnection:
    """A connection that stays open."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"x-api-key": TOKEN, "content-type": "application/json"}
        self._connection.request("POST", f"/v1/{path}", json.dumps(body), headers)
        response = self._connection.getresponse()
        found: dict[str, Any] = json.loads(response.read())
        assert response.status == 200, found
        return found


@contextmanager
def serve(home: str) -> Iterator[ApiServer]:
    port = _find_free_port()
    command = [sys.executable, "-m", "fidelio", "up", "--port", str(port), "--token", TOKEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(f"{home}/home"), cwd=home, text=True) as process:
        assert process.stdout is not None
        try:
            assert str(port) in process.stdout.readline()
            yield ApiServer(process.pid, port)
        finally:
            process.terminate()


def _find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _text(text: str) -> dict[str, Any]:
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def _in_parallel(server: ApiServer, count: int, work: Callable[[ApiConnection, int], object]) -> tuple[float, float]:
    """Do something `count` times over a few connections. Returns how often in a second of the server's CPU, and in a second."""
    numbers = iter(range(count))

    def run(connection: ApiConnection) -> None:
        for number in numbers:
            work(connection, number)

    connections = [server.connect() for _ in range(CLIENTS)]
    cpu, began = server.cpu_seconds(), time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(run, connections))
    return count / (server.cpu_seconds() - cpu), count / (time.perf_counter() - began)


def _rates(name: str, rates: tuple[float, float], at_least: float) -> list[Figure]:
    per_cpu, per_second = rates
    return [
        Figure(name=f"{name} per second of CPU", value=per_cpu, unit="1/s", at_least=at_least),
        Figure(name=f"{name} per second, {CLIENTS} clients", value=per_second, unit="1/s", at_least=at_least),
    ]


def measure_creating(server: ApiServer, agent: str, sessions: list[str]) -> list[Figure]:
    body = {"agent": agent, "environment_id": "env_default"}
    rates = _in_parallel(server, SESSIONS, lambda api, _: sessions.append(api.post("sessions", body)["id"]))
    return _rates("sessions created", rates, 50)


def measure_sending(server: ApiServer, agent: str) -> list[Figure]:
    """Messages to sessions that wait for a person: they are stored and queued, and no turn begins."""
    api = server.connect()
    body = {"agent": agent, "environment_id": "env_default"}
    waiting = [api.post("sessions", body)["id"] for _ in range(CLIENTS)]
    for session in waiting:
        with server.stream(session) as stream:
            api.post(f"sessions/{session}/events", {"events": [_text("deploy {}")]})
            _read_until(stream, "session.status_idle")
    rates = _in_parallel(
        server, EVENTS, lambda api, number: api.post(f"sessions/{waiting[number % CLIENTS]}/events", {"events": [_text("Hi.")]})
    )
    return _rates("events sent", rates, 300)


def measure_delivery(server: ApiServer, session: str) -> list[Figure]:
    """From the time of a commit, and from sending a message, to the arrival in a stream that is open."""
    api, committed, sent = server.connect(), [], []
    with server.stream(session) as stream:
        for _ in range(TURNS):
            began = time.time()
            api.post(f"sessions/{session}/events", {"events": [_text("Hi.")]})
            events = _read_until(stream, "session.status_idle")
            sent.append(next(at for at, event in events if event["type"] == "user.message") - began)
            committed += [at - _time_of(event) for at, event in events if event["type"] == "session.status_idle"]
    return [
        Figure(name="from a commit to an open stream, median", value=median(committed) * 1000, unit="ms", at_most=50),
        Figure(name="from sending to an open stream, median", value=median(sent) * 1000, unit="ms"),
    ]


def _time_of(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["processed_at"]).timestamp()


def _read_until(stream: socket.socket, last: str) -> list[tuple[float, dict[str, Any]]]:
    """The events up to one of a type, each with the time of its arrival."""
    found, rest = list[tuple[float, dict[str, Any]]](), b""
    while not found or found[-1][1]["type"] != last:
        rest += stream.recv(65536)
        at = time.time()
        *blocks, rest = rest.split(b"\n\n")
        lines = (line for block in blocks for line in block.splitlines())
        found += [(at, json.loads(line[6:])) for line in lines if line.startswith(b"data: {")]
    return found


def measure_idle(server: ApiServer, sessions: list[str]) -> list[Figure]:
    before = _cpu_share(server)
    with ExitStack() as stack:
        for session in sessions[:STREAMS]:
            stack.enter_context(server.stream(session))
        share = _cpu_share(server)
    return [
        Figure(name="CPU of an idle server", value=before * 100, unit="% of a core"),
        Figure(name=f"CPU of {STREAMS} idle streams", value=share * 100, unit="% of a core", at_most=10),
    ]


def _cpu_share(server: ApiServer) -> float:
    """The share of a core that the server needs while nothing is sent to it, over more than one round of pings."""
    spent = []
    for _ in range(2):
        spent.append((server.cpu_seconds(), time.perf_counter()))
        time.sleep(IDLE_SECONDS)
    spent.append((server.cpu_seconds(), time.perf_counter()))
    return min((after[0] - before[0]) / (after[1] - before[1]) for before, after in pairwise(spent))


def main() -> list[Figure]:
    tool = {"type": "custom", "name": "deploy", "description": "Deploy it.", "input_schema": {"type": "object"}}
    with tempfile.TemporaryDirectory() as home, serve(home) as server:
        api, sessions = server.connect(), list[str]()
        agent = str(api.post("agents", {"name": "Helper", "model": "scripted:steps", "tools": [tool]})["id"])
        created = measure_creating(server, agent, sessions)
        sent = measure_sending(server, agent)
        return [*created, *sent, *measure_delivery(server, sessions[0]), *measure_idle(server, sessions)]
