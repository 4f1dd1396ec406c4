"""Requests of the Codex app server: approvals and questions, answered by the permissions of a blueprint or by a person."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fidelio.orchestrator.blueprints.model import Permissions
from fidelio.orchestrator.executors.codex.messages import PATCH, SHELL, FileChange, Item, Json, McpCall, convert_message
from fidelio.orchestrator.executors.common import ALLOW, REFUSE, decide_permission, mcp_tool_name
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Reporter

_APPROVAL_OPTIONS = ((ALLOW, "Allow"), (REFUSE, "Refuse"))
_DECLINE_OPTION = ("decline", "Do not answer")


class _ApprovalRequest(msgspec.Struct, frozen=True, rename="camel"):
    item_id: str
    approval_id: str | None = None
    command: str | None = None
    reason: str | None = None
    permissions: Any = None


class _ToolApproval(msgspec.Struct, frozen=True, rename="camel"):
    server_name: str
    message: str


class _Form(msgspec.Struct, frozen=True):
    properties: dict[str, Json] = msgspec.field(default_factory=dict)


class _Elicitation(msgspec.Struct, frozen=True, rename="camel"):
    server_name: str
    message: str | None = None
    description: str = ""
    requested_schema: _Form | None = None


class _Choice(msgspec.Struct, frozen=True):
    const: str
    title: str | None = None


class _Field(msgspec.Struct, frozen=True, rename="camel"):
    type: Any = None
    enum: tuple[str, ...] = ()
    choices: tuple[_Choice, ...] = msgspec.field(name="oneOf", default=())


class _Option(msgspec.Struct, frozen=True):
    label: str


class _UserQuestion(msgspec.Struct, frozen=True):
    id: str
    question: str
    options: tuple[Json, ...] | None = None


class _Questions(msgspec.Struct, frozen=True, rename="camel"):
    item_id: str
    questions: tuple[_UserQuestion, ...]


class RequestHandler:
    """Answer the requests of Codex, by the permissions where they decide, else by asking a person."""

    def __init__(self, permissions: Permissions, reporter: Reporter, items: Mapping[str, Item]) -> None:
        """`items` are the started and not completed items of Codex, the newest last."""
        self._permissions, self._reporter, self._items = permissions, reporter, items

    async def answer(self, method: str, params: Any, number: int | str) -> Json | None:
        """The `result` for a request, None for an unknown method."""
        answers = {
            "item/commandExecution/requestApproval": self._answer_command,
            "item/fileChange/requestApproval": self._answer_files,
            "item/permissions/requestApproval": self._answer_permissions,
            "mcpServer/elicitation/request": self._answer_elicitation,
            "item/tool/requestUserInput": self._answer_questions,
        }
        return await answers[method](convert_message(params, Json, method), str(number)) if method in answers else None

    async def _answer_command(self, params: Json, _: str) -> Json:
        request = convert_message(params, _ApprovalRequest, "its request to run a command")
        text = f"Codex wants to run: {request.command or 'a command'}"
        detail = {name: params[name] for name in ("command", "cwd", "reason", "networkApprovalContext") if params.get(name)}
        return _encode_decision(await self._is_allowed(request.approval_id or request.item_id, (SHELL,), text, detail))

    async def _answer_files(self, params: Json, _: str) -> Json:
        request = convert_message(params, _ApprovalRequest, "its request to change files")
        item = self._items.get(request.item_id)
        changes = item.content.changes if item and isinstance(item.content, FileChange) else ()
        paths = ", ".join(str(change.get("path")) for change in changes) or "files"
        detail = {"changes": changes, **({"reason": request.reason} if request.reason else {})}
        return _encode_decision(await self._is_allowed(request.item_id, (PATCH,), f"Codex wants to change {paths}.", detail))

    async def _answer_permissions(self, params: Json, _: str) -> Json:
        request = convert_message(params, _ApprovalRequest, "its request for more permissions")
        text = f"Codex wants to be allowed more: {request.reason or json.dumps(request.permissions)}"
        allowed = await self._is_allowed(request.item_id, ("request_permissions",), text, {"permissions": request.permissions})
        return {"permissions": request.permissions if allowed else {}, "scope": "turn"}

    async def _answer_elicitation(self, params: Json, number: str) -> Json:
        match params.get("_meta"):
            case {"codex_approval_kind": "mcp_tool_call", **meta}:
                return await self._answer_tool(
                    convert_message(params, _ToolApproval, "its request to use a tool"), meta.get("tool_params"), number
                )
        return await self._answer_form(
            convert_message(params, _Elicitation, "a question of an MCP server"), params.get("url"), number
        )

    async def _answer_tool(self, request: _ToolApproval, arguments: Any, number: str) -> Json:
        server = request.server_name
        calls = self._waiting_calls(server, arguments)
        key = next(iter(calls)) if len(calls) == 1 else f"elicitation-{number}"
        # If several waiting tools match, only a permission for the whole server allows the call.
        tool = calls.popitem()[1] if len(set(calls.values())) == 1 else mcp_tool_name(server)
        allowed = await self._is_allowed(key, (tool,), request.message, {"tool": tool, "arguments": arguments})
        return _encode_elicitation({} if allowed else None)

    def _waiting_calls(self, server: str, arguments: Any) -> dict[str, str]:
        """Ids and tools of the calls that a request may be about: Codex names only the server and the arguments."""
        calls = [(id_, item.content) for id_, item in self._items.items() if isinstance(item.content, McpCall)]
        of_server = [(id_, call) for id_, call in calls if call.server == server]
        return {id_: mcp_tool_name(server, call.tool) for id_, call in of_server if (call.arguments or {}) == (arguments or {})}

    async def _is_allowed(self, key: str, names: tuple[str, ...], text: str, detail: Json) -> bool:
        # The sandbox allows read-only calls without asking, so every request is about a change.
        decision = decide_permission(self._permissions, names, "something")
        if decision != "ask":
            return decision == "allow"
        question = AgentQuestion(key=key, kind="permission", text=text, options=_APPROVAL_OPTIONS, detail=detail)
        return (await self._reporter.ask(question)).option == ALLOW

    async def _answer_form(self, elicitation: _Elicitation, url: Any, number: str) -> Json:
        """Ask a person what an MCP server elicits. The answer is the value of a single field, or a JSON object of several."""
        fields = elicitation.requested_schema.properties if elicitation.requested_schema else {}
        question = AgentQuestion(
            key=f"elicitation-{number}",
            kind="question",
            text=f"{elicitation.server_name} asks: {elicitation.message or elicitation.description}",
            options=_form_options(fields),
            detail={"fields": fields, **({"url": url} if url else {})},
        )
        return _encode_elicitation(_form_content(await self._reporter.ask(question), fields))

    async def _answer_questions(self, params: Json, _: str) -> Json:
        request, answers = convert_message(params, _Questions, "its questions"), {}
        for item in request.questions:
            labels = [convert_message(option, _Option, "an option").label for option in item.options or ()]
            question = AgentQuestion(
                key=f"{request.item_id}-{item.id}",
                kind="question",
                text=item.question,
                options=tuple((label, label) for label in labels),
                detail={"options": item.options or ()},
            )
            reply = await self._reporter.ask(question)
            answers[item.id] = {"answers": [text for text in (reply.option, reply.text) if text]}
        return {"answers": answers}


def _encode_decision(allowed: bool) -> Json:
    return {"decision": "accept" if allowed else "decline"}


def _encode_elicitation(content: Json | None) -> Json:
    return {"action": "decline" if content is None else "accept", "content": content, "_meta": None}


def _form_options(fields: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    if not fields:
        return _APPROVAL_OPTIONS
    choices = tuple(_field_options(next(iter(fields.values())))) if len(fields) == 1 else ()
    return (*choices, _DECLINE_OPTION) if choices else ()


def _field_options(raw: Json) -> Iterator[tuple[str, str]]:
    field = convert_message(raw, _Field, "a field of a form")
    if field.type == "boolean":
        yield from (("true", "Yes"), ("false", "No"))
    yield from ((value, value) for value in field.enum)
    yield from ((choice.const, choice.title or choice.const) for choice in field.choices)


def _form_content(reply: Reply, fields: Mapping[str, Json]) -> Json | None:
    """The content of the form in a person's reply, None if the person declines."""
    if not fields:
        return {} if reply.option == ALLOW else None
    if reply.option == _DECLINE_OPTION[0]:
        return None
    if len(fields) == 1:
        ((name, field),) = fields.items()
        return {name: _convert_to_type(reply.option or reply.text, field)}
    content = _parse_json(reply.text)
    return content if isinstance(content, dict) else None


def _convert_to_type(text: str, field: Json) -> Any:
    return _parse_json(text) if field.get("type") in ("boolean", "integer", "number") else text


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
