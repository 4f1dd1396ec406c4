"""Takes the screenshots of the web page that README and docs show, of a server with the same sessions each time.

python -m scripts.page_pictures [DIRECTORY]

Needs Chromium and the packages for tests. Paths of this machine are replaced by those of a user before a picture is taken.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from playwright.async_api import Browser, async_playwright

from fidelio.app.application import Application, open_bundled
from fidelio.app.webhooks.sending import DELIVERED, QUEUED
from fidelio.app.webhooks.settings import Webhooks
from fidelio.clock import now_ms
from fidelio.inbox import NewRequest, open_request
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.runtime.agents.files import DEFAULT, resolve_agent
from fidelio.runtime.service import NewAgentSession
from fidelio.runtime.stores import open_store
from fidelio.settings import load_settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.demo_agent import connect_demo_agent
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.dialects import DEFAULT as DIALECT
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states
from fidelio.surfaces.web.access import make_link
from fidelio.surfaces.web.application import create_pages
from fidelio.surfaces.web.pages import PageServices

PROJECT = Path(__file__).resolve().parents[1]
IMAGES = PROJECT / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
TOKEN, MINUTE = "token-of-the-pictures", 60_000
DESK, PHONE = 1280, 375
SHOP = "/work/shop"


class Picture(msgspec.Struct, frozen=True):
    """A page to take. `path` may name the sessions `{run}`, `{agent}` and `{runtime}`."""

    name: str
    path: str
    is_phone: bool = False
    is_dark: bool = False
    height: int = 800


PICTURES = (
    Picture("inbox", "/inbox"),
    Picture("inbox-phone", "/inbox", is_phone=True, is_dark=True),
    Picture("sessions", "/sessions"),
    Picture("lanes", "/sessions/lanes", height=480),
    Picture("run", "/sessions/{run}", is_dark=True, height=1200),
    Picture("report", "/sessions/{run}/report", height=700),
    Picture("proof", "/sessions/{run}/proof"),
    Picture("agent", "/sessions/{agent}", height=1300),
    Picture("runtime", "/sessions/{runtime}", height=1000),
    Picture("workflows", "/workflows"),
    Picture("workflow", "/workflows/hello"),
    Picture("source", "/workflows/hello/source"),
    Picture("agents", "/agents"),
    Picture("search", "/search?q=receipt"),
    Picture("passkeys", "/passkeys"),
    Picture("webhooks", "/webhooks", height=900),
    Picture("health", "/health-check"),
)


def _event(minutes: float, type_: str, actor: str = "agent", **body: Any) -> NewEvent:
    """An event so many minutes ago."""
    return NewEvent(type=type_, body=body, actor=actor, time=now_ms() - round(minutes * MINUTE))


def _permission() -> NewRequest:
    old = "def total(items):\n    return sum(item.price for item in items)\n"
    new = "def total(items, discount=0):\n    return sum(item.price for item in items) * (1 - discount)\n"
    detail = {"tool": "Edit", "input": {"file_path": "shop/receipt.py", "old_string": old, "new_string": new}}
    options = ({"id": "allow", "label": "Allow it once"}, {"id": "refuse", "label": "Refuse it"})
    return open_request("permission", "edit", "writer wants to use Edit", options, detail)


def _list_agent_events() -> list[NewEvent]:
    """Half an hour of an agent: calls, usage, and a question at the end."""
    calls = (("Read", "shop/receipt.py"), ("Bash", "pytest tests/test_receipt.py"), ("Read", "tests/test_receipt.py"))
    events = [_event(34, "run.starting")]
    for number, (tool, argument) in enumerate(calls):
        at = 30 - 8 * number
        usage = {
            "turns": number + 1,
            "input_tokens": 4_000 * (number + 1) ** 2,
            "output_tokens": 600,
            "cost_usd": 0.04 * (number + 1),
        }
        events += [
            _event(at, "agent.called", call=f"c{number}", name=tool, arguments=argument),
            _event(
                at - 1,
                "agent.returned",
                call=f"c{number}",
                ok=number != 1,
                text="1 failed, 11 passed" if number == 1 else "41 lines",
            ),
            _event(at - 2, "run.used", usage=usage),
        ]
    return [*events, _event(7, "agent.said", text="The receipt ignores the discount. I will add it to the total.")]


async def fill(application: Application) -> dict[str, str]:
    """Sessions of agents; returns their ids."""
    records, request = await application.records(), _permission()
    ledger = records._ledger  # noqa: SLF001  # events of other programs can be written in no other way
    record = {"blueprint": "writer", "project": SHOP}
    waiting = _event(6, "run.waiting", request=request.id)
    agent = Change(
        session="s_writer000001",
        create=NewSession(kind="agent", name="receipts"),
        events=(*_list_agent_events(), waiting),
        record=record,
        status="waiting",
        requests=(request,),
    )
    await ledger.commit(agent)
    for number, (name, parent, status) in enumerate(
        (("reviews", "s_writer000001", "running"), ("docs", None, "succeeded"), ("search", None, "stopped"))
    ):
        began = 28 - 6 * number
        end = {"running": "run.going-on", "succeeded": "run.succeeded", "stopped": "run.stopped"}[status]
        events = (_event(began, "run.starting"), _event(began - 5, "run.waiting"), _event(began - 8, end))
        create = NewSession(kind="agent", name=name, parent=parent)
        await ledger.commit(Change(session=f"s_other00000{number}", create=create, events=events, record=record, status=status))
    await _add_webhook(application, request.id)
    return {"agent": agent.session, "runtime": await _start_runtime(application)}


async def _add_webhook(application: Application, request: str) -> None:
    """A webhook with a delivery that was accepted at the second attempt. Nothing is sent."""
    webhooks = Webhooks(application.settings.home)
    webhook = webhooks.add("https://chat.example/fidelio", "the secret of the pictures", now=now_ms() - 50 * MINUTE)
    # Held until the script ends: the page would say that nobody sends.
    webhooks.lock().acquire()
    context = (await application.runtime()).context
    store = await open_store(context, "webhooks")
    delivery = f"{webhook.id}.{request}"
    queued = _event(6, QUEUED, "webhooks", delivery=delivery, webhook=webhook.id, request=request)
    delivered = _event(5, DELIVERED, "webhooks", delivery=delivery, status=204, attempt=2)
    await context.ledger.commit(store.change(queued, delivered))


async def _start_runtime(application: Application) -> str:
    """A runtime agent with an outcome."""
    runtime = await application.runtime()
    found = await resolve_agent(runtime.context, SHOP, DEFAULT)
    session = await runtime.start_session(NewAgentSession(project=SHOP, agent=found.name, version=found.version))
    rubric = {"type": "text", "content": "- Every receipt shows the discount.\n- All tests pass."}
    outcome = {"type": "user.define_outcome", "description": "Receipts are right", "rubric": rubric}
    await runtime.send(session, [outcome], by="person:you", channel="cli")
    return session


@asynccontextmanager
async def serve(directory: str) -> AsyncIterator[tuple[Application, str, dict[str, str]]]:
    """A server with the sessions of the pictures: the application, its address, and the ids."""
    settings = load_settings(str(Path(directory) / "home"), environ={})
    settings.home.ensure()
    async with AsyncExitStack() as stack:
        application = await stack.enter_async_context(open_bundled(settings))
        protocol = Protocol(make_identity(settings), load_tools(DIALECT, application), make_request_states(settings))
        app = create_app({"/mcp": protocol}, bearer_token=TOKEN, pages=create_pages(PageServices(application, SHOP)))
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
        url = await address
        demo = await stack.enter_async_context(connect_demo_agent(f"{url}/mcp", TOKEN, project="shop"))
        run = await demo.start_session()
        await demo.advance_to_question()
        yield application, url, {"run": run, **await fill(application)}
        serving.cancel()
        await asyncio.wait([serving])


# Replaces what the keys of a mapping say in every text of the page.
_REPLACE_TEXTS = """replacements => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode())
    for (const [text, other] of Object.entries(replacements))
      walker.currentNode.data = walker.currentNode.data.replaceAll(text, other);
}"""


async def take(browser: Browser, picture: Picture, link: str, target: Path, paths: Mapping[str, str]) -> None:
    context = await browser.new_context(
        viewport={"width": PHONE if picture.is_phone else DESK, "height": picture.height},
        color_scheme="dark" if picture.is_dark else "light",
        reduced_motion="reduce",
    )
    page = await context.new_page()
    await page.goto(link)
    await page.evaluate(_REPLACE_TEXTS, paths)
    await page.screenshot(path=target / f"web-{picture.name}.png")
    await context.close()


async def take_all(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="fidelio-") as directory:
        async with serve(directory) as (application, url, sessions), async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            paths = {
                sys.argv[0]: "fidelio",
                directory: f"{SHOP}/.fidelio",
                sys.prefix: "/usr/lib/fidelio",
                str(PROJECT): "/usr/lib/fidelio",
            }
            for picture in PICTURES:
                # Passkeys are registered under the name of the host.
                base = url.replace("127.0.0.1", "localhost") if picture.path == "/passkeys" else url
                await take(
                    browser, picture, make_link(application.keys(), base, picture.path.format(**sessions)), target, paths
                )
            await browser.close()


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(take_all(target))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
