"""The executors that speak the Agent Client Protocol, with the real programs and a scripted model."""

from __future__ import annotations

from tests.agents.contract import Contract
from tests.agents.harness_acp import GeminiHarness, OpenCodeHarness, QwenHarness


class TestGemini(Contract):
    harness = GeminiHarness()


class TestQwen(Contract):
    harness = QwenHarness()


class TestOpenCode(Contract):
    harness = OpenCodeHarness()
