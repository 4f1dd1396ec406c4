"""The executor of Claude Code, with the real program and a scripted model."""

from __future__ import annotations

from tests.agents.contract import Contract
from tests.agents.harness_claude import ClaudeHarness


class TestClaude(Contract):
    harness = ClaudeHarness()
