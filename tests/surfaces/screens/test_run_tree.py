"""The tree of `fidelio run`, folded from events: started workflows, failures, and runs that are larger than the screen."""

from __future__ import annotations

import io
import re

from rich.console import Console

from fidelio.conductor.context import ProgressEvent
from fidelio.surfaces.cli.run_tree import ProgressTree
from tests.conductor.run_setup import RunSetup, activity, write_workflow
from tests.support import proves
from tests.surfaces.screens.conftest import AtTerminal
from tests.surfaces.screens.terminal import run_in_terminal

RUN, CHILD = "s_000000000001", "s_000000000002"


class Run:
    """Events of a run of the workflow `ferry`, which starts `crossing` in its activity `sail`, and the tree that they make."""

    def __init__(self, rows: int = 24) -> None:
        self._rows, self._seconds = rows, 0
        self.tree = ProgressTree("fidelio", unicode=True, clock=lambda: self._seconds * 1000)
        self.tree.begin(RUN, "ferry")

    def see(self, kind: str, activity: str, session: str = RUN, step: str = "", detail: str = "") -> None:
        self._seconds += 1
        self.tree.fold(
            ProgressEvent(
                kind=kind,
                workflow="ferry" if session == RUN else "crossing",
                session=session,
                activity=activity,
                step=step,
                agent="robot",
                detail=detail,
                elapsed_ms=self._seconds * 1000,
                tokens=self._seconds * 100,
            )
        )

    def cross(self, session: str = CHILD) -> None:
        self.see("entered", "row", session)
        self.see("left", "row", session)
        self.see("completed", "row", session)

    @property
    def lines(self) -> list[str]:
        output = io.StringIO()
        console = Console(file=output, width=80, height=self._rows)
        console.print(self.tree)
        return [line.rstrip() for line in output.getvalue().splitlines()]


@proves("screens.run-started")
def test_a_workflow_that_an_activity_starts_is_a_branch_of_it_and_its_end_is_not_that_of_the_run() -> None:
    run = Run()
    run.see("entered", "sail", step="steer")
    run.see("entered", "row", CHILD, step="pull")
    at_work = run.lines
    run.see("left", "row", CHILD)
    run.see("completed", "row", CHILD)
    was_over = run.tree.is_over
    run.see("left", "sail")
    run.see("entered", "rest")
    run.see("completed", "rest")

    assert at_work[1:] == [
        "└── ▸ sail  robot  0:01  200 tokens",
        f"    └── ▸ crossing  {CHILD}  0:00  100 tokens",
        "        └── ▸ row  robot  0:00  100 tokens",
        "            └── step pull",
    ]
    assert (was_over, run.tree.is_over) == (False, True)
    assert run.lines == [
        f"ferry  {RUN}  0:07  700 tokens",
        "├── ✓ sail  robot  0:04  500 tokens",
        f"│   └── ✓ crossing  {CHILD}  0:02  300 tokens",
        "└── ✓ rest  robot  0:01  200 tokens",
    ]


@proves("screens.run-started")
def test_a_failure_is_shown_at_the_activity_that_failed() -> None:
    run = Run()
    run.see("entered", "sail")
    run.see("entered", "row", CHILD)
    # The event names the run, and the activity of the workflow that it has started.
    run.see("failed", "row", detail="The oar is broken.")

    assert [line.strip("│├└─ ") for line in run.lines[1:]] == [
        "✗ sail  robot  0:02  300 tokens",
        f"✗ crossing  {CHILD}  0:01  200 tokens",
        "✗ row  robot  0:01  200 tokens",
        "The oar is broken.",
    ]


@proves("screens.run-started")
def test_what_is_at_work_stays_on_the_screen_however_much_was_done() -> None:
    run = Run()
    for number in range(40):
        run.see("entered", f"leg-{number}")
        run.see("left", f"leg-{number}")
    run.see("entered", "sail")
    for number in range(40):
        run.cross(f"s_1000000000{number:02}")
    run.see("entered", "row", CHILD, step="pull")

    assert len(run.lines) < 24
    assert run.lines[-1].endswith("└── step pull")
    assert "├── (33 earlier)" in run.lines


@proves("screens.run-started")
async def test_the_tree_goes_on_after_a_workflow_that_the_run_has_started(at_terminal: AtTerminal, setup: RunSetup) -> None:
    starting = activity("sail", triggers=[{"workflow": "crossing"}], transitions=[{"to": "rest", "isDefault": True}])
    write_workflow(setup.workflows, "ferry", starting, activity("rest"))
    write_workflow(setup.workflows, "crossing", activity("row"))
    command = ("run", "ferry", "--agent", "robot", "--workflows", str(setup.workflows))
    async with at_terminal(*command) as terminal:
        assert await terminal.wait() == 0, terminal.text

    shown = terminal.text.partition("ferry  s_")[2].splitlines()
    assert [line.split()[2] for line in shown[1:4]] == ["sail", "✓", "rest"], terminal.text
    assert "✓ crossing  s_" in shown[2]
    assert terminal.text.count("completed. See:") == 1


@proves("screens.run-started")
async def test_a_run_in_the_background_of_a_shell_prints_lines(setup: RunSetup, place: dict[str, str]) -> None:
    write_workflow(setup.workflows, "ferry", activity("sail"))
    command = f"fidelio run ferry --agent robot --workflows {setup.workflows} & wait; echo over"
    shell = ("-c", "import os, sys; os.execvp('bash', ['bash', '-ic', sys.argv[1]])")
    async with run_in_terminal(command, environ=place, directory=setup.project, program=shell) as terminal:
        await terminal.until("over")

    assert re.search(r"^  0:\d\d  sail/sail-step +robot begins$", terminal.text, re.MULTILINE), terminal.text
    # What does not fit beside its columns is below them.
    assert re.search(r"^  0:\d\d  ferry\n        completed\. See: `fidelio report s_\w+`$", terminal.text, re.MULTILINE)
    assert "ferry  s_" not in terminal.text
