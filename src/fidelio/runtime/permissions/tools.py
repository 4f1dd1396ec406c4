"""The tools permissions_check and permissions_describe."""

from __future__ import annotations

from fidelio.runtime.permissions.posture import check_call, describe_permissions
from fidelio.runtime.shell.live import LiveShell, observe
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import EmptyParameters, PermissionsCheck


async def _check(call: ToolCall, arguments: PermissionsCheck, _: Preparation) -> ToolResult:
    live = await _see_shell(call)
    now = call.context.clock()
    output = check_call(arguments.toolName, arguments.toolArgs or {}, call.record, live, call.tools, now=now)
    return ToolResult(output=output)


async def _describe(call: ToolCall, _: EmptyParameters, __: Preparation) -> ToolResult:
    return ToolResult(output=describe_permissions(call.record, await _see_shell(call), call.tools))


async def _see_shell(call: ToolCall) -> LiveShell | None:
    """The live shell; asking starts no sandbox."""
    return (await observe(call)).shell


PERMISSION_IMPLEMENTATIONS = {
    "permissions_check": Implementation(_check),
    "permissions_describe": Implementation(_describe),
}
