"""Benchmark of the web page and the API for scripts: server time and weight in a large ledger, live updates, open streams.

python -m benchmarks web

`FIDELIO_BENCH_EVENTS` changes the number of events; a session has a hundred. Server time is that of a whole request without a
network: signing in, reading, rendering.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.routing import Mount

from benchmarks.figures import Figure
from benchmarks.web_ledger import Examples, fill, write_examples
from fidelio.app.application import Application, open_bundled
from fidelio.ledger.model import Change, NewEvent
from fidelio.ledger.sqlite import open_sqlite
from fidelio.settings import load_settings
from fidelio.surfaces.http.api.application import create_json_routes
from fidelio.surfaces.http.api.operations import JsonServices
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.connections import PeerAddress
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
ROUNDS, COMMITS, STREAMS, IDLE_SECONDS = 25, 30, 200, 10.0
TOKEN = "token-of-the-benchmark"
# The most that a page may take of a core, in milliseconds.
MOST_MS = 30
# Addresses by the path of their route. Words in braces stand for ids of `Examples`.
PAGES: Mapping[str, tuple[str, ...]] = {
    "/inbox": ("/inbox", "/inbox?state=all", "/inbox?kind=question"),
    "/inbox/{request}": ("/inbox/{QUESTION}", "/inbox/{PERMISSION}"),
    "/sessions": ("/sessions", "/sessions?kind=agent"),
    "/sessions/lanes": ("/sessions/lanes",),
    "/sessions/{session}": ("/sessions/{RUN}", "/sessions/{AGENT}", "/sessions/{RUNTIME}"),
    "/sessions/{session}/report": ("/sessions/{RUN}/report",),
    "/sessions/{session}/proof": ("/sessions/{RUN}/proof", "/sessions/{RUNTIME}/proof"),
    "/sessions/{session}/file": ("/sessions/{RUN}/file",),
    "/sessions/{session}/events/{seq}": ("/sessions/{RUN}/events/1", "/sessions/{AGENT}/events/5"),
    "/sessions/{session}/changes": ("/sessions/{AGENT}/changes",),
    "/sessions/{session}/memory": ("/sessions/{RUNTIME}/memory",),
    "/sessions/{session}/delete": ("/sessions/s_000000000000/delete",),
    "/workflows": ("/workflows",),
    "/workflows/{workflow}": ("/workflows/hello", "/workflows/work-package"),
    "/workflows/{workflow}/source": ("/workflows/hello/source", "/workflows/work-package/source"),
    "/agents": ("/agents",),
    "/passkeys": ("/passkeys",),
    "/passkeys/registration": ("/passkeys/registration",),
    "/webhooks": ("/webhooks",),
    "/search": ("/search?q=marmalade+violin",),
    "/health-check": ("/health-check",),
}
# Addresses of the API for scripts.
API = (
    *("/api/requests", "/api/requests?kind=question", "/api/requests/{QUESTION}"),
    *("/api/sessions", "/api/sessions?kind=agent", "/api/sessions/{RUN}", "/api/sessions/{AGENT}", "/api/sessions/{RUNTIME}"),
    *("/api/events", "/api/sessions/{RUN}/events", "/api/sessions/{RUN}/report", "/api/sessions/{RUN}/verification"),
    *("/api/workflows", "/api/workflows/hello", "/api/workflows/hello/drawing", "/api/workflows/hello/findings"),
    *("/api/agents", "/api/search?text=marmalade+violin", "/api/health", "/api/webhooks", "/api/openapi.json"),
)
# Routes that are not measured as pages, with the reason.
NOT_PAGES: Mapping[str, str] = {
    "/": "sends the browser to the inbox or to the sessions",
    "/live": "is a stream; open streams and their delay are measured apart",
    "/sign-in": "reads nothing",
    "/passkeys/at-localhost": "sends the browser to another address of this server",
    "/passkeys/confirmation": "needs a new key; reads what the list of keys and a challenge read",
    "/static/{name:path}": "sends files; their weight is that of every page",
    "/{rest:path}": "says that there is no such page",
}


class Server:
    """A server of the page in this process, and a client that is signed in and needs no network."""

    def __init__(self, application: Application, client: httpx2.AsyncClient, url: str, examples: Examples) -> None:
        self.application, self.client, self.url, self.examples = application, client, url, examples

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client over the network that is signed in."""
        limits = httpx2.Limits(max_connections=STREAMS + 5)
        async with httpx2.AsyncClient(base_url=self.url, timeout=60, limits=limits, trust_env=False) as client:
            await client.get(make_link(self.application.keys(), self.url))
            yield client


@asynccontextmanager
async def serve(directory: str, events: int) -> AsyncIterator[Server]:
    """A server of a large ledger with an example of everything. A workflow waits for a person."""
    settings = load_settings(str(Path(directory) / "home"), environ={})
    settings.home.ensure()
    await (await open_sqlite(settings.home.ledger)).close()
    fill(settings.home.ledger, events)
    async with AsyncExitStack() as stack:
        application = await stack.enter_async_context(open_bundled(settings))
        pages = create_pages(PageServices(application, directory))
        both = Starlette(routes=[*create_json_routes(JsonServices(application, directory)), Mount("/", pages)])
        protocol = Protocol(make_identity(settings), load_tools(DEFAULT, application), make_request_states(settings))
        app = create_app({"/mcp": protocol}, bearer_token=TOKEN, pages=pages)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
        url = await address
        demo = await stack.enter_async_context(connect_demo_agent(f"{url}/mcp", TOKEN, project="project"))
        run = await demo.start_session()
        examples = await write_examples(application, Path(directory), run, await demo.advance_to_question())
        # As that of a browser, whose process is looked up once for a connection.
        transport = httpx2.ASGITransport(app=both, client=PeerAddress(("127.0.0.1", 1)))
        client = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, base_url=url, timeout=60))
        await client.get(make_link(application.keys(), url))
        await (await application.records())._ledger.update_index()
        yield Server(application, client, url, examples)
        serving.cancel()
        await asyncio.wait([serving])


class PageCost(msgspec.Struct, frozen=True):
    """What a page costs: milliseconds of each round, and its compressed size in bytes."""

    wall: list[float]
    cpu: list[float]
    size: int


async def time_pages(server: Server, rounds: int = ROUNDS) -> dict[str, PageCost]:
    """The cost of every page, by its address. A slow moment of the machine meets one round of many pages."""
    measured = [path for paths in (*PAGES.values(), API) for path in paths]
    costs = {path: PageCost([], [], len(gzip.compress(await _get(server, path)))) for path in measured}
    for _ in range(rounds):
        for path, cost in costs.items():
            began, cpu = time.perf_counter(), _read_cpu()
            await _get(server, path)
            cost.cpu.append((_read_cpu() - cpu) * 1000)
            cost.wall.append((time.perf_counter() - began) * 1000)
    return costs


async def _get(server: Server, path: str) -> bytes:
    page = await server.client.get(server.examples.fill_in(path))
    assert page.status_code == 200, f"{path}: {page.status_code}"
    return page.content


def _read_cpu() -> float:
    """CPU time of this process, and of the programs that it has waited for: `git` compares the files of a worktree."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def append(server: Server) -> None:
    """Commit an event to the run, as an agent does."""
    event = NewEvent(type="agent.said", body={"text": "Another thing."}, actor="agent")
    await (await server.application.records())._ledger.commit(Change(session=server.examples.RUN, events=(event,)))


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
            await client.get(f"/sessions/{server.examples.RUN}")
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
        async with serve(directory, events) as server:
            costs = await time_pages(server)
            update, idle = median(await measure_update(server)), await measure_idle(server)
    return [
        *list_figures(costs),
        Figure(name="from a commit to the new page: median", value=update, unit="ms", at_most=100),
        Figure(name=f"{STREAMS} open streams while nothing happens", value=idle, unit="% of a core", at_most=10),
    ]


def list_figures(costs: Mapping[str, PageCost]) -> Iterator[Figure]:
    """The bound is on CPU, which other work on the machine hardly changes; the best round shows that no page waits."""
    for path, cost in costs.items():
        yield Figure(name=f"{path}: CPU, median", value=median(cost.cpu), unit="ms", at_most=MOST_MS)
        yield Figure(name="... as seen by a client, median", value=median(cost.wall), unit="ms")
        yield Figure(name="... best round", value=min(cost.wall), unit="ms", at_most=MOST_MS)
    static = sum(len(gzip.compress(read_static(name) or b"")) for name in STATIC_FILES)
    heaviest = (static + max(cost.size for cost in costs.values())) / 1000
    yield Figure(name="heaviest page with all its files, compressed", value=heaviest, unit="kB", at_most=150)


def main(events: int = EVENTS) -> list[Figure]:
    return asyncio.run(measure(events))
