"""Benchmark of the web page: server time and weight of every page in a large ledger, live updates, and open streams.

python -m benchmarks web

The ledger is written directly into its tables, without the chain. `FIDELIO_BENCH_EVENTS` changes the number of events; a
session has a hundred. Server time is that of a whole request without a network: signing in, reading, rendering.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import apsw
import httpx2
import msgspec

from benchmarks.figures import Figure
from fidelio.app.application import Application, open_bundled
from fidelio.clock import now_ms
from fidelio.ledger.model import Change, NewEvent
from fidelio.ledger.sqlite import open_sqlite
from fidelio.settings import load_settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.demo_agent import connect_demo_agent
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.dialects import DEFAULT, load_tools
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states
from fidelio.surfaces.web.access import make_link
from fidelio.surfaces.web.application import create_pages
from fidelio.surfaces.web.pages import PageServices
from fidelio.surfaces.web.rendering import STATIC_FILES, read_static

EVENTS = int(os.environ.get("FIDELIO_BENCH_EVENTS", "1000000"))
EVENTS_PER_SESSION = 100
ROUNDS, COMMITS, STREAMS, IDLE_SECONDS = 15, 30, 200, 10.0
TOKEN = "token-of-the-benchmark"
# Running every check of the machine takes longer than any page, and nobody looks at that page all day.
PAGES = (
    "/inbox",
    "/inbox?state=all",
    "/sessions",
    "/sessions?kind=agent",
    "/sessions/lanes",
    "/workflows",
    "/agents",
    "/passkeys",
)
_BATCH = 1_000
_WORDS = ("garden", "ladder", "window", "marmalade", "harbour", "violin", "granite", "lantern", "orchard", "compass")
_TYPES = ("run.starting", "agent.said", "agent.called", "agent.returned", "run.used")
_SESSION = """
INSERT INTO sessions (id, kind, namespace, status, reason, last_seq, head, created_at, updated_at, record)
VALUES (?, 'agent', '', 'running', '', ?, x'', ?, ?, ?)
"""
_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, 'agent', ?, ?, x'', x'', x'')"


def fill(path: Path, events: int) -> str:
    """Write sessions of agents into a ledger; return the id of the newest."""
    connection, chance, now = apsw.Connection(str(path)), random.Random(1), now_ms()
    record = msgspec.json.encode({"blueprint": "writer", "project": "/work/shop"}).decode()
    count = max(1, events // EVENTS_PER_SESSION)
    for first in range(0, count, _BATCH):
        numbers = range(first, min(first + _BATCH, count))
        with connection:
            rows = [(f"s_{n:012}", EVENTS_PER_SESSION, now - 10**7 + n, now - 10**7 + n, record) for n in numbers]
            connection.executemany(_SESSION, rows)
            connection.executemany(_EVENT, _list_events(numbers, chance, now))
    connection.close()
    return f"s_{count - 1:012}"


def _list_events(numbers: Sequence[int], chance: random.Random, now: int) -> Iterator[tuple[object, ...]]:
    for number in numbers:
        for seq in range(1, EVENTS_PER_SESSION + 1):
            position = number * EVENTS_PER_SESSION + seq
            text = " ".join(chance.choices(_WORDS, k=12))
            body = {
                "text": text,
                "call": f"c{seq // 5}",
                "name": "Bash",
                "usage": {"input_tokens": seq * 100, "cost_usd": seq / 100},
            }
            raw = msgspec.json.encode(body).decode()
            yield position, f"s_{number:012}", seq, f"e_{position}", _TYPES[seq % 5], now - 10**8 + position, raw


class Server:
    """A server of the page in this process, and a client that is signed in and needs no network."""

    def __init__(self, application: Application, client: httpx2.AsyncClient, url: str, run: str) -> None:
        self.application, self.client, self.url, self.run = application, client, url, run

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client over the network that is signed in."""
        limits = httpx2.Limits(max_connections=STREAMS + 5)
        async with httpx2.AsyncClient(base_url=self.url, timeout=60, limits=limits, trust_env=False) as client:
            await client.get(make_link(self.application.keys(), self.url))
            yield client


@asynccontextmanager
async def serve(directory: str, events: int) -> AsyncIterator[tuple[Server, str]]:
    """A server of a large ledger, and the id of a session of an agent in it. A workflow waits for a person."""
    settings = load_settings(str(Path(directory) / "home"), environ={})
    settings.home.ensure()
    await (await open_sqlite(settings.home.ledger)).close()
    newest = fill(settings.home.ledger, events)
    async with AsyncExitStack() as stack:
        application = await stack.enter_async_context(open_bundled(settings))
        pages = create_pages(PageServices(application, directory))
        protocol = Protocol(make_identity(settings), load_tools(DEFAULT, application), make_request_states(settings))
        app = create_app({"/mcp": protocol}, bearer_token=TOKEN, pages=pages)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
        url = await address
        demo = await stack.enter_async_context(connect_demo_agent(f"{url}/mcp", TOKEN, project="project"))
        run = await demo.start_session()
        await demo.advance_to_question()
        transport = httpx2.ASGITransport(app=pages)
        client = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, base_url=url))
        await client.get(make_link(application.keys(), url))
        await (await application.records())._ledger.update_index()
        yield Server(application, client, url, run), newest
        serving.cancel()
        await asyncio.wait([serving])


async def time_page(server: Server, path: str) -> tuple[float, int]:
    """The median time of a page in milliseconds, and its compressed size in bytes."""
    times, size = list[float](), 0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        page = await server.client.get(path)
        times.append((time.perf_counter() - began) * 1000)
        assert page.status_code == 200, f"{path}: {page.status_code}"
        size = len(gzip.compress(page.content))
    # The first one reads templates and definitions.
    return median(times[1:]), size


async def append(server: Server) -> None:
    """Commit an event to the run, as an agent does."""
    event = NewEvent(type="agent.said", body={"text": "Another thing."}, actor="agent")
    await (await server.application.records())._ledger.commit(Change(session=server.run, events=(event,)))


async def measure_update(server: Server) -> list[float]:
    """Milliseconds from a commit to the new page, over the network: the message of the stream, then the page."""
    times = list[float]()
    async with server.connect() as client, client.stream("GET", "/live?after=0") as stream:
        messages = stream.aiter_lines()
        await _read_message(messages.__anext__)
        for _ in range(COMMITS):
            await asyncio.sleep(0.1)  # commits that follow at once are shown together, which is not what is measured
            began = time.perf_counter()
            await append(server)
            await _read_message(messages.__anext__)
            await client.get(f"/sessions/{server.run}")
            times.append((time.perf_counter() - began) * 1000)
    return times


async def _read_message(read: Callable[[], Awaitable[str]]) -> None:
    async with asyncio.timeout(30):
        while not (await read()).startswith("data:"):
            pass


async def measure_idle(server: Server) -> float:
    """The share of a core that the open streams take while nothing happens. Their clients are in this process too."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(server.connect())
        for _ in range(STREAMS):
            stream = await stack.enter_async_context(client.stream("GET", "/live?after=0"))
            await _read_message(stream.aiter_lines().__anext__)
        before, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(IDLE_SECONDS)  # not for anything to happen: nothing is what is measured
        return (time.process_time() - before) / (time.perf_counter() - began) * 100


async def measure(events: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        async with serve(directory, events) as (server, newest):
            run, agent = f"/sessions/{server.run}", f"/sessions/{newest}"
            own = (run, f"{run}/report", f"{run}/proof", f"{run}/events/1", agent, f"{agent}/events/5", "/workflows/hello")
            found = {path: await time_page(server, path) for path in (*PAGES, *own, "/search?q=marmalade+violin")}
            update, idle = median(await measure_update(server)), await measure_idle(server)
    names = {server.run: "RUN", newest: "AGENT"}
    figures = [
        Figure(name=f"{_rename(path, names)}: median", value=milliseconds, unit="ms", at_most=30)
        for path, (milliseconds, _) in found.items()
    ]
    static = sum(len(gzip.compress(read_static(name) or b"")) for name in STATIC_FILES)
    heaviest = (static + max(size for _, size in found.values())) / 1000
    return [
        *figures,
        Figure(name="heaviest page with all its files, compressed", value=heaviest, unit="kB", at_most=150),
        Figure(name="from a commit to the new page: median", value=update, unit="ms", at_most=100),
        Figure(name=f"{STREAMS} open streams while nothing happens", value=idle, unit="% of a core", at_most=10),
    ]


def _rename(path: str, names: dict[str, str]) -> str:
    for name, word in names.items():
        path = path.replace(name, word)
    return path


def main(events: int = EVENTS) -> list[Figure]:
    return asyncio.run(measure(events))
