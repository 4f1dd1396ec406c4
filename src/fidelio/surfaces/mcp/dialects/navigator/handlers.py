"""Handlers of the `navigator` dialect: the server lists the possible actions of a session, and the agent chooses.

Handlers translate arguments into calls of the service, and results into replies. Tools that need no session are in `library`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from fidelio.engine.answers import AnswerChoice
from fidelio.engine.apply_move import MoveRequest
from fidelio.engine.phrases import ANSWER_MODE_REQUIRED
from fidelio.errors import FidelioError, MoveRefused, PersonNeeded, UsageProblem, WorkflowRefusal
from fidelio.surfaces.mcp.dialects.common import Dialect, none_if_unset
from fidelio.surfaces.mcp.dialects.navigator.library import NavigatorLibrary
from fidelio.surfaces.mcp.dialects.navigator.parameters import NavAction, NavStart, StateReference
from fidelio.surfaces.mcp.dialects.navigator.replies import render_checkpoint, render_refusal, render_situation
from fidelio.tokens.packed import PREFIX
from fidelio.toolkit import CallContext, Done, Outcome
from fidelio.workflows.navigator.service import NavigatorReply
from fidelio.workflows.service import WorkflowService


class NavigatorDialect(NavigatorLibrary, Dialect):
    """Handlers of the twenty tools of the dialect."""

    async def record_refused_call(self, tool: str, arguments: Mapping[str, Any], error: FidelioError) -> None:
        await super().record_refused_call(tool, {"session_token": arguments.get("state")}, error)

    async def nav_start(self, arguments: NavStart, context: CallContext) -> Done:
        service = await self.app.workflows()
        reply = await service.navigation.start(arguments.workflow_id, arguments.initial_variables, agent=arguments.agent_id)
        return render_situation(context, reply)

    async def nav_situation(self, arguments: StateReference, context: CallContext) -> Done:
        service = await self.app.workflows()
        return render_situation(context, await service.navigation.look(arguments.state))

    async def nav_checkpoint(self, arguments: StateReference, context: CallContext) -> Done:
        service = await self.app.workflows()
        return render_checkpoint(context, await service.navigation.look(arguments.state, tool="nav_checkpoint"))

    async def nav_action(self, arguments: NavAction, context: CallContext) -> Outcome:
        service = await self.app.workflows()
        try:
            return render_situation(context, await self._perform(context, service, arguments))
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
        await self.require_free_session(context, "nav_action", arguments.state)
        return await service.navigation.act(
            arguments.state, _build_request(arguments), arguments.variables, elicited=context.person_requests
        )


async def _render_refused(context: CallContext, service: WorkflowService, refusal: WorkflowRefusal, state: str) -> Done:
    """Render a refusal like every other reply. A refused move changes nothing, so the reply returns the same state.

    A stale state is replaced by the current one: the agent could not continue with it.
    """
    navigation = service.navigation
    standing = refusal.standing if isinstance(refusal, MoveRefused) else await navigation.load_view(state)
    keeps_state = state.startswith(PREFIX) and not isinstance(refusal, PersonNeeded) and refusal.reason != "STALE_STATE"
    return render_refusal(context, refusal, standing, state if keeps_state else await navigation.make_state(standing))


def _build_request(arguments: NavAction) -> MoveRequest:
    if arguments.action == "complete_step":
        return MoveRequest("complete_step", _require(arguments.step_id, "step_id", arguments.action), output=arguments.output)
    if arguments.action == "transition":
        return MoveRequest("transition", _require(arguments.activity_id, "activity_id", arguments.action))
    if arguments.action == "advance_loop":
        loop = _require(arguments.loop_id, "loop_id", arguments.action)
        return MoveRequest("advance_loop", loop, items=none_if_unset(arguments.loop_items))
    return _build_answer(arguments)


def _build_answer(arguments: NavAction) -> MoveRequest:
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
