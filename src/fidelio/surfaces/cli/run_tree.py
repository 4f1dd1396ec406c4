"""The tree of a run, folded from its events and drawn by rich: what is done, what is at work, and what the run has used.

A workflow that an activity has started is a branch of that activity, with its own activities while it runs. Foreign text is
escaped and never read as markup. The tree stays smaller than the terminal: what is cut off there would be the step at work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from rich.tree import Tree

from fidelio.clock import Clock, now_ms
from fidelio.conductor.context import ProgressEvent
from fidelio.surfaces.text import escape_line, measure, pad, quote_name

# Entries of a branch that are shown at most and at least (a run may have a thousand), and lines that something else needs.
_MOST, _FEWEST, _OTHER_LINES = 12, 2, 8


def describe_usage(tokens: int, cost_usd: float) -> str:
    """What was used so far, for the end of a line; empty where the agents report nothing."""
    return f"{f'  {tokens:,} tokens' if tokens else ''}{f'  ${cost_usd:.2f}' if cost_usd else ''}"


def format_elapsed(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes:>3}:{seconds:02}"


class RunBranch(msgspec.Struct):
    """An activity of the run with the workflows that it has started, or such a workflow with its activities."""

    name: str
    who: str
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
    is_session: bool = False
    inner: list[RunBranch] = []

    @property
    def is_open(self) -> bool:
        return self.ended_ms is None

    def count(self, event: ProgressEvent) -> None:
        self.tokens, self.cost_usd = event.tokens - self.began_tokens, event.cost_usd - self.began_cost

    def end(self, event: ProgressEvent) -> None:
        self.count(event)
        self.ended_ms, self.request, self.detail = event.elapsed_ms, "", ""


class ProgressTree:
    """The state of a run. It is drawn from another thread, too, which only reads it."""

    def __init__(self, program: str, *, unicode: bool, clock: Clock = now_ms) -> None:
        self._program, self._unicode, self._clock = program, unicode, clock
        self._title, self._started = "", clock()
        self._run = RunBranch("", "", 0, 0, 0.0)
        # The branch of each session: the run itself, and the workflows that it has started.
        self._sessions: dict[str, RunBranch] = {}
        self._last = ProgressEvent(kind="begun", workflow="", session="")
        self.is_attended = False

    @property
    def is_over(self) -> bool:
        """Whether the run itself has ended, and not only a workflow that it has started."""
        return not self._run.is_open

    def begin(self, session: str, workflow: str) -> None:
        self._title = f"{quote_name(workflow)}  {session}"
        self._sessions[session] = self._run

    def fold(self, event: ProgressEvent) -> None:
        """Apply an event."""
        if event.kind == "failed":
            self._fail(event)
        else:
            session = self._find_session(event)
            if event.kind == "completed":
                _end_all(session, event)
            else:
                self._apply(self._find_activity(session, event), event)
        for branch in iter_open(self._run):
            branch.count(event)
        self._last = event

    def _find_session(self, event: ProgressEvent) -> RunBranch:
        """The branch of a session. A new session was started by the activity that is at work."""
        if event.session not in self._sessions:
            *_, parent = iter_open(self._run)
            self._sessions[event.session] = session = self._add(parent, event.workflow, event.session, event)
            session.is_session = True
        return self._sessions[event.session]

    def _find_activity(self, session: RunBranch, event: ProgressEvent) -> RunBranch:
        current = session.inner[-1] if session.inner else None
        if current is not None and current.is_open and current.name == event.activity:
            return current
        if current is not None and current.is_open:
            _end_all(current, event)
        return self._add(session, event.activity or event.workflow, event.agent, event)

    def _add(self, parent: RunBranch, name: str, who: str, event: ProgressEvent) -> RunBranch:
        branch = RunBranch(name, who, event.elapsed_ms, self._last.tokens, self._last.cost_usd)
        parent.inner.append(branch)
        return branch

    def _apply(self, branch: RunBranch, event: ProgressEvent) -> None:
        branch.step = event.step or branch.step
        branch.request = event.request if event.kind == "waiting" else ""
        branch.who = event.agent if event.kind in ("entered", "resumed") else branch.who or event.agent
        if event.kind == "working":
            branch.detail = event.detail
        if event.kind == "left":
            _end_all(branch, event)

    def _fail(self, event: ProgressEvent) -> None:
        """The run fails with what is at work; the event names the run, also if a workflow that it started is the reason."""
        path = list(iter_open(self._run))
        at = path[-1] if len(path) > 1 else self._add(self._run, event.activity or event.workflow, event.agent, event)
        for branch in path:
            branch.end(event)
            branch.has_failed = True
        at.end(event)
        at.has_failed, at.detail = True, event.detail

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """The tree at the size of the console."""
        elapsed = self._last.elapsed_ms if self.is_over else self._clock() - self._started
        head = f"{self._title}  {format_elapsed(elapsed).strip()}{describe_usage(self._last.tokens, self._last.cost_usd)}"
        tree = Tree(Text(head, style="bold", overflow="fold"))
        # An activity is inside of a session, so every second level has a list of its own.
        lists = (len(list(iter_open(self._run))) + 1) // 2
        self._add_inner(tree, self._run.inner, max(_FEWEST, min(_MOST, (options.max_height - _OTHER_LINES) // max(1, lists))))
        yield tree
        if self.is_attended and not self.is_over:
            yield Text("Ctrl-C stops the agents and keeps the run; d leaves it working.", style="dim")

    def _add_inner(self, tree: Tree, branches: Sequence[RunBranch], most: int) -> None:
        hidden = max(0, len(branches) - most)
        if hidden:
            tree.add(Text(f"({hidden} earlier)", style="dim"))
        width = max((measure(quote_name(branch.name)) for branch in branches), default=0)
        for branch in branches[hidden:]:
            node = tree.add(self._describe(branch, width))
            self._add_details(node, branch)
            # What a workflow did that has ended is in its report; its line names the session.
            if branch.is_open or branch.has_failed or not branch.is_session:
                self._add_inner(node, branch.inner, most)

    def _describe(self, branch: RunBranch, width: int) -> Text:
        marks = ("✓", "✗", "▸") if self._unicode else ("+", "x", ">")
        at = 2 if branch.is_open else int(branch.has_failed)
        line = Text(f"{marks[at]} ", style=("green", "red", "cyan")[at])
        ended = self._clock() - self._started if branch.ended_ms is None else branch.ended_ms
        used = f"{format_elapsed(ended - branch.began_ms)}{describe_usage(branch.tokens, branch.cost_usd)}"
        return line.append(f"{pad(quote_name(branch.name), width)}  {quote_name(branch.who)}{used}", style="default")

    def _add_details(self, node: Tree, branch: RunBranch) -> None:
        if any(inner.is_open for inner in branch.inner):
            # What is at work is further inside.
            return
        if branch.is_open and branch.step:
            node.add(Text(f"step {quote_name(branch.step)}"))
        if branch.request:
            how = "" if self.is_attended else f": {self._program} answer {branch.request}"
            node.add(Text(f"waits for you{how}", style="yellow"))
        elif branch.detail:
            style, is_short = ("red", False) if branch.has_failed else ("dim", True)
            node.add(Text(escape_line(branch.detail), style=style, no_wrap=is_short, overflow="ellipsis"))


def iter_open(branch: RunBranch) -> Iterator[RunBranch]:
    """An open branch, and the open ones inside of it, each the last of its parent."""
    while branch.is_open:
        yield branch
        if not branch.inner:
            return
        branch = branch.inner[-1]


def _end_all(branch: RunBranch, event: ProgressEvent) -> None:
    for each in list(iter_open(branch)):
        each.end(event)
