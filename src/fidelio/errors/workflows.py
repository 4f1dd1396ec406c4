"""What can be wrong with workflow files, and what the rules of a session forbid. `fidelio.errors` draws the whole tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fidelio.errors.base import FidelioError


class DefinitionError(FidelioError):
    """Base of what can be wrong with workflow files."""

    code = "definition"


class BadId(DefinitionError):
    """An id that could name something outside its directory, or nothing at all."""

    code = "definition.bad-id"
    exit_code = 2


class WorkflowNotFound(DefinitionError):
    """No root has a workflow with this id."""

    code = "definition.workflow-not-found"
    exit_code = 4


class ComponentNotFound(DefinitionError):
    """The workflow exists; the activity, skill, resource or template that was asked for does not."""

    code = "definition.part-not-found"
    exit_code = 4


class Located(Protocol):
    """A problem with its place in a file; definitions call it a finding."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...
    @property
    def rule(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def remedy(self) -> str: ...


class UnreadableDefinition(DefinitionError):
    """A definition that cannot be read whole. Nothing of it is served. `findings` says where and why, the worst first."""

    code = "definition.unreadable"

    def __init__(self, findings: Sequence[Located]) -> None:
        first = findings[0]
        place = f"{first.file}, line {first.line}" if first.line else first.file
        more = f" ({len(findings) - 1} more findings.)" if len(findings) > 1 else ""
        super().__init__(f"{place}: {first.sentence}{more}", remedy=first.remedy)
        self.findings = tuple(findings)


class InaccessibleDefinition(UnreadableDefinition):
    """The system does not give a file or directory: permissions, descriptors, the disk. What stands in it is not known."""

    code = "definition.unreachable"


class DefinitionUnavailable(DefinitionError):
    """The definition of a session that has begun cannot be had here and now, which does not say that it is gone."""

    code = "definition.out-of-reach"
    exit_code = 4


class DefinitionDeleted(DefinitionError):
    """The definition of a session that has begun was deleted, or cannot be read any more."""

    code = "definition.gone"
    exit_code = 4


class WorkflowRefusal(FidelioError):
    """The rules of the session forbid this step."""

    code = "workflow.refused"

    def __init__(self, sentence: str, *, remedy: str = "", reason: str = "") -> None:
        super().__init__(sentence, remedy=remedy)
        self.reason = reason


class PersonNeeded(WorkflowRefusal):
    """The question takes an answer only from a person. Whoever can reach one asks them; `request` names the question."""

    code = "workflow.person-needed"

    def __init__(self, sentence: str, *, remedy: str = "", reason: str = "", request: str) -> None:
        super().__init__(sentence, remedy=remedy, reason=reason)
        self.request = request


class MoveRefused(WorkflowRefusal):
    """The move is not among those that are possible now. `standing` says which are."""

    code = "workflow.move-refused"

    def __init__(self, sentence: str, *, remedy: str = "", reason: str, standing: Any) -> None:
        super().__init__(sentence, remedy=remedy, reason=reason)
        self.standing = standing
