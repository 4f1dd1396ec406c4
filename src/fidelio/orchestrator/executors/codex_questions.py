"""What Codex asks on its way: leave to do something, or a question for a person. Each request gets its answer here.

`decide` is all the app server needs: the `result` for a request that Codex has sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fidelio.orchestrator.blueprints.model import Permissions
from fidelio.orchestrator.executors.codex_items import PATCH, SHELL, Item
from fidelio.orchestrator.executors.contract import Question, Reply, Teller
from fidelio.orchestrator.executors.permissions import ALLOW, REFUSE, mcp_name, verdict

Json = Mapping[str, Any]

_LEAVE = ((ALLOW, "Allow"), (REFUSE, "Refuse"))
_DECLINE = ("decline", "Do not answer")


class Desk:
    """Decides what the permissions decide, and asks a person about the rest."""

    def __init__(self, permissions: Permissions, tell: Teller, items: Mapping[str, Item]) -> None:
        """`items` are those that Codex has begun and not finished, the newest last."""
        self._permissions, self._tell, self._items = permissions, tell, items

    async def decide(self, method: str, params: Json, number: int | str) -> dict[str, Any] | None:
        """The answer to a request, None for one that is not known here."""
        answers = {
            "item/commandExecution/requestApproval": self._command,
            "item/fileChange/requestApproval": self._files,
            "item/permissions/requestApproval": self._more_permissions,
            "mcpServer/elicitation/request": self._mcp_tool if _is_tool_approval(params) else self._form,
            "item/tool/requestUserInput": self._questions,
        }
        return await answers[method](params, str(number)) if method in answers else None

    async def _command(self, params: Json, _: str) -> dict[str, Any]:
        command = params.get("command") or "a command"
        text = f"Codex wants to run: {command}"
        key = params.get("approvalId") or params["itemId"]
        detail = {name: params[name] for name in ("command", "cwd", "reason", "networkApprovalContext") if params.get(name)}
        return _decision(await self._may(key, (SHELL,), text, detail))

    async def _files(self, params: Json, _: str) -> dict[str, Any]:
        changes = self._items.get(params["itemId"], {}).get("changes", [])
        paths = ", ".join(change["path"] for change in changes) or "files"
        text = f"Codex wants to change {paths}."
        detail = {"changes": changes, **({"reason": params["reason"]} if params.get("reason") else {})}
        return _decision(await self._may(params["itemId"], (PATCH,), text, detail))

    async def _more_permissions(self, params: Json, _: str) -> dict[str, Any]:
        wanted = params["permissions"]
        text = f"Codex wants to be allowed more: {params.get('reason') or json.dumps(wanted)}"
        allowed = await self._may(params["itemId"], ("request_permissions",), text, {"permissions": wanted})
        return {"permissions": wanted if allowed else {}, "scope": "turn"}

    async def _mcp_tool(self, params: Json, number: str) -> dict[str, Any]:
        server, item = params["serverName"], self._waiting_use(params["serverName"])
        names = (mcp_name(server, item["tool"]) if item else mcp_name(server),)
        detail = {"tool": names[0], "arguments": params["_meta"].get("tool_params")}
        key = item["id"] if item else f"elicitation-{number}"
        allowed = await self._may(key, names, params["message"], detail)
        return _elicited({} if allowed else None)

    def _waiting_use(self, server: str) -> Item | None:
        """The use that is asked about: Codex says of which server it is, and has told of it just before."""
        uses = [item for item in self._items.values() if item["type"] == "mcpToolCall" and item["server"] == server]
        return uses[-1] if uses else None

    async def _may(self, key: str, names: tuple[str, ...], text: str, detail: Json) -> bool:
        # The sandbox lets through what needs no leave, so whatever is asked about changes something.
        decided = verdict(self._permissions, names, "something")
        if decided != "ask":
            return decided == "allow"
        question = Question(key=key, kind="permission", text=text, options=_LEAVE, detail=detail)
        return (await self._tell.ask(question)).option == ALLOW

    async def _form(self, params: Json, number: str) -> dict[str, Any]:
        """A question of an MCP server. One field can be asked for as it is; several are asked for as one object."""
        fields = (params.get("requestedSchema") or {}).get("properties", {})
        text = f"{params['serverName']} asks: {params.get('message') or params.get('description', '')}"
        question = Question(
            key=f"elicitation-{number}",
            kind="question",
            text=text,
            options=_form_options(fields),
            detail={"fields": fields, **({"url": params["url"]} if "url" in params else {})},
        )
        return _elicited(_content(await self._tell.ask(question), fields))

    async def _questions(self, params: Json, _: str) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for asked in params["questions"]:
            labels = [option["label"] for option in asked.get("options") or ()]
            question = Question(
                key=f"{params['itemId']}-{asked['id']}",
                kind="question",
                text=asked["question"],
                options=tuple((label, label) for label in labels),
                detail={"options": asked.get("options") or []},
            )
            reply = await self._tell.ask(question)
            answers[asked["id"]] = {"answers": [text for text in (reply.option, reply.text) if text]}
        return {"answers": answers}


def _is_tool_approval(params: Json) -> bool:
    return (params.get("_meta") or {}).get("codex_approval_kind") == "mcp_tool_call"


def _decision(allowed: bool) -> dict[str, Any]:
    return {"decision": "accept" if allowed else "decline"}


def _elicited(content: Json | None) -> dict[str, Any]:
    return {"action": "decline" if content is None else "accept", "content": content, "_meta": None}


def _form_options(fields: Json) -> tuple[tuple[str, str], ...]:
    if not fields:
        return _LEAVE
    choices = tuple(_options(next(iter(fields.values())))) if len(fields) == 1 else ()
    return (*choices, _DECLINE) if choices else ()


def _options(field: Json) -> Iterator[tuple[str, str]]:
    if field.get("type") == "boolean":
        yield from (("true", "Yes"), ("false", "No"))
    yield from ((value, value) for value in field.get("enum", ()))
    yield from ((one["const"], one.get("title", one["const"])) for one in field.get("oneOf", ()))


def _content(reply: Reply, fields: Json) -> dict[str, Any] | None:
    """What the form is filled in with, None when it is not."""
    if not fields:
        return {} if reply.option == ALLOW else None
    if reply.option == _DECLINE[0]:
        return None
    if len(fields) == 1:
        ((name, field),) = fields.items()
        return {name: _as_type(reply.option or reply.text, field)}
    given = _as_json(reply.text)
    return given if isinstance(given, dict) else None


def _as_type(text: str, field: Json) -> Any:
    return _as_json(text) if field.get("type") in ("boolean", "integer", "number") else text


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
