"""The agent of the tour: what it shows, where it is left out, and what is left when it is stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import open_bundled
from fidelio.locks import FileLock
from fidelio.processes.caller import WORKER
from fidelio.runtime.service import RuntimeService
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.cli import tour_agent
from tests.support import proves
from tests.surfaces.conftest import Fidelio
from tests.surfaces.sandbox.local import require_commands
from tests.surfaces.test_demo import line_with, started
from tests.surfaces.test_signals import sigint_of_children

HEADING = "An agent in a sandbox, asked and graded"


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    require_commands()
    return load_settings(environ=environ)


def read_section(output: str) -> str:
    return output.partition(HEADING)[2].partition("Commands to try next")[0]


def list_sessions(fidelio: Fidelio) -> list[str]:
    """The states of the runtime sessions that are no stores."""
    listed = json.loads(fidelio("sessions", "--json").stdout)["items"]
    return [each["status"] for each in listed if each["kind"] == "runtime" and each["status"] != "idle"]


def list_requests(fidelio: Fidelio) -> list[Any]:
    requests: list[Any] = json.loads(fidelio("inbox", "--json").stdout)["items"]
    return requests


def find_processes(home: Path) -> list[int]:
    """Processes that were started for this home, or that see a directory of it."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            seen = b"".join(_read(process / name) for name in ("cmdline", "mountinfo"))
            found += [int(process.name)] if os.fsencode(home) in seen else []
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        # It has ended meanwhile.
        return b""


@proves("cli.tour-agent")
def test_the_tour_shows_an_agent_that_works_asks_and_is_graded(fidelio: Fidelio, settings: Settings) -> None:
    tour = fidelio("tour", COLUMNS="80")
    shown = read_section(tour.stdout)

    assert (tour.returncode, tour.stderr) == (0, "")
    sights = (
        "write /workspace/hello.txt: done",
        "It waits for a person",
        "wc -c hello.txt",
        "scripted allows it",
        "exit code 0",
    )
    positions = [shown.index(sight) for sight in (*sights, "Verdict: pass. The check says: /workspace/hello.txt exists.")]
    assert positions == sorted(positions)
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert list_sessions(fidelio) == ["terminated"]
    assert list_requests(fidelio) == []
    assert find_processes(settings.home.path) == []


@proves("cli.tour-agent")
def test_what_the_agent_did_is_on_record_and_verifies(fidelio: Fidelio, settings: Settings) -> None:
    shown = read_section(fidelio("tour").stdout)
    session = shown.partition("The session ")[2].partition(" ")[0]
    events = [json.loads(line)["type"] for line in fidelio("events", session, "--json").stdout.splitlines()]
    wanted = ["outcome.defined", "agent.tool_use", "approval.requested", "approval.used", "span.outcome_evaluation_end"]

    assert [type_ for type_ in dict.fromkeys(events) if type_ in wanted] == wanted
    assert events[-1] == "session.status_terminated"
    assert fidelio("verify", session).returncode == 0


@proves("cli.tour-agent")
@pytest.mark.parametrize("level", ["none", "landlock"])
def test_without_isolation_for_commands_the_part_is_left_out_with_the_reason(fidelio: Fidelio, level: str) -> None:
    tour = fidelio("tour", FIDELIO_SANDBOX_LEVEL=level)

    assert (tour.returncode, tour.stderr) == (0, "")
    assert "This part is left out: Sandboxes run no commands on this machine." in tour.stdout
    assert "Commands to try next" in tour.stdout
    assert list_sessions(fidelio) == []


@proves("cli.tour-agent")
def test_below_an_agent_nobody_allows_anything(fidelio: Fidelio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour_agent, "identify_process", lambda: WORKER)
    tour = fidelio("tour")

    assert "This part is left out: An agent runs this command" in " ".join(tour.stdout.replace("↳", "").split())
    assert list_sessions(fidelio) == []


def stop_after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let a function do its work, and stop the command before its result is known: the worst moment for a signal."""
    work: Callable[..., Any] = getattr(owner, name)

    async def stopped(*arguments: Any, **options: Any) -> Any:
        await work(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, stopped)


@proves("cli.tour-stopped")
@pytest.mark.parametrize(
    ("owner", "name"),
    [(RuntimeService, "start_session"), (RuntimeService, "send"), (tour_agent, "_allow"), (tour_agent, "_follow")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tour_that_is_stopped_at_any_moment_ends_its_agent(
    fidelio: Fidelio, settings: Settings, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    with monkeypatch.context() as patched:
        stop_after(patched, owner, name)
        stopped = fidelio("tour")

    assert stopped.returncode == 130
    assert list_sessions(fidelio) == ["terminated"]
    assert list_requests(fidelio) == []
    assert find_processes(settings.home.path) == []


@proves("cli.tour-stopped")
@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        (HEADING, signal.SIGINT, 130),
        ("I write /workspace/hello.txt", signal.SIGINT, 130),
        ("It waits for a person", signal.SIGINT, 130),
        ("its bytes are counted", signal.SIGTERM, 143),
    ],
)
async def test_a_signal_ends_the_tour_and_everything_that_it_has_started(
    environ: dict[str, str], fidelio: Fidelio, settings: Settings, words: str, number: signal.Signals, code: int
) -> None:
    with sigint_of_children(None):
        async with started(environ, "tour") as (process, output):
            await line_with(output, words)
            process.send_signal(number)
            _, said = await process.communicate()

    assert (process.returncode, said) == (code, b"\nfidelio: Stopped.\n")
    assert find_processes(settings.home.path) == []
    assert set(list_sessions(fidelio)) <= {"terminated"}
    assert list_requests(fidelio) == []


@proves("cli.tour-agent")
async def test_a_tour_in_the_background_needs_no_terminal(environ: dict[str, str], settings: Settings) -> None:
    with sigint_of_children(signal.SIG_IGN):
        async with started(environ, "tour") as (process, output):
            await line_with(output, "Verdict: pass.")
            await process.communicate()

    assert process.returncode == 0
    assert find_processes(settings.home.path) == []


@proves("cli.tour-stopped")
def test_the_next_tour_removes_what_a_killed_one_has_left(fidelio: Fidelio, settings: Settings) -> None:
    async def leave() -> str:
        async with open_bundled(settings) as application:
            return await tour_agent._begin(await application.runtime())

    left = asyncio.run(leave())
    fidelio("tour")

    assert list_sessions(fidelio) == ["terminated"]
    assert left not in fidelio("sessions", "--json").stdout
    assert len([path for path in (settings.home.path / "sandboxes").iterdir() if path.name != "substrates"]) == 1


@proves("cli.tour-stopped")
def test_a_tour_leaves_the_agent_of_another_tour_alone(fidelio: Fidelio, settings: Settings) -> None:
    lock = FileLock(settings.home.ensure().lock_path("tour-agent"))
    assert lock.acquire()
    tour = fidelio("tour")
    lock.release()

    assert (tour.returncode, "another tour shows it at this moment" in tour.stdout) == (0, True)
    assert list_sessions(fidelio) == []


@proves("cli.tour-agent")
def test_an_error_of_the_agent_is_told_and_the_tour_goes_on(
    fidelio: Fidelio, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour_agent, "_DEFINITION", {"model": "nothing at all"})
    tour = fidelio("tour")

    assert (tour.returncode, tour.stderr) == (0, "")
    assert "This part ended early:" in tour.stdout
    assert "Commands to try next" in tour.stdout
