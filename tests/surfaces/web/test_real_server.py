"""The page of a real `fidelio up`: the demo from start to end with the keyboard alone, and a server that is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, expect

from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from tests.support import proves

_LINK = re.compile(r"http://\S+/sign-in\?key=\S+")
SECONDS = 60


@contextmanager
def serve(home: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and the link that it prints."""
    environ = {**os.environ, "FIDELIO_HOME": str(home)}
    command = [sys.executable, "-u", "-m", "fidelio", "up", *options]
    server = subprocess.Popen(
        command, cwd=home.parent, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        yield server, next(found[0] for line in server.stdout if (found := _LINK.search(line)))
    finally:
        server.kill()
        server.communicate(timeout=SECONDS)


@proves("web.keyboard", "web.begin")
async def test_the_demo_is_carried_out_from_start_to_end_with_the_keyboard_alone(tmp_path: Path, browser: Browser) -> None:
    with serve(tmp_path / "home", "--demo", "--port", "0") as (_, link):
        page = await browser.new_page()
        await page.goto(link)
        await expect(page.locator("#menu .count")).to_have_text("1", timeout=SECONDS * 1000)
        await follow(page, "Inbox")
        await expect(page.locator("[data-question]")).to_have_count(1)
        for key in ("j", "1"):
            await page.keyboard.press(key)
        await expect(page.get_by_role("status")).to_contain_text("Answered with A warm note")
        await follow(page, "Sessions")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")

        await expect(page.locator(".entries")).to_contain_text("completed the workflow", timeout=SECONDS * 1000)


async def follow(page: Page, name: str) -> None:
    """Go to a link of the menu with the keyboard."""
    link = page.locator("#menu").get_by_role("link", name=name)
    for _ in range(15):
        await page.keyboard.press("Tab")
        if await link.evaluate("element => element === document.activeElement"):
            break
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    # The scripts run once everything is loaded.
    await page.wait_for_load_state("load")


@proves("web.live")
async def test_a_page_shows_the_present_state_after_its_server_was_killed_and_started_again(
    tmp_path: Path, browser: Browser
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    await put(home, "s_before000001", "before the end")
    with serve(home, "--port", "0") as (server, link):
        page = await browser.new_page()
        await page.goto(link)
        await page.goto(f"{link.partition('/sign-in')[0]}/sessions")
        await expect(page.locator(".rows li")).to_have_count(1)
        server.kill()
        server.wait(SECONDS)
    await put(home, "s_meanwhile001", "while nobody served")
    with serve(home, "--port", str(urlsplit(link).port)):
        await expect(page.locator(".rows li")).to_have_count(2, timeout=SECONDS * 1000)
        await put(home, "s_after0000001", "and live again")
        await expect(page.locator(".rows li")).to_have_count(3, timeout=SECONDS * 1000)


async def put(home: Path, session: str, text: str) -> None:
    said = NewEvent(type="agent.said", body={"text": text}, actor="agent")
    async with await open_ledger(home / "ledger.db") as ledger:
        create = NewSession(kind="agent", name=session[2:])
        await ledger.commit(Change(session=session, create=create, events=(said,), record={}, status="idle"))
