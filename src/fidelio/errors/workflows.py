"""Errors of workflow definitions and refusals of workflow sessions. `fidelio.errors` shows the whole tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fidelio.errors.base import FidelioError
from fidelio.errors.hints import Text


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
    """The workflow exists; the requested activity, skill, resource or template does not."""

    code = "definition.part-not-found"
    exit_code = 4


class Located(Protocol):
    """A problem with its position in a file; implemented by `Finding`."""

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
    """A definition that cannot be read completely, and is not used. `findings` says where and why, the worst first."""

    code = "definition.unreadable"

    def __init__(self, findings: Sequence[Located]) -> None:
        first = findings[0]
        position = f"{first.file}, line {first.line}" if first.line else first.file
        more = f" ({len(findings) - 1} more findings.)" if len(findings) > 1 else ""
        super().__init__(f"{position}: {first.sentence}{more}", remedy=first.remedy)
        self.findings = tuple(findings)


class InaccessibleDefinition(UnreadableDefinition):
    """The system refuses access to a file or directory: permissions, descriptors, the disk. Its content is unknown."""

    code = "definition.unreachable"


class DefinitionUnavailable(DefinitionError):
    """Neither the files nor the ledger have the definition that a session began with."""

    code = "definition.out-of-reach"
    exit_code = 4


class WorkflowRefusal(FidelioError):
    """The rules of the session forbid this call."""

    code = "workflow.refused"

    def __init__(self, sentence: Text, *, remedy: Text = "", reason: str = "") -> None:
        super().__init__(sentence, remedy=remedy)
        self.reason = reason


class PersonNeeded(WorkflowRefusal):
    """Only a person may answer the checkpoint. A surface that can ask a person does so; `request` is the request to answer."""

    code = "workflow.person-needed"

    def __init__(self, sentence: Text, *, remedy: Text = "", reason: str = "", request: str) -> None:
        super().__init__(sentence, remedy=remedy, reason=reason)
        self.request = request


class MoveRefused(WorkflowRefusal):
    """The move is not possible now. `standing` describes the possible ones."""

    code = "workflow.move-refused"

    def __init__(self, sentence: Text, *, remedy: Text = "", reason: str, standing: Any) -> None:
        super().__init__(sentence, remedy=remedy, reason=reason)
        self.standing = standing
