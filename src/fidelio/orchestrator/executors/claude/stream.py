"""What Claude Code asks while it works, as questions for a person, and the person's answer in its words.

It asks before it uses a tool that its settings neither allow nor forbid, and its model asks with a tool that is made for it.
Where the blueprint leaves nothing to be asked, the answer is given at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fidelio.orchestrator.blueprints.model import Permissions
from fidelio.orchestrator.executors.claude import messages
from fidelio.orchestrator.executors.claude import messages as failures
from fidelio.orchestrator.executors.claude.messages import ControlRequestBody, Json
from fidelio.orchestrator.executors.common import BackgroundTasks, background_tasks, decide_permission
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import AgentProcess, Exit

ALLOW, ALWAYS, REFUSE, OTHER = "allow", "allow-always", "refuse", "other"
# The tool with which the model asks a person.
QUESTION_TOOL = "AskUserQuestion"
_LONGEST_INPUT = 2_000
_NOT_ALLOWED = "This agent is not allowed to do that. Go on without it."


async def answer_permission_request(request: ControlRequestBody, permissions: Permissions, reporter: Reporter) -> Json:
    """The answer to a request for leave to use a tool: granted, refused, or what a person says."""
    if request.tool_name == QUESTION_TOOL:
        return _allow({**request.input, "answers": await _ask_questions(request, reporter)})
    # What needs no leave, and what its rules decide, the agent does not ask about.
    decided = decide_permission(permissions, (request.tool_name,), "something")
    if decided == "ask":
        return _encode_reply(request, await reporter.ask(_permission_question(request)))
    return _allow(request.input) if decided == "allow" else _deny(_NOT_ALLOWED)


async def _ask_questions(request: ControlRequestBody, reporter: Reporter) -> dict[str, str]:
    """The model may ask several things at once; a person is asked one after the other."""
    asked = enumerate(request.input.get("questions", ()))
    return {
        question["question"]: await _ask_question(f"{request.tool_use_id}.{number}", question, reporter)
        for number, question in asked
    }


async def _ask_question(key: str, asked: Json, reporter: Reporter) -> str:
    labels = [option["label"] for option in asked.get("options", ())]
    question = AgentQuestion(
        key=key,
        kind="question",
        text=_with_descriptions(asked),
        options=(*((label, label) for label in labels), (OTHER, "Something else, or several of these: say it in words")),
        detail={"header": asked.get("header", ""), "several": bool(asked.get("multiSelect"))},
    )
    reply = await reporter.ask(question)
    return ", ".join(part for part in (reply.option if reply.option != OTHER else "", reply.text) if part)


def _with_descriptions(asked: Json) -> str:
    described = [option for option in asked.get("options", ()) if option.get("description")]
    lines = [f"- {option['label']}: {option['description']}" for option in described]
    return "\n".join([asked["question"], *([""] if lines else []), *lines])


def _permission_question(request: ControlRequestBody) -> AgentQuestion:
    options = [(ALLOW, "Allow it once"), (REFUSE, "Refuse it")]
    if _session_rules(request):
        options.insert(1, (ALWAYS, "Allow it, and the like of it, in this turn"))
    return AgentQuestion(
        key=request.tool_use_id,
        kind="permission",
        text=_describe_call(request),
        options=tuple(options),
        detail={"tool": request.tool_name, "input": request.input, "path": request.blocked_path},
    )


def _describe_call(request: ControlRequestBody) -> str:
    wanted = msgspec.json.format(msgspec.json.encode(request.input)).decode()
    if len(wanted) > _LONGEST_INPUT:
        wanted = wanted[:_LONGEST_INPUT] + " ..."
    why = request.description
    return f"The agent wants to use {request.tool_name}{f' ({why})' if why else ''}:\n{wanted}"


def _encode_reply(request: ControlRequestBody, reply: Reply) -> Json:
    if reply.option == ALLOW:
        return _allow(request.input)
    if reply.option == ALWAYS:
        return {**_allow(request.input), "updatedPermissions": _session_rules(request)}
    return _deny(reply.text or "A person has refused this.")


def _session_rules(request: ControlRequestBody) -> list[Json]:
    """The rules the agent proposes, for this process only: it would write them into the settings of the project."""
    proposed = request.permission_suggestions or ()
    return [{**rule, "destination": "session"} for rule in proposed if rule.get("type") == "addRules"]


def _allow(wanted: Json) -> Json:
    return {"behavior": "allow", "updatedInput": wanted}


def _deny(why: str) -> Json:
    return {"behavior": "deny", "message": why}


# What a command that was left running in the background gets to end, once the agent has nothing more to do itself.
LINGER_SECONDS = 60.0
# The agent tries a key that is not accepted ten times, for minutes.
_LOGIN_ATTEMPTS = 3
_USAGE_REQUEST = "fidelio-before"
_UNAVAILABLE = frozenset({"failed", "needs-auth"})
# The name of the model where the agent speaks for itself.
_SYNTHETIC_MODEL = "<synthetic>"


def encode_first_input(turn: Turn) -> bytes:
    """The first lines for the agent. What the conversation had cost before is asked, to know what this turn adds to it."""
    # `client_composed`: a prompt that begins with a slash is a prompt and no command.
    prompt = _encode_line({"type": "user", "message": {"role": "user", "content": turn.prompt}, "client_composed": True})
    if turn.conversation is None:
        return prompt
    return _encode_line({"type": "control_request", "request_id": _USAGE_REQUEST, "request": {"subtype": "get_usage"}}) + prompt


async def follow_turn(process: AgentProcess, turn: Turn, reporter: Reporter) -> TurnResult:
    """Follows the agent to its end. Several questions may be open at once, and the agent may go on meanwhile."""
    watcher = _TurnFollower(process, turn, reporter)
    async with background_tasks() as asking:
        await watcher.follow(asking)
    # One that lingers too long is ended by leaving it; its result is there.
    return watcher.finished(Exit(0) if process.is_running() else await process.ended())


class _TurnFollower:
    def __init__(self, process: AgentProcess, turn: Turn, reporter: Reporter) -> None:
        self._process, self._turn, self._reporter = process, turn, reporter
        self._conversation = turn.conversation or turn.fresh
        self._before = messages.Cost() if turn.conversation is None else None
        # What the agent has accounted for itself, and the answers of the model since then.
        self._accounted = messages.Cost()
        self._answers: dict[str, messages.Cost] = {}
        self._turns = 0
        self._said: list[str] = []
        self._result: messages.Result | None = None
        self._is_resting = self._is_busy_behind = False
        self._questions: dict[str, asyncio.Task[None]] = {}

    async def follow(self, asking: BackgroundTasks) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as bound:
                async for line in self._process.lines():
                    await self._take(messages.read_message(line), asking)
                    bound.reschedule(loop.time() + LINGER_SECONDS if self._is_resting else None)
        except TimeoutError:
            if not bound.expired():
                raise

    def finished(self, exit_: Exit) -> TurnResult:
        partial = "\n\n".join(self._said)
        if self._result is None:
            raise failures.stderr_failure(self._process.stderr_tail()) or self._process.failure(exit_, partial=partial)
        if self._result.is_error:
            raise failures.result_failure(self._result, partial)
        return TurnResult(text=self._result.result or "", data=self._result.structured_output)

    async def _take(self, message: messages.Message | None, asking: BackgroundTasks) -> None:
        match message:
            case messages.System():
                await self._system(message)
            case messages.Assistant():
                await self._assistant(message)
            case messages.User():
                await self._returned(message)
            case messages.Result():
                await self._ended(message)
            case messages.ControlRequest():
                self._asked(message, asking)
            case messages.ControlCancel() if message.request_id in self._questions:
                self._questions[message.request_id].cancel()
            case messages.ControlResponse() if message.response.request_id == _USAGE_REQUEST:
                self._before = message.cost

    async def _system(self, message: messages.System) -> None:
        if message.subtype == "api_retry" and message.error_status in {401, 403} and message.attempt >= _LOGIN_ATTEMPTS:
            raise failures.login_failure(message.error_status)
        if message.subtype == "background_tasks_changed":
            self._is_busy_behind = bool(message.tasks)
        if message.subtype == "init":
            self._is_resting = False
            self._check_servers(message.mcp_servers)
            if message.session_id != self._conversation:
                self._conversation = message.session_id
                await self._reporter.report_conversation(message.session_id)

    def _check_servers(self, servers: list[messages.Server]) -> None:
        missing = {server.name for server in servers if server.status in _UNAVAILABLE}
        if missing & self._turn.blueprint.mcp_servers.keys():
            raise failures.missing_server_failure(missing)

    async def _assistant(self, message: messages.Assistant) -> None:
        self._is_resting = False
        body = message.message
        if body.model == _SYNTHETIC_MODEL:
            return
        for block in body.content:
            if block.type == "tool_use":
                await self._reporter.report_tool_call(block.id, block.name, block.input)
            elif block.type == "text" and message.parent_tool_use_id is None:
                self._said.append(block.text)
                await self._reporter.report_message(block.text)
        await self._count(body)

    async def _count(self, body: messages.AssistantBody) -> None:
        """A message comes in as many lines as it has parts, each with the tokens of the whole."""
        spent = body.usage.cost if body.usage is not None else messages.Cost()
        if self._answers.get(body.id) != spent:
            self._turns += body.id not in self._answers
            self._answers[body.id] = spent
            await self._used()

    async def _used(self) -> None:
        spent = sum(self._answers.values(), start=self._accounted)
        await self._reporter.report_usage(
            Usage(
                turns=self._turns,
                input_tokens=spent.input_tokens,
                output_tokens=spent.output_tokens,
                cost_usd=spent.cost_usd,
            )
        )

    async def _returned(self, message: messages.User) -> None:
        content = message.message.content
        for block in content if isinstance(content, list) else ():
            if block.type == "tool_result":
                await self._reporter.report_tool_result(block.tool_use_id, ok=not block.is_error, text=block.result)

    async def _ended(self, result: messages.Result) -> None:
        self._result, self._is_resting = result, True
        if self._before is not None and self._turns:
            self._accounted, self._answers = result.cost - self._before, {}
            await self._used()
        # Whatever runs in the background is reported to the model when it ends, and then there may be something to ask.
        if not self._is_busy_behind:
            self._process.close_stdin()

    def _asked(self, message: messages.ControlRequest, asking: BackgroundTasks) -> None:
        self._questions[message.request_id] = asking.start(self._reply(message.request_id, message.request))

    async def _reply(self, name: str, request: messages.ControlRequestBody) -> None:
        response: dict[str, Any] = {"subtype": "success", "request_id": name}
        if request.subtype == "can_use_tool":
            response["response"] = await answer_permission_request(request, self._turn.blueprint.permissions, self._reporter)
        elif request.subtype == "elicitation":
            # A server that asks has a way of its own to people, or does without.
            response["response"] = {"action": "cancel"}
        else:
            response = {"subtype": "error", "request_id": name, "error": f"{request.subtype} is not known here."}
        await self._process.write(_encode_line({"type": "control_response", "response": response}))


def _encode_line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"
