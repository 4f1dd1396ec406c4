"""Benchmark of a large workflow over HTTP: CPU time of a session call, against an echo tool on the SDK alone.

python -m benchmarks http_sessions

Every call of the walk is compared with an echo in the same revision and of the same size, made at the same moment. The echo
records nothing, so the cost of the session, including its synced append, is part of the figure. It goes through the SDK; our
`Protocol` answers our calls.
"""

from __future__ import annotations

import compileall
import http.client
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure
from benchmarks.mcp import ROOT, environment, http_request
from benchmarks.measure import ratio
from benchmarks.workflows import Client, Yardstick, in_pairs, in_turns, let_settle, write_workflow

ROUNDS = 7
REVISIONS = ("2026-07-28", "2025-11-25")


class HttpClient(Client):
    """The same client with a persistent connection in place of pipes."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, revision: str) -> None:
        super().__init__(process)
        self._connection = http.client.HTTPConnection(address, timeout=60)
        self._revision = revision

    def request(self, method: str, params: dict[str, Any]) -> Any:
        assert method == "tools/call"
        body, headers = http_request(self._revision, 1, params)
        self._connection.request("POST", "/mcp", body, headers)
        return json.loads(self._connection.getresponse().read())["result"]


@contextmanager
def serving(command: list[str], home: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server, and the address that it prints first."""
    environ = {**environment(home), "FIDELIO_MIN_RESPONSE_SECONDS": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, cwd=ROOT) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().split()[-1]
        try:
            yield process, address.removeprefix("http://").removesuffix("/mcp")
        finally:
            process.terminate()


def sdk_echo(client: HttpClient) -> Yardstick:
    def answer(_: dict[str, Any], size: int) -> float:
        before = client.cpu_seconds()
        client.tool("echo", size=size)
        return client.cpu_seconds() - before

    return answer


def measure() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        library = Path(place) / "workflows"
        write_workflow(library, "large")
        let_settle()
        ours = [sys.executable, "-m", "fidelio", "up", "--port", "0", "--no-token", "--workflows", str(library)]
        bare = [sys.executable, "-m", "benchmarks.mcp", "bare"]
        sessions, echo = (stack.enter_context(serving(command, place)) for command in (ours, bare))
        for revision in REVISIONS:
            figures += compare(HttpClient(*sessions, revision), HttpClient(*echo, revision), revision)
    return figures


def compare(ours: HttpClient, bare: HttpClient, revision: str) -> list[Figure]:
    costs, yardstick = in_pairs(ours, sdk_echo(bare), ROUNDS)
    busy, busy_yardstick = in_turns(ours, sdk_echo(bare), ROUNDS)
    name = f"CPU per session call over HTTP, {revision}"
    return [
        Figure(name=name, value=median(costs) * 1000, unit="ms"),
        Figure(name=f"{name} / echo on the SDK", value=ratio(costs, yardstick), unit="x", at_most=1.5),
        Figure(name=f"{name}, busy / echo on the SDK, busy", value=ratio(busy, busy_yardstick), unit="x", at_most=1.5),
    ]


def main() -> list[Figure]:
    compileall.compile_dir(ROOT / "src", quiet=2)
    return measure()
