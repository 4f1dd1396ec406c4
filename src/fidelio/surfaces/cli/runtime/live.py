"""A session as it goes on: its events in their order, and the text of its model as it arrives in this process.

Events come from the ledger, whichever process commits them. Text arrives before its message is on record, and only where the
wake runs. A piece of text is shown once all events are shown that were committed before it, so that it never stands above the
calls that came before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from fidelio.clock import format_iso
from fidelio.ledger.model import Event
from fidelio.runtime import events as e
from fidelio.runtime.reading import join_content, load_body, load_open_calls
from fidelio.runtime.service import RuntimeService
from fidelio.runtime.wakes.directive import DirectiveFilter
from fidelio.runtime.wakes.rules import NothingDue, plan_wake
from fidelio.surfaces.cli.context import json_text
from fidelio.surfaces.cli.runtime.event_lines import EventLines
from fidelio.surfaces.cli.runtime.text_stream import QuoteStream, match_beginning
from fidelio.surfaces.text import Layout

_STOPPED = ("budget_reached", "retries_exhausted", "refusal")
_SENT = (e.USER_MESSAGE, e.USER_OUTCOME, e.USER_INTERRUPT, e.USER_CONFIRMATION, e.USER_TOOL_RESULT)
_CLEAR = "\r\x1b[K"


class Output(Protocol):
    """Where a session is shown."""

    layout: Layout

    def write(self, text: str) -> None:
        """Write text, which ends with a line end unless more of the line follows."""
        ...

    def show_status(self, text: str) -> None:
        """Show what is going on until the next output, where that is possible."""
        ...


class Screen:
    """Standard output. On a terminal, its last line may be a status that the next output replaces."""

    def __init__(self, layout: Layout, *, is_terminal: bool, has_color: bool) -> None:
        self.layout = layout
        self._is_terminal, self._has_color = is_terminal, has_color
        self._has_status = False
        self._is_inside_line = False
        self._held: list[str] | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the output back during the block, in which a menu is drawn."""
        self.start_line()
        self.show_status("")
        held: list[str] = []
        self._held = held
        try:
            yield
        finally:
            self._held = None
            self.write("".join(held))

    def write(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
            return
        if not text:
            return
        clear, self._has_status = _CLEAR if self._has_status else "", False
        self._is_inside_line = not text.endswith("\n")
        click.echo(clear + self._colour(text), nl=False, color=self._has_color)

    def start_line(self) -> None:
        """End the line that was begun, if any."""
        if self._is_inside_line:
            self.write("\n")

    def note_typed_line(self) -> None:
        """Note that the person has ended the line, as the terminal shows it."""
        self._is_inside_line = False

    def show_status(self, text: str) -> None:
        if not self._is_terminal or self._is_inside_line or self._held is not None:
            return
        line = self.layout.shorten(text, self.layout.width - 2)
        click.echo(_CLEAR + click.style(line, dim=True), nl=False, color=self._has_color)
        self._has_status = bool(text)

    def _colour(self, text: str) -> str:
        """Calls are dim, problems are red; what an agent says stays as it is."""
        if not self._has_color:
            return text
        styles = {"- ": {"dim": True}, "! ": {"fg": "red"}}
        lines = text.splitlines(keepends=True)
        return "".join(click.style(line, **styles.get(line[:2], {})) if line[:2] in styles else line for line in lines)  # type: ignore[arg-type]  # the styles above


class SilentScreen(Screen):
    """Standard output that shows nothing but what a view prints by itself."""

    def write(self, text: str) -> None:
        """Only events are shown."""

    def show_status(self, text: str) -> None:
        """Only events are shown."""


class LiveView:
    """Shows a session. `shown_seq` is the last event that was shown; `changed` is set after each."""

    def __init__(self, service: RuntimeService, session: str, output: Output, *, after: int = 0) -> None:
        self.session, self.shown_seq, self.changed = session, after, asyncio.Event()
        # Events that this process has sent itself, and that the person at the terminal has just typed.
        self.own: set[str] = set()
        self._service, self._output = service, output
        self._lines = EventLines(output.layout)
        self._quote = QuoteStream(output.layout)
        self._directive = DirectiveFilter()
        # Text of the model's current message: shown already, and arrived but not shown.
        self._shown, self._arrived = "", ""
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        # The newest event that somebody has sent, and the newest after which the session was idle.
        self._sent_seq, self._idle_seq = 0, 0

    def on_text(self, session: str, text: str) -> None:
        """Receive a piece of text of a model."""
        if session == self.session and (visible := self._directive.feed(text)):
            self._arrived += visible
            self._queue.put_nowait(None)

    async def run(self) -> None:
        """Show everything that happens, until it is cancelled or the session is deleted."""
        await self._load_open_calls()
        follower = asyncio.create_task(self._follow())
        try:
            while not (follower.done() and self._queue.empty()):
                getter = asyncio.create_task(self._queue.get())
                await asyncio.wait({getter, follower}, return_when=asyncio.FIRST_COMPLETED)
                if not getter.done():
                    getter.cancel()
                    await follower
                    return
                item = getter.result()
                await (self._show_arrived() if item is None else self._show_event(item))
        finally:
            follower.cancel()
            await asyncio.wait({follower})

    async def _load_open_calls(self) -> None:
        """Read the calls that were made before the first event that is shown: their results name them."""
        context = self._service.context
        for event in await load_open_calls(context, self.session, until=self.shown_seq):
            self._lines.render(event, await load_body(context, event))

    async def is_resting(self) -> bool:
        """Whether everything is shown, and nothing goes on before somebody sends something, or before a later time."""
        record = (await self._service.load(self.session)).record
        if self.shown_seq < record.seq:
            return False
        if record.status == "terminated" or record.is_archived:
            return True
        if record.wakes.stop_reason in _STOPPED and not record.wakes.current:
            # What was sent before it stopped stays pending. What was sent after it starts it again.
            return self._sent_seq <= self._idle_seq
        return isinstance(plan_wake(record, now=self._service.context.clock()), NothingDue)

    async def _follow(self) -> None:
        async for event in self._service.follow(self.session, self.shown_seq):
            self._queue.put_nowait(event)

    async def _show_arrived(self) -> None:
        size = len(self._arrived)
        if not size:
            return
        last = (await self._service.load(self.session)).record.seq
        # Only what had arrived before the last event was looked up is known to come after it.
        if self.shown_seq >= last:
            self._show_text(size)

    def _show_text(self, size: int) -> None:
        text, self._arrived = self._arrived[:size], self._arrived[size:]
        self._shown += text
        self._output.write(self._quote.feed(text))

    async def _show_event(self, event: Event) -> None:
        body = await load_body(self._service.context, event)
        if event.type == e.AGENT_MESSAGE and self._finish_message(join_content(body)):
            lines = list[str]()
        else:
            self._end_text(event)
            lines = [] if event.id in self.own else self._lines.render(event, body)
        self._output.write("".join(f"{line}\n" for line in lines))
        self._show_status(event)
        self._note(event)
        if self._arrived:
            self._queue.put_nowait(None)

    def _note(self, event: Event) -> None:
        self.shown_seq = event.seq
        if event.type == e.STATUS_IDLE:
            self._idle_seq = event.seq
        elif event.type in _SENT:
            self._sent_seq = event.seq
        self.changed.set()

    def _finish_message(self, text: str) -> bool:
        """Show the rest of a message that has arrived as text already; False if it has not."""
        streamed = self._shown + self._arrived
        end = match_beginning(streamed, text) if streamed.strip() else None
        if end is None:
            return False
        self._show_text(max(0, end - len(self._shown)))
        self._output.write(self._quote.end())
        self._shown = ""
        return True

    def break_off(self) -> None:
        """End the line of a text that may go on."""
        self._output.write(self._quote.end())

    def _end_text(self, event: Event) -> None:
        """Another event than the message that was streamed: the text has broken off, or stays without a message."""
        if event.type in (e.AGENT_MESSAGE, e.SESSION_ERROR, e.STATUS_IDLE, e.USER_INTERRUPT):
            self.break_off()
            self._shown, self._arrived = "", "" if event.type != e.STATUS_IDLE else self._arrived
        if event.type in (e.SESSION_ERROR, e.USER_INTERRUPT):
            self._directive.reset()

    def _show_status(self, event: Event) -> None:
        if event.type in (e.STATUS_RUNNING, e.TOOL_USE, e.TOOL_RESULT, e.USER_MESSAGE, e.USER_CONFIRMATION):
            call = self._lines.describe_call(self._lines.newest_call)
            self._output.show_status(f"... {call}" if call else "... working")


class JsonView(LiveView):
    """Prints every event as a line of JSON, with its texts."""

    async def _show_event(self, event: Event) -> None:
        body = await load_body(self._service.context, event)
        fields = {"seq": event.seq, "id": event.id, "type": event.type, "actor": event.actor, "time": format_iso(event.time)}
        click.echo(json_text({**fields, "body": body}))
        self._note(event)

    async def _show_arrived(self) -> None:
        """Text is shown with its message."""
