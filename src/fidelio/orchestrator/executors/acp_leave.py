"""Which of the answers that an agent offers to its own request for leave it gets."""

from __future__ import annotations

from collections.abc import Sequence

from acp.schema import PermissionOption, ToolCallUpdate

from fidelio.orchestrator.executors.acp_tools import arguments_of, change_of, outcome_of
from fidelio.orchestrator.executors.contract import Question, Teller, Turn
from fidelio.orchestrator.executors.permissions import ALLOW, REFUSE, verdict

_DECISIONS = {"allow_once": ALLOW, "reject_once": REFUSE}


class Leave:
    """Decides what the permissions of the blueprint decide, and asks a person about the rest."""

    def __init__(self, title: str, turn: Turn, tell: Teller) -> None:
        self._title, self._turn, self._tell = title, turn, tell
        self._answers: dict[str, str] = {}

    async def choose(self, use: ToolCallUpdate, name: str, options: Sequence[PermissionOption]) -> str | None:
        """The id of the option; None where the agent offers none that fits, which means no."""
        names = (name, str(use.kind)) if use.kind else (name,)
        decided: str = verdict(self._turn.blueprint.permissions, names, change_of(use, self._turn.directory))
        offered = _by_decision(options)
        if decided == "ask":
            decided = await self._answer(self._question(use, name, offered))
        chosen = offered.get({"deny": REFUSE}.get(decided, decided))
        return chosen.option_id if chosen else None

    async def _answer(self, question: Question) -> str:
        """One answer holds for one use: OpenCode asks about a command, and about each place outside that it touches."""
        if question.key not in self._answers:
            self._answers[question.key] = (await self._tell.ask(question)).option
        return self._answers[question.key]

    def _question(self, use: ToolCallUpdate, name: str, offered: dict[str, PermissionOption]) -> Question:
        title = use.title or name
        what = title if name in title else f"{name}: {title}"
        return Question(
            key=use.tool_call_id,
            kind="permission",
            text=f"{self._title} wants to use {what}",
            options=tuple((decision, option.name) for decision, option in offered.items()),
            detail={"tool": name, "arguments": arguments_of(use), "content": outcome_of(use)},
        )


def allows(chosen: str | None, options: Sequence[PermissionOption]) -> bool:
    return any(option.option_id == chosen and str(option.kind).startswith("allow") for option in options)


def _by_decision(options: Sequence[PermissionOption]) -> dict[str, PermissionOption]:
    """One yes and one no are called as everywhere; what an agent offers besides keeps its own name."""
    offered: dict[str, PermissionOption] = {}
    for option in options:
        decision = _DECISIONS.get(str(option.kind), option.option_id)
        offered[option.option_id if decision in offered else decision] = option
    return offered
