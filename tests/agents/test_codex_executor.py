"""The executor of Codex, in both of its modes, with the real program and a scripted model."""

from __future__ import annotations

from tests.agents.contract import Contract
from tests.agents.harness_codex import CodexHarness


class TestCodex(Contract):
    """As it runs by default: as a command where nobody is asked, else as a server."""

    harness = CodexHarness()


class TestCodexServer(Contract):
    harness = CodexHarness(mode="server")
