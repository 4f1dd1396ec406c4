"""The tools that an agent with `agent_toolset_20260401` has in a session: exactly the enabled ones, with their policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from fidelio.errors import ToolRefused
from fidelio.runtime.agent_toolset.definitions import AGENT_DEFINITIONS, HOSTED_TOOLS
from fidelio.runtime.agent_toolset.files import FILE_IMPLEMENTATIONS
from fidelio.runtime.agent_toolset.shell import BASH
from fidelio.runtime.agent_toolset.web import WebFetch, WebSearch, build_search
from fidelio.runtime.agents.tools import AGENT_TOOLSET, AgentTools
from fidelio.runtime.delegation.roster import RIGHTS
from fidelio.runtime.tools.catalogue import ExtraTool
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult


def name_rights(tools: frozenset[str], extra: Mapping[str, ExtraTool]) -> frozenset[str]:
    """What the children of a session may have: its tools by the names of our own ones."""
    return tools | {RIGHTS.get(name, name) for name, (tool, _) in extra.items() if tool.ownership == "managed"}


def build_tools(
    wanted: AgentTools, rights: frozenset[str] | None, search: WebSearch | None, *, is_self_hosted: bool
) -> dict[str, ExtraTool]:
    """The tools by name. `rights`: those of a parent, None without a parent. `search` None: there is no backend.

    In a self-hosted environment a worker of the user carries out what touches its machine, and there is no proxy to fetch by.
    """
    if wanted.toolset != AGENT_TOOLSET:
        return {}
    found: dict[str, ExtraTool] = {}
    implementations = _implement(wanted, search, is_self_hosted=is_self_hosted)
    for name, definition in AGENT_DEFINITIONS.items():
        is_allowed = rights is None or RIGHTS.get(name, name) in rights
        if name in implementations and wanted.offers(name) and is_allowed:
            found[name] = replace(definition, policy=wanted.find_policy(name)), implementations[name]
    return found


async def _prepare_elsewhere(_: ToolCall, arguments: Any) -> Preparation:
    return Preparation(command=getattr(arguments, "command", None) or "", about=("A worker of yours carries it out.",))


async def _refuse_here(_: ToolCall, __: Any, ___: Preparation) -> ToolResult:
    raise ToolRefused("A worker of the user carries out this tool.", reason="self_hosted")


_ELSEWHERE = Implementation(_refuse_here, _prepare_elsewhere, is_elsewhere=True)


def _implement(wanted: AgentTools, search: WebSearch | None, *, is_self_hosted: bool) -> dict[str, Implementation]:
    searching = {"web_search": build_search(search, wanted.web_search)} if search is not None else {}
    own = {**FILE_IMPLEMENTATIONS, "bash": BASH}
    if is_self_hosted:
        return {**dict.fromkeys(HOSTED_TOOLS, _ELSEWHERE), **searching}
    return {**own, "web_fetch": WebFetch(wanted.web_fetch).build(), **searching}
