"""What Codex asks on its way: leave to do something, or a question for a person. Each request gets its answer here.

`answer` is all the app server needs: the `result` for a request that Codex has sent.
"""

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
    one_of: tuple[_Choice, ...] = ()


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
    """Decides what the permissions decide, and asks a person about the rest."""

    def __init__(self, permissions: Permissions, reporter: Reporter, items: Mapping[str, Item]) -> None:
        """`items` are those that Codex has begun and not finished, the newest last."""
        self._permissions, self._reporter, self._items = permissions, reporter, items

    async def answer(self, method: str, params: Any, number: int | str) -> Json | None:
        """The answer to a request, None for one that is not known here."""
        answers = {
            "item/commandExecution/requestApproval": self._command,
            "item/fileChange/requestApproval": self._files,
            "item/permissions/requestApproval": self._more_permissions,
            "mcpServer/elicitation/request": self._elicitation,
            "item/tool/requestUserInput": self._questions,
        }
        return await answers[method](convert_message(params, Json, method), str(number)) if method in answers else None

    async def _command(self, params: Json, _: str) -> Json:
        wish = convert_message(params, _ApprovalRequest, "its wish to run a command")
        text = f"Codex wants to run: {wish.command or 'a command'}"
        detail = {name: params[name] for name in ("command", "cwd", "reason", "networkApprovalContext") if params.get(name)}
        return _encode_decision(await self._may(wish.approval_id or wish.item_id, (SHELL,), text, detail))

    async def _files(self, params: Json, _: str) -> Json:
        wish = convert_message(params, _ApprovalRequest, "its wish to change files")
        item = self._items.get(wish.item_id)
        changes = item.content.changes if item and isinstance(item.content, FileChange) else ()
        paths = ", ".join(str(change.get("path")) for change in changes) or "files"
        detail = {"changes": changes, **({"reason": wish.reason} if wish.reason else {})}
        return _encode_decision(await self._may(wish.item_id, (PATCH,), f"Codex wants to change {paths}.", detail))

    async def _more_permissions(self, params: Json, _: str) -> Json:
        wish = convert_message(params, _ApprovalRequest, "its wish for more permissions")
        text = f"Codex wants to be allowed more: {wish.reason or json.dumps(wish.permissions)}"
        allowed = await self._may(wish.item_id, ("request_permissions",), text, {"permissions": wish.permissions})
        return {"permissions": wish.permissions if allowed else {}, "scope": "turn"}

    async def _elicitation(self, params: Json, number: str) -> Json:
        match params.get("_meta"):
            case {"codex_approval_kind": "mcp_tool_call", **meta}:
                return await self._mcp_tool(
                    convert_message(params, _ToolApproval, "its wish to use a tool"), meta.get("tool_params"), number
                )
        return await self._form(convert_message(params, _Elicitation, "a question of an MCP server"), params.get("url"), number)

    async def _mcp_tool(self, wish: _ToolApproval, arguments: Any, number: str) -> Json:
        server = wish.server_name
        uses = self._waiting_uses(server, arguments)
        key = next(iter(uses)) if len(uses) == 1 else f"elicitation-{number}"
        # Where it could be one of several tools, only leave for the whole server is leave.
        tool = uses.popitem()[1] if len(set(uses.values())) == 1 else mcp_tool_name(server)
        allowed = await self._may(key, (tool,), wish.message, {"tool": tool, "arguments": arguments})
        return _encode_elicitation({} if allowed else None)

    def _waiting_uses(self, server: str, arguments: Any) -> dict[str, str]:
        """The uses that may be asked about, each with its tool: Codex says of which server it is, and what it is given."""
        uses = [(id_, item.content) for id_, item in self._items.items() if isinstance(item.content, McpCall)]
        ours = [(id_, use) for id_, use in uses if use.server == server]
        return {id_: mcp_tool_name(server, use.tool) for id_, use in ours if (use.arguments or {}) == (arguments or {})}

    async def _may(self, key: str, names: tuple[str, ...], text: str, detail: Json) -> bool:
        # The sandbox lets through what needs no leave, so whatever is asked about changes something.
        decided = decide_permission(self._permissions, names, "something")
        if decided != "ask":
            return decided == "allow"
        question = AgentQuestion(key=key, kind="permission", text=text, options=_APPROVAL_OPTIONS, detail=detail)
        return (await self._reporter.ask(question)).option == ALLOW

    async def _form(self, asked: _Elicitation, url: Any, number: str) -> Json:
        """A question of an MCP server. One field can be asked for as it is; several are asked for as one object."""
        fields = asked.requested_schema.properties if asked.requested_schema else {}
        question = AgentQuestion(
            key=f"elicitation-{number}",
            kind="question",
            text=f"{asked.server_name} asks: {asked.message or asked.description}",
            options=_form_options(fields),
            detail={"fields": fields, **({"url": url} if url else {})},
        )
        return _encode_elicitation(_form_content(await self._reporter.ask(question), fields))

    async def _questions(self, params: Json, _: str) -> Json:
        asked, answers = convert_message(params, _Questions, "its questions"), {}
        for one in asked.questions:
            labels = [convert_message(option, _Option, "an option").label for option in one.options or ()]
            question = AgentQuestion(
                key=f"{asked.item_id}-{one.id}",
                kind="question",
                text=one.question,
                options=tuple((label, label) for label in labels),
                detail={"options": one.options or ()},
            )
            reply = await self._reporter.ask(question)
            answers[one.id] = {"answers": [text for text in (reply.option, reply.text) if text]}
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
    yield from ((one.const, one.title or one.const) for one in field.one_of)


def _form_content(reply: Reply, fields: Mapping[str, Json]) -> Json | None:
    """What the form is filled in with, None when it is not."""
    if not fields:
        return {} if reply.option == ALLOW else None
    if reply.option == _DECLINE_OPTION[0]:
        return None
    if len(fields) == 1:
        ((name, field),) = fields.items()
        return {name: _convert_to_type(reply.option or reply.text, field)}
    given = _parse_json(reply.text)
    return given if isinstance(given, dict) else None


def _convert_to_type(text: str, field: Json) -> Any:
    return _parse_json(text) if field.get("type") in ("boolean", "integer", "number") else text


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
