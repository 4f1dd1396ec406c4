"""The tools permissions_check and permissions_describe."""

from __future__ import annotations

from typing import Any

from fidelio.runtime.navigation.context import load_pressure
from fidelio.runtime.permissions.posture import check_call, describe_permissions
from fidelio.runtime.shell.live import LiveShell, observe
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import EmptyParameters, PermissionsCheck


async def _check(call: ToolCall, arguments: PermissionsCheck, _: Preparation) -> ToolResult:
    live = await _see_shell(call)
    now = call.context.clock()
    planned, pressure = arguments.toolArgs or {}, await _find_pressure(call)
    output = check_call(arguments.toolName, planned, call.record, live, call.tools, now=now, pressure=pressure)
    return ToolResult(output=output)


async def _describe(call: ToolCall, _: EmptyParameters, __: Preparation) -> ToolResult:
    live, now, pressure = await _see_shell(call), call.context.clock(), await _find_pressure(call)
    return ToolResult(output=describe_permissions(call.record, live, call.tools, now=now, pressure=pressure))


async def _find_pressure(call: ToolCall) -> dict[str, Any] | None:
    return await load_pressure(call.context, call.session, call.tools)


async def _see_shell(call: ToolCall) -> LiveShell | None:
    """The live shell; asking starts no sandbox."""
    return (await observe(call)).shell


PERMISSION_IMPLEMENTATIONS = {
    "permissions_check": Implementation(_check),
    "permissions_describe": Implementation(_describe),
}
