"""Handlers of the `navigator` dialect: the server lists the possible actions of a session, and the agent chooses.

Handlers translate arguments into calls of the service, and results into replies. Tools that need no session are in `library`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fidelio.errors import FidelioError, MoveRefused, PersonNeeded, UsageProblem, WorkflowRefusal
from fidelio.surfaces.mcp.dialects.common import Dialect
from fidelio.surfaces.mcp.dialects.navigator.library import NavigatorLibrary
from fidelio.surfaces.mcp.dialects.navigator.parameters import NavAction, NavStart, StateReference
from fidelio.surfaces.mcp.dialects.sessions.parameters import none_if_unset
from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.toolkit import CallContext, Done, Outcome, ToolTable

if TYPE_CHECKING:
    from fidelio.engine.apply_move import MoveRequest
    from fidelio.workflows.navigator.service import NavigatorReply
    from fidelio.workflows.service import WorkflowService

INSTRUCTIONS = (
    "Fidelio leads you through a workflow step by step. Call get_activities or list_workflows to find what fits, then "
    "nav_start. Every reply says where you are and which actions are required, optional or blocked; do the work, then call "
    "nav_action with one of them. A checkpoint is the user's to answer. Always pass the newest state."
)


class NavigatorDialect(NavigatorLibrary, Dialect):
    """Handlers of the twenty tools of the dialect."""

    def tools(self) -> ServedTools:
        from fidelio.surfaces.mcp.dialects.navigator.declarations import declare_tools  # noqa: PLC0415  # the descriptions are read only when they are listed

        return ServedTools(
            ToolTable(declare_tools(self), on_misuse=self.record_refused_call, render_error=self.render_error),
            instructions=INSTRUCTIONS,
            program=self.app.program,
            ask=self.app.ask,
        )

    async def record_refused_call(self, tool: str, arguments: Mapping[str, Any], error: FidelioError) -> None:
        await super().record_refused_call(tool, {"session_token": arguments.get("state")}, error)

    async def nav_start(self, arguments: NavStart, context: CallContext) -> Done:
        service = await self.app.workflows()
        reply = await service.navigation.start(arguments.workflow_id, arguments.initial_variables, agent=arguments.agent_id)
        return _reply(context, reply)

    async def nav_situation(self, arguments: StateReference, context: CallContext) -> Done:
        service = await self.app.workflows()
        return _reply(context, await service.navigation.look(arguments.state))

    async def nav_checkpoint(self, arguments: StateReference, context: CallContext) -> Done:
        from fidelio.surfaces.mcp.dialects.navigator.replies import render_checkpoint  # noqa: PLC0415  # loaded by the first call of the tool: the handshake must not wait for it

        service = await self.app.workflows()
        return render_checkpoint(context, await service.navigation.look(arguments.state, tool="nav_checkpoint"))

    async def nav_action(self, arguments: NavAction, context: CallContext) -> Outcome:
        service = await self.app.workflows()
        try:
            return _reply(context, await self._perform(context, service, arguments))
        except PersonNeeded as needed:
            question = await self.ask_person(context, needed, "nav_action", arguments.state)
            return replace(question, waiting_reply=await _render_refused(context, service, needed, arguments.state))
        except WorkflowRefusal as refusal:
            return await _render_refused(context, service, refusal, arguments.state)
        except UsageProblem as problem:
            await service.record_refused_call("nav_action", arguments.state, problem)
            raise

    async def _perform(self, context: CallContext, service: WorkflowService, arguments: NavAction) -> NavigatorReply:
        if arguments.action == "get_resource":
            index = _require(arguments.index, "index", arguments.action)
            return await service.navigation.read(arguments.state, index, arguments.variables)
        return await service.navigation.act(
            arguments.state, _build_request(arguments), arguments.variables, elicited=context.person_requests
        )


async def _render_refused(context: CallContext, service: WorkflowService, refusal: WorkflowRefusal, state: str) -> Done:
    """Render a refusal like every other reply. A refused move changes nothing, so the reply returns the same state.

    A stale state is replaced by the current one: the agent could not continue with it.
    """
    from fidelio.surfaces.mcp.dialects.navigator.replies import render_refusal  # noqa: PLC0415  # loaded by the first call of the tool: the handshake must not wait for it
    from fidelio.tokens.packed import is_packed  # noqa: PLC0415  # loaded by the first call of the tool: the handshake must not wait for it

    navigation = service.navigation
    standing = refusal.standing if isinstance(refusal, MoveRefused) else await navigation.load_view(state)
    keeps_state = is_packed(state) and not isinstance(refusal, PersonNeeded) and refusal.reason != "STALE_STATE"
    return render_refusal(context, refusal, standing, state if keeps_state else await navigation.make_state(standing))


def _build_request(arguments: NavAction) -> MoveRequest:
    from fidelio.engine.apply_move import MoveRequest  # noqa: PLC0415  # loaded by the first call of the tool: the handshake must not wait for it

    if arguments.action == "complete_step":
        return MoveRequest("complete_step", _require(arguments.step_id, "step_id", arguments.action), output=arguments.output)
    if arguments.action == "transition":
        return MoveRequest("transition", _require(arguments.activity_id, "activity_id", arguments.action))
    if arguments.action == "advance_loop":
        loop = _require(arguments.loop_id, "loop_id", arguments.action)
        return MoveRequest("advance_loop", loop, items=none_if_unset(arguments.loop_items))
    return _build_answer(arguments)


def _build_answer(arguments: NavAction) -> MoveRequest:
    from fidelio.engine.answers import AnswerChoice  # noqa: PLC0415  # loaded by the first call of the tool: the handshake must not wait for it
    from fidelio.engine.apply_move import MoveRequest  # noqa: PLC0415  # loaded by the first call of the tool: the handshake must not wait for it
    from fidelio.engine.phrases import ANSWER_MODE_REQUIRED  # noqa: PLC0415  # loaded by the first call of the tool: the handshake must not wait for it

    checkpoint = _require(arguments.checkpoint_id, "checkpoint_id", arguments.action)
    option = none_if_unset(arguments.option_id)
    mode = AnswerChoice(option, arguments.auto_advance, arguments.condition_not_met).mode
    if mode == "option":
        return MoveRequest("respond_to_checkpoint", checkpoint, option)
    if mode is None:
        raise UsageProblem(ANSWER_MODE_REQUIRED, remedy="Pass the option_id that the user chose.")
    return MoveRequest("take_default" if mode == "auto_advance" else "dismiss_checkpoint", checkpoint)


def _require(value: str, name: str, action: str) -> str:
    if not value:
        raise UsageProblem(f"{action} requires {name}.", remedy="The last reply names what is possible.")
    return value


def _reply(context: CallContext, found: NavigatorReply) -> Done:
    return _load_renderer()(context, found)


@cache
def _load_renderer() -> Callable[[CallContext, NavigatorReply], Done]:
    """Cached because nearly every call ends with it, and an import statement costs time even for a loaded module."""
    from fidelio.surfaces.mcp.dialects.navigator.replies import render_situation  # noqa: PLC0415  # loaded by the first call of the tool: the handshake must not wait for it

    return render_situation
