"""Progress of `fidelio run`: a live tree on a terminal, a line per event in a log, JSON lines for programs.

The tree shows what is done, the activity and step at work, its worker, and what the run has used. Foreign text is escaped and
never read as markup. A log gets whole lines with the time since the start, so that it can be read and searched.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from fidelio.clock import Clock, now_ms
from fidelio.conductor.context import ProgressEvent
from fidelio.definitions import TERMINAL
from fidelio.surfaces.cli.context import json_text, output_layout, print_line, print_sentence, supports_unicode, uses_color
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
# Activities that are shown as done; a run may have a thousand.
_SHOWN = 12
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
        # A log gets whole lines, however long they are, so that it can be searched.
        print_sentence(f"{format_elapsed(happening.elapsed_ms)}  {pad(where, 30)} {described}{spent}")

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


def describe_usage(tokens: int, cost_usd: float) -> str:
    """What was used so far, for the end of a line; empty where the agents report nothing."""
    return f"{f'  {tokens:,} tokens' if tokens else ''}{f'  ${cost_usd:.2f}' if cost_usd else ''}"


def format_elapsed(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes:>3}:{seconds:02}"


class Stay(msgspec.Struct):
    """An activity of the run, as the tree shows it."""

    activity: str
    agent: str
    began_ms: int
    began_tokens: int
    began_cost: float
    step: str = ""
    detail: str = ""
    request: str = ""
    ended_ms: int | None = None
    tokens: int = 0
    cost_usd: float = 0.0
    has_failed: bool = False


class ProgressTree:
    """The state of a run, folded from its events. `render` is called from the thread that draws, too: it only reads."""

    def __init__(self, program: str, *, unicode: bool, clock: Clock = now_ms) -> None:
        self._program, self._unicode, self._clock = program, unicode, clock
        self._title, self._started = "", clock()
        self._stays: list[Stay] = []
        self._last = ProgressEvent(kind="begun", workflow="", session="")
        self.is_attended = False

    def begin(self, session: str, workflow: str) -> None:
        self._title = f"{quote_name(workflow)}  {session}"

    def fold(self, event: ProgressEvent) -> None:
        """Apply an event."""
        stay = self._find_stay(event)
        stay.step = event.step or stay.step
        stay.request = event.request if event.kind == "waiting" else ""
        stay.tokens, stay.cost_usd = event.tokens - stay.began_tokens, event.cost_usd - stay.began_cost
        if event.kind == "working":
            stay.detail = event.detail
        if event.kind in ("left", "completed", "failed"):
            stay.ended_ms, stay.has_failed = event.elapsed_ms, event.kind == "failed"
            stay.detail = event.detail if stay.has_failed else ""
        self._last = event

    def _find_stay(self, event: ProgressEvent) -> Stay:
        current = self._stays[-1] if self._stays else None
        if event.kind == "completed" and current is not None:
            return current
        if current is None or current.ended_ms is not None or current.activity != event.activity:
            if current is not None and current.ended_ms is None:
                current.ended_ms = event.elapsed_ms
            name = event.activity or event.workflow
            current = Stay(name, event.agent, event.elapsed_ms, self._last.tokens, self._last.cost_usd)
            self._stays.append(current)
        current.agent = event.agent if event.kind in ("entered", "resumed") else current.agent or event.agent
        return current

    def render(self) -> RenderableType:
        """The tree as rich draws it, at the width of the console."""
        elapsed = self._last.elapsed_ms if self._last.kind in ("completed", "failed") else self._clock() - self._started
        head = f"{self._title}  {format_elapsed(elapsed).strip()}{describe_usage(self._last.tokens, self._last.cost_usd)}"
        tree = Tree(Text(head, style="bold", overflow="fold"))
        hidden = max(0, len(self._stays) - _SHOWN)
        if hidden:
            tree.add(Text(f"({hidden} earlier activities)", style="dim"))
        width = max((measure(quote_name(stay.activity)) for stay in self._stays), default=0)
        for stay in self._stays[hidden:]:
            self._add_stay(tree, stay, width)
        if self._last.kind in ("completed", "failed") or not self.is_attended:
            return tree
        return Group(tree, Text("Ctrl-C stops the agents and keeps the run; d leaves it working.", style="dim"))

    def _add_stay(self, tree: Tree, stay: Stay, width: int) -> None:
        ended = stay.ended_ms
        marks = ("✓", "✗", "▸") if self._unicode else ("+", "x", ">")
        mark, style = (marks[2], "cyan") if ended is None else (marks[1], "red") if stay.has_failed else (marks[0], "green")
        duration = format_elapsed((self._clock() - self._started if ended is None else ended) - stay.began_ms)
        used = describe_usage(stay.tokens, stay.cost_usd)
        line = Text(f"{mark} ", style=style)
        line.append(f"{pad(quote_name(stay.activity), width)}  {quote_name(stay.agent)}{duration}{used}", style="default")
        branch = tree.add(line)
        if ended is None and stay.step:
            branch.add(Text(f"step {quote_name(stay.step)}"))
        if stay.request:
            how = "" if self.is_attended else f": {self._program} answer {stay.request}"
            branch.add(Text(f"waits for you{how}", style="yellow"))
        elif stay.detail:
            branch.add(
                Text(
                    escape_line(stay.detail),
                    style="red" if stay.has_failed else "dim",
                    no_wrap=not stay.has_failed,
                    overflow="ellipsis",
                )
            )


class LiveDisplay(Display):
    """Draws the tree again whenever it has changed."""

    def __init__(self, program: str, *, clock: Clock = now_ms) -> None:
        super().__init__(program, as_json=False)
        self.tree = ProgressTree(program, unicode=supports_unicode(), clock=clock)
        self._live = self._make_live()

    def _make_live(self) -> Live:
        console = Console(no_color=not uses_color(), highlight=False, width=output_layout().width)
        render: Callable[[], RenderableType] = self.tree.render
        return Live(console=console, get_renderable=render, refresh_per_second=_REFRESHES_PER_SECOND, redirect_stdout=False)

    def begin(self, session: str, workflow: str, *, goes_on: bool) -> None:
        super().begin(session, workflow, goes_on=goes_on)
        self.tree.begin(session, workflow)
        self._live.start()

    def show(self, happening: ProgressEvent) -> None:
        self.tree.fold(happening)
        if self._live.is_started:
            self._live.refresh()
        if happening.kind == "completed":
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
