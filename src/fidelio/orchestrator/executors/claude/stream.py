"""Reader of Claude Code's output, a JSON message a line, and the replies to its requests.

The lines are in a file, so a host that adopts the process reads them again from the beginning. A reply may then be sent twice;
Claude Code ignores the second.

Claude Code asks its client before it calls a tool that its settings neither allow nor deny, and its model asks a person with a
tool of its own. The permissions of the blueprint answer, or a person does.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fidelio.orchestrator.blueprints.model import Permissions
from fidelio.orchestrator.executors.claude import messages
from fidelio.orchestrator.executors.claude.messages import ControlRequestBody, Json
from fidelio.orchestrator.executors.common import BackgroundTasks, background_tasks, decide_permission
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.spooled import AgentProcess, ProcessExit

ALLOW, ALWAYS, REFUSE, OTHER = "allow", "allow-always", "refuse", "other"
# The tool by which the model asks a person.
QUESTION_TOOL = "AskUserQuestion"
_LONGEST_INPUT = 2_000
_NOT_ALLOWED = "This agent is not allowed to do that. Go on without it."


async def answer_permission_request(request: ControlRequestBody, permissions: Permissions, reporter: Reporter) -> Json:
    """Answer a permission request for a tool call, by the permissions or by asking a person."""
    if request.tool_name == QUESTION_TOOL:
        return _allow({**request.input, "answers": await _ask_questions(request, reporter)})
    # Claude Code does not ask about read-only tools and about calls that its own rules decide.
    decision = decide_permission(permissions, (request.tool_name,), "something")
    if decision == "ask":
        return _encode_reply(request, await reporter.ask(_permission_question(request, permissions)))
    return _allow(request.input) if decision == "allow" else _deny(_NOT_ALLOWED)


async def _ask_questions(request: ControlRequestBody, reporter: Reporter) -> dict[str, str]:
    """Ask a person the questions of the model, sequentially."""
    questions = enumerate(request.input.get("questions", ()))
    return {
        question["question"]: await _ask_question(f"{request.tool_use_id}.{number}", question, reporter)
        for number, question in questions
    }


async def _ask_question(key: str, raw: Json, reporter: Reporter) -> str:
    labels = [option["label"] for option in raw.get("options", ())]
    question = AgentQuestion(
        key=key,
        kind="question",
        text=_with_descriptions(raw),
        options=(*((label, label) for label in labels), (OTHER, "Something else, or several of these: say it in words")),
        detail={"header": raw.get("header", ""), "several": bool(raw.get("multiSelect"))},
    )
    reply = await reporter.ask(question)
    return ", ".join(part for part in (reply.option if reply.option != OTHER else "", reply.text) if part)


def _with_descriptions(raw: Json) -> str:
    described = [option for option in raw.get("options", ()) if option.get("description")]
    lines = [f"- {option['label']}: {option['description']}" for option in described]
    return "\n".join([raw["question"], *([""] if lines else []), *lines])


def _permission_question(request: ControlRequestBody, permissions: Permissions) -> AgentQuestion:
    options = [(ALLOW, "Allow it once"), (REFUSE, "Refuse it")]
    # A signature is for this call. Nobody has seen, and so signed, the like of it.
    if _session_rules(request) and not permissions.needs_proof:
        options.insert(1, (ALWAYS, "Allow it, and the like of it, in this turn"))
    return AgentQuestion(
        key=request.tool_use_id,
        kind="permission",
        text=_describe_call(request),
        options=tuple(options),
        detail={"tool": request.tool_name, "input": request.input, "path": request.blocked_path},
    )


def _describe_call(request: ControlRequestBody) -> str:
    arguments = msgspec.json.format(msgspec.json.encode(request.input)).decode()
    if len(arguments) > _LONGEST_INPUT:
        arguments = arguments[:_LONGEST_INPUT] + " ..."
    description = request.description
    return f"The agent wants to use {request.tool_name}{f' ({description})' if description else ''}:\n{arguments}"


def _encode_reply(request: ControlRequestBody, reply: Reply) -> Json:
    if reply.option == ALLOW:
        return _allow(request.input)
    if reply.option == ALWAYS:
        return {**_allow(request.input), "updatedPermissions": _session_rules(request)}
    return _deny(reply.text or "A person has refused this.")


def _session_rules(request: ControlRequestBody) -> list[Json]:
    """The rules that Claude Code proposes, limited to this process: it would write them into the settings of the project."""
    proposed = request.permission_suggestions or ()
    return [{**rule, "destination": "session"} for rule in proposed if rule.get("type") == "addRules"]


def _allow(arguments: Json) -> Json:
    return {"behavior": "allow", "updatedInput": arguments}


def _deny(why: str) -> Json:
    return {"behavior": "deny", "message": why}


# How long a command in the background may still run after the result of the turn.
LINGER_SECONDS = 60.0
# Claude Code retries a rejected key ten times, which takes minutes.
_LOGIN_ATTEMPTS = 3
_USAGE_REQUEST = "fidelio-before"
_UNAVAILABLE = frozenset({"failed", "needs-auth"})
# The name of the model in messages that Claude Code itself writes.
_SYNTHETIC_MODEL = "<synthetic>"


def encode_first_input(turn: Turn) -> bytes:
    """The first lines of input. For a resumed conversation they ask for its cost so far, to be subtracted from the total."""
    # `client_composed`: a prompt that begins with a slash is not a command.
    prompt = _encode_line({"type": "user", "message": {"role": "user", "content": turn.prompt}, "client_composed": True})
    if turn.conversation is None:
        return prompt
    return _encode_line({"type": "control_request", "request_id": _USAGE_REQUEST, "request": {"subtype": "get_usage"}}) + prompt


async def follow_turn(process: AgentProcess, turn: Turn, reporter: Reporter) -> TurnResult:
    """Follow the agent to the end of its turn. Several questions may be open at once while the agent continues."""
    follower = _TurnFollower(process, turn, reporter)
    async with background_tasks() as tasks:
        await follower.follow(tasks)
    # A process that still runs has its result and only lingers; leaving its context stops it.
    return follower.build_result(ProcessExit(0) if process.is_running() else await process.wait_for_exit())


class _TurnFollower:
    def __init__(self, process: AgentProcess, turn: Turn, reporter: Reporter) -> None:
        self._process, self._turn, self._reporter = process, turn, reporter
        self._conversation = turn.conversation or turn.fresh
        self._previous_total = Usage() if turn.conversation is None else None
        # The usage that Claude Code has reported, and the model answers since then by id.
        self._reported_usage = Usage()
        self._answers: dict[str, Usage] = {}
        self._model_calls = 0
        self._texts: list[str] = []
        self._result: messages.Result | None = None
        self._has_ended = self._has_background_tasks = False
        self._questions: dict[str, asyncio.Task[None]] = {}

    async def follow(self, tasks: BackgroundTasks) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as bound:
                async for line in self._process.lines():
                    await self._handle(messages.read_message(line), tasks)
                    bound.reschedule(loop.time() + LINGER_SECONDS if self._has_ended else None)
        except TimeoutError:
            if not bound.expired():
                raise

    def build_result(self, exit_: ProcessExit) -> TurnResult:
        partial = "\n\n".join(self._texts)
        if self._result is None:
            raise messages.stderr_failure(self._process.stderr_tail()) or self._process.failure(exit_, partial=partial)
        if self._result.is_error:
            raise messages.result_failure(self._result, partial)
        return TurnResult(text=self._result.result or "", data=self._result.structured_output)

    async def _handle(self, message: messages.Message | None, tasks: BackgroundTasks) -> None:
        match message:
            case messages.System():
                await self._handle_system(message)
            case messages.Assistant():
                await self._handle_assistant(message)
            case messages.User():
                await self._handle_tool_results(message)
            case messages.Result():
                await self._handle_result(message)
            case messages.ControlRequest():
                self._questions[message.request_id] = tasks.start(self._reply(message.request_id, message.request))
            case messages.ControlCancel() if message.request_id in self._questions:
                self._questions[message.request_id].cancel()
            case messages.ControlResponse() if message.response.request_id == _USAGE_REQUEST:
                self._previous_total = message.total

    async def _handle_system(self, message: messages.System) -> None:
        if message.subtype == "api_retry" and message.error_status in {401, 403} and message.attempt >= _LOGIN_ATTEMPTS:
            raise messages.login_failure(message.error_status)
        if message.subtype == "background_tasks_changed":
            self._has_background_tasks = bool(message.tasks)
        if message.subtype == "init":
            self._has_ended = False
            self._check_servers(message.mcp_servers)
            if message.session_id != self._conversation:
                self._conversation = message.session_id
                await self._reporter.report_conversation(message.session_id)

    def _check_servers(self, servers: list[messages.Server]) -> None:
        missing = {server.name for server in servers if server.status in _UNAVAILABLE}
        if missing & self._turn.blueprint.mcp_servers.keys():
            raise messages.missing_server_failure(missing)

    async def _handle_assistant(self, message: messages.Assistant) -> None:
        self._has_ended = False
        body = message.message
        if body.model == _SYNTHETIC_MODEL:
            return
        for block in body.content:
            if block.type == "tool_use":
                await self._reporter.report_tool_call(block.id, block.name, block.input)
            elif block.type == "text" and message.parent_tool_use_id is None:
                self._texts.append(block.text)
                await self._reporter.report_message(block.text)
        await self._count(body)

    async def _count(self, body: messages.AssistantBody) -> None:
        """Count an answer once: it comes as a line for each content block, each with the tokens of the whole answer."""
        usage = body.usage.total if body.usage is not None else Usage()
        if self._answers.get(body.id) != usage:
            self._model_calls += body.id not in self._answers
            self._answers[body.id] = usage
            await self._report_usage()

    async def _report_usage(self) -> None:
        usage = sum(self._answers.values(), start=self._reported_usage)
        await self._reporter.report_usage(msgspec.structs.replace(usage, turns=self._model_calls))

    async def _handle_tool_results(self, message: messages.User) -> None:
        content = message.message.content
        for block in content if isinstance(content, list) else ():
            if block.type == "tool_result":
                await self._reporter.report_tool_result(block.tool_use_id, ok=not block.is_error, text=block.result_text)

    async def _handle_result(self, result: messages.Result) -> None:
        self._result, self._has_ended = result, True
        if self._previous_total is not None and self._model_calls:
            self._reported_usage, self._answers = result.total - self._previous_total, {}
            await self._report_usage()
        # The end of a background task is reported to the model, which may then need a permission: keep the input open.
        if not self._has_background_tasks:
            self._process.close_stdin()

    async def _reply(self, name: str, request: messages.ControlRequestBody) -> None:
        response: dict[str, Any] = {"subtype": "success", "request_id": name}
        if request.subtype == "can_use_tool":
            response["response"] = await answer_permission_request(request, self._turn.blueprint.permissions, self._reporter)
        elif request.subtype == "elicitation":
            # An MCP server of the agent cannot ask a person through Claude Code.
            response["response"] = {"action": "cancel"}
        else:
            response = {"subtype": "error", "request_id": name, "error": f"{request.subtype} is not known here."}
        await self._process.write(_encode_line({"type": "control_response", "response": response}))


def _encode_line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"
