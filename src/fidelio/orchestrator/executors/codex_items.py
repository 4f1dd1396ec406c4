"""What Codex does, item by item, in the words of the orchestrator.

The two ways to run Codex tell the same items, one in camel case and one in snake case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fidelio.orchestrator.executors.contract import Teller
from fidelio.orchestrator.executors.permissions import mcp_name

Item = Mapping[str, Any]

SHELL, PATCH = "shell", "apply_patch"


class Account:
    """Tells items as they come. `last` is the newest message, `steps` how many items the model has made.

    `items` are those that have begun and not ended yet, the newest last.
    """

    def __init__(self, tell: Teller) -> None:
        self.last = ""
        self.steps = 0
        self.items: dict[str, Item] = {}
        self._tell = tell
        self._called: set[str] = set()

    async def started(self, item: Item) -> None:
        self.items[item["id"]] = item
        if kind_of(item) in _USES:
            await self._use(item)

    async def _use(self, item: Item) -> None:
        if item["id"] not in self._called:
            self._called.add(item["id"])
            self.steps += 1
            tool, arguments = _USES[kind_of(item)](item)
            await self._tell.called(item["id"], tool, arguments)

    async def completed(self, item: Item) -> None:
        self.items.pop(item["id"], None)
        if kind_of(item) == "agent_message":
            self.steps += 1
            self.last = item["text"]
            await self._tell.said(self.last)
        elif kind_of(item) in _USES:
            await self._use(item)
            await self._tell.returned(item["id"], ok=item.get("status", "completed") == "completed", text=_outcome(item))


def kind_of(item: Item) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", item["type"]).lower()


def _mcp(item: Item) -> tuple[str, Any]:
    return mcp_name(item["server"], item["tool"]), item.get("arguments")


_USES: Mapping[str, Callable[[Item], tuple[str, Any]]] = MappingProxyType(
    {
        "command_execution": lambda item: (SHELL, {"command": item["command"]}),
        "file_change": lambda item: (PATCH, {"changes": item["changes"]}),
        "mcp_tool_call": _mcp,
        "web_search": lambda item: ("web_search", {"query": item.get("query", "")}),
        "collab_agent_tool_call": lambda item: (str(item["tool"]), {"prompt": item.get("prompt")}),
    }
)


def _outcome(item: Item) -> str:
    """What came of a use, as text: the output of a command, the content of a tool's result, or why it failed."""
    if error := item.get("error"):
        return str(error["message"])
    output = item.get("aggregated_output", item.get("aggregatedOutput"))
    if output is not None:
        return str(output)
    parts = (item.get("result") or {}).get("content", [])
    return "\n".join(part["text"] if part.get("type") == "text" else json.dumps(part) for part in parts)
