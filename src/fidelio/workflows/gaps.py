"""What a workflow lacks because files of it cannot be read: an agent that is led through the rest has to be told."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fidelio.definitions.models import Workflow
from fidelio.errors import DefinitionError, UnreadableDefinition
from fidelio.errors.workflows import Located


def left_out(workflow: Workflow) -> tuple[str, ...]:
    """A warning for each activity that is written somewhere and missing all the same."""
    return tuple(f"Activity '{name}' is left out: {_why(findings)}" for name, findings in workflow.broken.items())


def unreadable_skill(name: str, problem: UnreadableDefinition) -> str:
    return f"Skill '{name}' is left out: {_why(problem.findings)}"


def why_gone(problem: DefinitionError) -> str:
    """Why the definition of a session cannot be had, without where its files lie or lay."""
    return _why(problem.findings) if isinstance(problem, UnreadableDefinition) else problem.sentence


def _why(findings: Sequence[Located]) -> str:
    """The worst that is wrong, by the name of its file: where the library lies is no client's business."""
    worst = findings[0]
    file = os.path.basename(worst.file)  # noqa: PTH119  # a name, not a path
    place = f"{file}, line {worst.line}" if worst.line else file
    return f"{place}: {worst.sentence} `fidelio lint` says how to mend it."
