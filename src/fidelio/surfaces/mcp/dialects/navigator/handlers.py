"""The `navigator` dialect: the server says where a session stands and what is possible, and the agent picks from that.

Tools translate only: arguments into calls of the service, results into the shapes that clients know. What is read without a
session is in `nav_library`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fidelio.errors import FidelioError, MoveRefused, PersonNeeded, UsageProblem, WorkflowRefusal
from fidelio.surfaces.mcp.asked import asked_person
from fidelio.surfaces.mcp.dialects.common import Dialect
from fidelio.surfaces.mcp.dialects.navigator.library import NavigatorLibrary
from fidelio.surfaces.mcp.dialects.navigator.parameters import NavAction, NavStart, WithState
from fidelio.surfaces.mcp.dialects.sessions.parameters import given
from fidelio.toolkit.tools import Done, Outcome, ToolTable

if TYPE_CHECKING:
    from fidelio.engine.apply_move import MoveRequest
    from fidelio.workflows.navigator.service import Shown
    from fidelio.workflows.service import WorkflowService

INSTRUCTIONS = (
    "Fidelio leads you through a workflow step by step. Call get_activities or list_workflows to find what fits, then "
    "nav_start. Every reply says where you are and which actions are required, optional or blocked; do the work, then call "
    "nav_action with one of them. A checkpoint is the user's to answer. Always pass the newest state."
)


class NavigatorDialect(NavigatorLibrary, Dialect):
    """The twenty tools over one house."""

    def tools(self) -> ToolTable:
        from fidelio.surfaces.mcp.dialects.navigator.declarations import rows  # noqa: PLC0415  # the descriptions are read only when they are listed

        return ToolTable(
            rows(self),
            instructions=INSTRUCTIONS,
            misused=self.note_misuse,
            worded=self.worded,
            program=self.house.program,
        )

    async def note_misuse(self, tool: str, arguments: Mapping[str, Any], error: FidelioError) -> None:
        await super().note_misuse(tool, {"session_token": arguments.get("state")}, error)

    async def nav_start(self, asked: NavStart) -> Done:
        service = await self.house.workflows()
        return _shown(await service.navigation.start(asked.workflow_id, asked.initial_variables, agent=asked.agent_id))

    async def nav_situation(self, asked: WithState) -> Done:
        service = await self.house.workflows()
        return _shown(await service.navigation.look(asked.state))

    async def nav_checkpoint(self, asked: WithState) -> Done:
        from fidelio.surfaces.mcp.dialects.navigator.replies import checkpoint_only  # noqa: PLC0415  # waits for the first call

        service = await self.house.workflows()
        return checkpoint_only(await service.navigation.look(asked.state, tool="nav_checkpoint"))

    async def nav_action(self, asked: NavAction) -> Outcome:
        service = await self.house.workflows()
        try:
            return _shown(await self._acted(service, asked))
        except PersonNeeded as needed:
            question = await self.ask(service, needed, "nav_action", asked.state)
            return replace(question, waiting=await _refused(service, needed, asked.state))
        except WorkflowRefusal as refusal:
            return await _refused(service, refusal, asked.state)
        except UsageProblem as problem:
            await service.desk.note_misuse("nav_action", asked.state, problem)
            raise

    async def _acted(self, service: WorkflowService, asked: NavAction) -> Shown:
        if asked.action == "get_resource":
            index = _needed(asked.index, "index", asked.action)
            return await service.navigation.read(asked.state, index, asked.variables)
        return await service.navigation.act(asked.state, _act(asked), asked.variables, asked_person=asked_person())


async def _refused(service: WorkflowService, refusal: WorkflowRefusal, state: str) -> Done:
    """A refusal in the shape of every reply. A move that was refused leaves the state as it is, so it is given back.

    Not one that stands elsewhere: the agent would never come on with it.
    """
    from fidelio.surfaces.mcp.dialects.navigator.replies import failed  # noqa: PLC0415  # waits for the first call
    from fidelio.tokens.packed import is_packed  # noqa: PLC0415  # waits for the first call

    navigation = service.navigation
    standing = refusal.standing if isinstance(refusal, MoveRefused) else await navigation.standing(state)
    keeps = is_packed(state) and not isinstance(refusal, PersonNeeded) and refusal.reason != "STALE_STATE"
    return failed(refusal, standing, state if keeps else await navigation.state_of(standing))


def _act(asked: NavAction) -> MoveRequest:
    from fidelio.engine.apply_move import MoveRequest  # noqa: PLC0415  # waits for the first call

    if asked.action == "complete_step":
        return MoveRequest("complete_step", _needed(asked.step_id, "step_id", asked.action), output=asked.output)
    if asked.action == "transition":
        return MoveRequest("transition", _needed(asked.activity_id, "activity_id", asked.action))
    if asked.action == "advance_loop":
        return MoveRequest("advance_loop", _needed(asked.loop_id, "loop_id", asked.action), items=given(asked.loop_items))
    return _response(asked)


def _response(asked: NavAction) -> MoveRequest:
    from fidelio.engine.answers import AnswerChoice  # noqa: PLC0415  # waits for the first call
    from fidelio.engine.apply_move import MoveRequest  # noqa: PLC0415  # waits for the first call
    from fidelio.engine.phrases import EXACTLY_ONE  # noqa: PLC0415  # waits for the first call

    checkpoint, option = _needed(asked.checkpoint_id, "checkpoint_id", asked.action), given(asked.option_id)
    mode = AnswerChoice(option, asked.auto_advance, asked.condition_not_met).mode
    if mode == "option":
        return MoveRequest("respond_to_checkpoint", checkpoint, option)
    if mode is None:
        raise UsageProblem(EXACTLY_ONE, remedy="Pass the option_id that the user chose.")
    return MoveRequest("take_default" if mode == "auto_advance" else "dismiss_checkpoint", checkpoint)


def _needed(value: str, name: str, action: str) -> str:
    if not value:
        raise UsageProblem(f"{action} requires {name}.", remedy="The last reply names what is possible.")
    return value


def _shown(found: Shown) -> Done:
    return _wording()(found)


@cache
def _wording() -> Callable[[Shown], Done]:
    """Nearly every call ends with it, and to look for a module takes its time even where it is loaded."""
    from fidelio.surfaces.mcp.dialects.navigator.replies import shown  # noqa: PLC0415  # waits for the first call

    return shown
