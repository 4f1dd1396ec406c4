"""Errors of sandboxes and of runtime sessions. `fidelio.errors` shows the whole tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.errors.base import FidelioError
from fidelio.errors.hints import Text


class SandboxError(FidelioError):
    """Base of what can be wrong with a sandbox."""

    code = "sandbox"


class SandboxUnavailable(SandboxError):
    """No sandbox can be started, or not at a level that the call needs. Nothing was executed."""

    code = "sandbox.unavailable"


class SandboxLost(SandboxError):
    """The sandbox or its host ended before it replied. Whether the action was carried out is unknown."""

    code = "sandbox.lost"


class SandboxesBusy(SandboxError):
    """As many sandboxes as are allowed are live, and all of them are at work. Nothing was executed."""

    code = "sandbox.all-busy"


class RuntimeProblem(FidelioError):
    """Base of what can be wrong with runtime sessions. `retryable`: the same call may succeed later."""

    code = "runtime"

    def __init__(self, sentence: Text, *, remedy: Text = "", retryable: bool = False) -> None:
        super().__init__(sentence, remedy=remedy)
        self.retryable = retryable


class ToolRefused(RuntimeProblem):
    """A tool call that was not carried out, or failed. `reason` is the stable code that the model gets.

    `output` are further keys of the result, such as what to do instead.
    """

    code = "runtime.tool-refused"

    def __init__(
        self,
        sentence: Text,
        *,
        remedy: Text = "",
        reason: str = "refused",
        retryable: bool = False,
        output: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(sentence, remedy=remedy, retryable=retryable)
        self.reason = reason
        self.output = output or {}


class EnvironmentProblem(RuntimeProblem):
    """An environment is unknown, or its definition cannot be used."""

    code = "runtime.environment"


class VaultProblem(RuntimeProblem):
    """A vault is unknown, or its value cannot be stored or decrypted."""

    code = "runtime.vault"


class PersonKeyProblem(RuntimeProblem):
    """A key of a person cannot be registered, or a signature does not prove an answer."""

    code = "runtime.person-key"


class AgentDefinitionProblem(RuntimeProblem):
    """An agent of the runtime is unknown, or its definition cannot be used."""

    code = "runtime.agent"


class MemoryProblem(RuntimeProblem):
    """A memory store does not accept a path, a content or a condition."""

    code = "runtime.memory"


class MemoryNotFound(MemoryProblem):
    """The store has no such memory or version."""

    code = "runtime.memory-not-found"


class MemoryPathConflict(MemoryProblem):
    """Another memory is at the path, above it or below it."""

    code = "runtime.memory-path-conflict"


class MemoryPreconditionFailed(MemoryProblem):
    """The content of the memory is not what the caller has seen."""

    code = "runtime.memory-precondition-failed"
