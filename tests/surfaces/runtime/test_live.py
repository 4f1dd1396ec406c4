"""The order of events and streamed text, and lines of standard input."""

from __future__ import annotations

import asyncio
import json
import os
import pty
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fidelio.ledger.model import Event
from fidelio.runtime import events as e
from fidelio.surfaces.cli.runtime.line_reader import LineReader
from fidelio.surfaces.cli.runtime.live import LiveView, Screen
from fidelio.surfaces.text import Layout
from tests.support import proves

SECONDS = 20.0


class Recorder:
    """An output that collects what is written."""

    layout = Layout(60)

    def __init__(self) -> None:
        self.text = ""
        self.statuses: list[str] = []

    def write(self, text: str) -> None:
        self.text += text

    def show_status(self, text: str) -> None:
        self.statuses.append(text)


class FakeService:
    """A session whose events a test commits and delivers separately, as a slow follower would get them."""

    def __init__(self) -> None:
        self.seq = 0
        self.context = SimpleNamespace(ledger=None, unit=self)
        self._delivered: asyncio.Queue[Event] = asyncio.Queue()

    def commit(self, type_: str, **body: Any) -> Event:
        self.seq += 1
        raw = json.dumps(body)
        return Event(self.seq, "s", self.seq, f"e{self.seq}", type_, "agent", 0, raw, b"", b"", b"")

    def deliver(self, event: Event) -> None:
        self._delivered.put_nowait(event)

    async def load(self, _: str) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(record=SimpleNamespace(seq=self.seq, wakes=SimpleNamespace(open_calls=())))

    async def follow(self, _: str, __: int) -> AsyncIterator[Event]:
        while True:
            yield await self._delivered.get()


class Stage:
    """A view under test."""

    def __init__(self) -> None:
        self.service, self.output = FakeService(), Recorder()
        self.view = LiveView(self.service, "s", self.output)  # type: ignore[arg-type]  # the part that is used
        self.task = asyncio.create_task(self.view.run())

    def stream(self, *pieces: str) -> None:
        for piece in pieces:
            self.view.on_text("s", piece)

    async def show(self, *events: Event) -> None:
        """Deliver events and wait until they are shown."""
        for event in events:
            self.service.deliver(event)
        await self.settle(events[-1].seq)

    async def settle(self, seq: int | None = None) -> None:
        async with asyncio.timeout(SECONDS):
            while self.view.shown_seq < (seq or 0):
                self.view.changed.clear()
                await self.view.changed.wait()
            # Text is shown by the same task, a few steps later.
            for _ in range(20):
                await asyncio.sleep(0)

    def message(self, text: str) -> Event:
        return self.service.commit(e.AGENT_MESSAGE, content=[{"type": "text", "text": text}])


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    made.task.cancel()
    await asyncio.wait({made.task})


@proves("runtime-cli.streaming")
async def test_text_is_shown_as_it_arrives_and_not_again_with_its_message(stage: Stage) -> None:
    stage.stream("Hello ", "there. ", "And")
    await stage.settle()
    before = stage.output.text
    stage.stream(" more.")
    await stage.show(stage.message("Hello there. And more."))

    assert before == "│ Hello there."
    assert stage.output.text == "│ Hello there. And more.\n"


@proves("runtime-cli.streaming")
async def test_text_never_stands_above_the_calls_that_came_before_it(stage: Stage) -> None:
    first = stage.message("I write.")
    use = stage.service.commit(e.TOOL_USE, id="t", name="write", input={"text": '{"path":"a"}', "size": 12})
    result = stage.service.commit(e.TOOL_RESULT, tool_use_id="t", name="write", result={"text": "{}", "size": 2})
    # The next reply begins to arrive while the events above are not delivered yet.
    stage.stream("I write.", "Written ", "now.")
    await stage.settle()
    assert stage.output.text == ""

    await stage.show(first, use, result)

    assert stage.output.text == "│ I write.\n- write a: done\n│ Written"
    await stage.show(stage.message("Written now."))
    assert stage.output.text.endswith("│ Written now.\n")


@proves("runtime-cli.streaming")
async def test_a_message_that_another_process_made_is_shown_whole(stage: Stage) -> None:
    await stage.show(stage.message("From elsewhere."))
    stage.view.on_text("another session", "Not ours.")
    await stage.settle()

    assert stage.output.text == "│ From elsewhere.\n"


@proves("runtime-cli.streaming")
async def test_text_that_breaks_off_is_ended_before_the_error_and_the_repeated_reply_is_shown(stage: Stage) -> None:
    stage.stream("Half of a sent<fidelio-loop>{")
    await stage.settle()
    error = {"message": "Overloaded.", "retry_status": {"type": "retrying"}}
    await stage.show(stage.service.commit(e.SESSION_ERROR, error=error))
    stage.stream("A whole one. ")
    await stage.settle()
    await stage.show(stage.message("A whole one."))

    assert stage.output.text == "│ Half of a sent\n! Overloaded. It is tried again.\n│ A whole one.\n"


@proves("runtime-cli.streaming")
async def test_what_the_person_has_just_typed_is_not_repeated(stage: Stage) -> None:
    own = stage.service.commit(e.USER_MESSAGE, content=[{"type": "text", "text": "Mine"}])
    other = stage.service.commit(e.USER_MESSAGE, content=[{"type": "text", "text": "Of somebody else"}])
    stage.view.own.add(own.id)

    await stage.show(own, other)

    assert stage.output.text == "agent:\n│ Of somebody else\n"


@proves("runtime-cli.events")
async def test_a_terminal_shows_the_call_that_is_under_way(stage: Stage) -> None:
    use = stage.service.commit(e.TOOL_USE, id="t", name="shell_run", input={"text": '{"command":"make"}', "size": 18})
    await stage.show(stage.service.commit(e.STATUS_RUNNING), use)

    assert stage.output.statuses == ["... working", "... shell_run make"]


@proves("runtime-cli.events")
def test_colour_and_status_lines_are_for_terminals_alone(capsys: pytest.CaptureFixture[str]) -> None:
    plain = Screen(Layout(40), is_terminal=False, has_color=False)
    plain.show_status("... working")
    plain.write("- read a: done\n! bad\n")
    assert capsys.readouterr().out == "- read a: done\n! bad\n"

    terminal = Screen(Layout(40), is_terminal=True, has_color=True)
    terminal.show_status("... working")
    terminal.write("- read a: done\n│ - said\n")
    shown = capsys.readouterr().out
    assert shown.startswith("\r\x1b[K\x1b[2m... working")
    assert "\r\x1b[K\x1b[2m- read a: done" in shown
    assert shown.endswith("│ - said\n")


async def read_all(descriptor: int) -> list[str]:
    lines = []
    with os.fdopen(descriptor, encoding="utf-8") as stream, LineReader(stream) as reader:
        async with asyncio.timeout(SECONDS):
            while (line := await reader.read()) is not None:
                lines.append(line)
    return lines


@proves("runtime-cli.chat")
@pytest.mark.parametrize("text", ["one\ntwo\n", "one\r\n\nlast without an end", "", "ä" * 70_000 + "\nb\n"])
async def test_lines_of_a_pipe_and_of_a_file_are_the_same(tmp_path: Path, text: str) -> None:
    file = tmp_path / "lines"
    file.write_text(text, "utf-8", newline="")
    reading, writing = os.pipe()
    writer = asyncio.create_task(asyncio.to_thread(write_all, writing, text))

    piped, filed = await read_all(reading), await read_all(os.open(file, os.O_RDONLY))
    await writer

    assert piped == filed == [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] * bool(text)


def write_all(descriptor: int, text: str) -> None:
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
        stream.write(text)


@proves("runtime-cli.chat")
async def test_waiting_for_a_terminal_blocks_nothing_and_a_cancelled_read_loses_nothing() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, encoding="utf-8") as stream, LineReader(stream) as reader:
        assert reader.is_terminal
        os.write(leader, b"one\ntwo\n")
        first = await asyncio.wait_for(reader.read(), SECONDS)
        second = await asyncio.wait_for(reader.read(), SECONDS)
        waiting = asyncio.create_task(reader.read())
        for _ in range(50):
            # The loop turns although nobody types.
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        os.write(leader, b"three\n\x04")

        assert (first, second) == ("one", "two")
        assert await asyncio.wait_for(reader.read(), SECONDS) == "three"
        assert await asyncio.wait_for(reader.read(), SECONDS) is None
    os.close(leader)
