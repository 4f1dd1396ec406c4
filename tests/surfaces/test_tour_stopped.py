"""A tour or a demo that is stopped, at any moment, leaves no active session behind."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from fidelio.app.application import open_bundled
from fidelio.app.records import Records
from fidelio.locks import FileLock
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.http import demo_agent
from fidelio.workflows.moves import MoveService
from fidelio.workflows.start import StartInput, StartService
from tests.support import proves
from tests.surfaces.conftest import Fidelio
from tests.surfaces.test_demo import question_in, started


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ=environ)


def start_hello(settings: Settings, agent: str) -> None:
    """Start a session and leave it, as a process that is killed does."""

    async def work() -> None:
        async with open_bundled(settings) as application:
            await (await application.workflows()).sessions.start(StartInput("hello", agent))

    asyncio.run(work())


def statuses(fidelio: Fidelio) -> list[str]:
    """The states of the workflow sessions; the agent of the tour is in test_tour_agent."""
    sessions = json.loads(fidelio("sessions", "--json").stdout)["items"]
    return sorted(session["status"] for session in sessions if session["kind"] == "workflow")


def stop_after(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, end: type[BaseException] = KeyboardInterrupt) -> None:
    """Let a method do its work, and stop the command before its result is known: the worst moment for a signal."""
    method: Callable[..., Any] = getattr(owner, name)

    async def stopped(*arguments: Any, **options: Any) -> Any:
        await method(*arguments, **options)
        raise end

    monkeypatch.setattr(owner, name, stopped)


@proves("cli.tour-stopped")
def test_a_tour_that_ends_leaves_no_active_session(fidelio: Fidelio) -> None:
    session = json.loads(fidelio("tour", "--json").stdout)["session"]["id"]
    last = json.loads(fidelio("events", session, "--type", "session.cancelled", "--json").stdout)

    assert statuses(fidelio) == ["cancelled"]
    assert last["body"]["reason"] == "The tour has shown it, and nothing continues it."


@proves("cli.tour-stopped")
@pytest.mark.parametrize(("owner", "name"), [(StartService, "start"), (MoveService, "move"), (Records, "events")])
def test_a_tour_that_is_stopped_at_any_moment_leaves_no_active_session(
    fidelio: Fidelio, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    with monkeypatch.context() as patched:
        stop_after(patched, owner, name)
        stopped = fidelio("tour")

    assert stopped.returncode == 130
    assert statuses(fidelio) == ["cancelled"]


@proves("cli.tour-stopped")
def test_the_next_tour_ends_what_a_killed_one_left_and_nothing_else(fidelio: Fidelio, settings: Settings) -> None:
    for agent in ("tour", "tour", "somebody"):
        start_hello(settings, agent)
    fidelio("tour")

    assert statuses(fidelio) == ["active", "cancelled", "cancelled", "cancelled"]


@proves("cli.tour-stopped")
def test_a_tour_leaves_the_session_of_another_tour_alone(fidelio: Fidelio, settings: Settings) -> None:
    start_hello(settings, "tour")
    lock = FileLock(settings.home.lock_path("tour"))
    assert lock.acquire()
    fidelio("tour")
    lock.release()

    assert statuses(fidelio) == ["active", "cancelled"]


@proves("cli.tour-stopped")
def test_a_demo_that_is_stopped_while_its_session_starts_leaves_none(fidelio: Fidelio, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        stop_after(patched, demo_agent.DemoAgent, "start_session", ConnectionError)
        fidelio("demo", "--headless")

    assert statuses(fidelio) == ["cancelled"]


@proves("cli.tour-stopped")
async def test_the_next_demo_ends_what_a_killed_one_left(environ: dict[str, str], fidelio: Fidelio) -> None:
    async with started(environ, "up", "--port", "0", "--demo") as (process, output):
        request = await question_in(output)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    left = statuses(fidelio)
    fidelio("demo", "--headless")
    open_requests = json.loads(fidelio("inbox", "--json").stdout)["items"]

    assert (left, statuses(fidelio)) == (["blocked"], ["cancelled", "completed"])
    assert request not in [each["id"] for each in open_requests]
