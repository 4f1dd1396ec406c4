"""Progress of `fidelio run`: a live tree on a terminal, a line per event in a log, JSON lines for programs.

The tree is in `run_tree`. A log gets whole lines with the time since the start, so that it can be read and searched.
"""

from __future__ import annotations

import sys

import click
import msgspec
from rich.console import Console
from rich.live import Live

from fidelio.clock import Clock, now_ms
from fidelio.conductor.context import ProgressEvent
from fidelio.definitions import TERMINAL
from fidelio.surfaces.cli.context import json_text, output_layout, print_line, supports_unicode, terminal_width, uses_color
from fidelio.surfaces.cli.run_tree import ProgressTree, describe_usage, format_elapsed
from fidelio.surfaces.text import escape_line, measure, pad, quote_name

PROGRESS_LINES = {
    "entered": "{agent} begins",
    "working": "{agent}: {detail}",
    "waiting": "waits for you: `{program} inbox`, then `{program} answer {request} OPTION`",
    "resumed": "{agent} continues",
    "left": "done, next: {detail}",
    "completed": "completed. See: `{program} report {session}`",
    "failed": "failed: {detail}",
}
_REFRESHES_PER_SECOND = 2


class Display:
    """Prints a line for each event of a run, with the time, the tokens and the cost so far."""

    def __init__(self, program: str, *, as_json: bool) -> None:
        self._program = program
        self._as_json = as_json

    def begin(self, session: str, workflow: str, *, goes_on: bool) -> None:
        """Print which session the run uses."""
        if self._as_json:
            click.echo(json_text({"kind": "begun", "session": session, "workflow": workflow, "goes_on": goes_on}))
            return
        how = "continues" if goes_on else "begins"
        print_line(f"{quote_name(workflow)} {how} as {session}.")

    def show(self, happening: ProgressEvent) -> None:
        """Print an event of the run."""
        if self._as_json:
            click.echo(json_text(msgspec.to_builtins(happening)))
            return
        where = quote_name("/".join(filter(None, (happening.activity or happening.workflow, happening.step))))
        described = describe_event(happening, self._program)
        spent = describe_usage(happening.tokens, happening.cost_usd)
        head = f"{format_elapsed(happening.elapsed_ms)}  {pad(where, 30)}"
        if sys.stdout.isatty() and measure(f"{head} {described}{spent}") > terminal_width():
            # The columns stay, and what happened has the lines below.
            print_line(head.rstrip())
            print_line(f"{described}{spent}", " " * 8)
        else:
            # A log gets whole lines, however long they are, so that it can be searched.
            click.echo(f"{head} {described}{spent}")

    def pause(self) -> None:
        """Make room for a question. Lines need none."""

    def resume(self) -> None:
        """Go on after a question."""

    def end(self) -> None:
        """Stop drawing. The last state stays on the screen."""


def describe_event(happening: ProgressEvent, program: str) -> str:
    values = {name: quote_name(getattr(happening, name)) for name in ("agent", "request", "session")}
    values["detail"] = escape_line(happening.detail).replace(TERMINAL, "the end")
    return PROGRESS_LINES[happening.kind].format(program=program, **values)


class LiveDisplay(Display):
    """Draws the tree again whenever it has changed."""

    def __init__(self, program: str, *, clock: Clock = now_ms) -> None:
        super().__init__(program, as_json=False)
        self.tree = ProgressTree(program, unicode=supports_unicode(), clock=clock)
        self._live = self._make_live()

    def _make_live(self) -> Live:
        console = Console(no_color=not uses_color(), highlight=False, width=output_layout().width)
        return Live(self.tree, console=console, refresh_per_second=_REFRESHES_PER_SECOND, redirect_stdout=False)

    def begin(self, session: str, workflow: str, *, goes_on: bool) -> None:
        super().begin(session, workflow, goes_on=goes_on)
        self.tree.begin(session, workflow)
        self._live.start()

    def show(self, happening: ProgressEvent) -> None:
        self.tree.fold(happening)
        if self._live.is_started:
            self._live.refresh()
        # A workflow that the run has started completes, too, and the run goes on.
        if happening.kind == "completed" and self.tree.is_over:
            self.end()
            print_line(describe_event(happening, self._program))

    def pause(self) -> None:
        """Stop drawing: the tree stays above the question."""
        self._live.stop()

    def resume(self) -> None:
        # The one that was stopped would draw over the question: it goes up by the lines that it has drawn before.
        self._live = self._make_live()
        self._live.start()

    def end(self) -> None:
        if self._live.is_started:
            self._live.stop()
