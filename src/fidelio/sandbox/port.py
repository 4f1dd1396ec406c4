"""The port through which the runtime uses sandboxes. `fidelio.sandbox.host` implements it.

The caller owns no process: the host of the home does. A call says which session it is for, and the sandbox of that session is
started when it is not live.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from fidelio.sandbox.model import ActionResult, ConnectionPage, LevelReport, SandboxSpec, SandboxState


class Sandboxes(ABC):
    """The live sandboxes of a home."""

    @abstractmethod
    async def level(self) -> LevelReport:
        """The level at which sandboxes are started here."""

    @abstractmethod
    async def start(self, spec: SandboxSpec) -> SandboxState:
        """The live sandbox of the session, started if there is none. Raises `SandboxUnavailable`."""

    @abstractmethod
    async def call(
        self, spec: SandboxSpec, action: str, arguments: Mapping[str, Any], *, timeout: float = 60.0
    ) -> ActionResult:
        """Run an action in the sandbox of the session, which is started if there is none.

        Raises `SandboxUnavailable` if no sandbox can be started, and `SandboxLost` if it ended before it replied: whether the
        action took place is then unknown.
        """

    @abstractmethod
    async def state(self, session: str) -> SandboxState | None:
        """The live sandbox of a session; None if there is none. Starts nothing."""

    @abstractmethod
    async def connections(self, session: str, after: int = 0, log: str = "") -> ConnectionPage:
        """The connections of a session through the proxy after a number of a log. Starts nothing."""

    @abstractmethod
    async def stop(self, session: str) -> bool:
        """End the sandbox of a session and every process in it. False if there was none."""

    @abstractmethod
    async def close(self) -> None:
        """Release the connections of this caller. Live sandboxes stay with their host."""
