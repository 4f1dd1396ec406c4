"""File tools and the description of the sandbox. The work is done inside of it, where the kernel holds the boundary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from fidelio.errors import ToolRefused
from fidelio.runtime.permissions.policy import find_policy
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.definitions import DEFINITIONS, PERMISSION_OF_ACTION, TOOL_OF_ACTION
from fidelio.runtime.tools.model import Implementation, Policy, Preparation, ToolCall, ToolResult
from fidelio.sandbox.actions import ACTIONS, Action
from fidelio.sandbox.commands.allow_list import COMMANDS
from fidelio.sandbox.model import LevelReport, SandboxSpec

MAX_TIMEOUT_MS = 60_000
# What every command gets from the sandbox.
BASE_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "USER", "SHELL")
# The tools that are an action and nothing more.
_PLAIN_TOOLS = ("read", "write", "edit", "glob", "grep")


def implement_action(action: Action) -> Implementation:
    """The implementation of an action that runs as it is, with the arguments of the call."""

    async def run(call: ToolCall, arguments: Any, _: Preparation) -> ToolResult:
        output = await call.act(action.name, msgspec.to_builtins(arguments))
        return ToolResult(output=wrap_action(action.name, output))

    async def prepare(_: ToolCall, __: Any) -> Preparation:
        # The arguments do not say which action it is.
        return Preparation(bound={"action": action.name}, about=(f"Action: {action.name}",))

    return Implementation(run, prepare)


def wrap_action(name: str, output: dict[str, Any]) -> dict[str, Any]:
    """The result of an action as every tool returns it. `text` says in a line what was done."""
    return {"ok": True, "name": name, "text": summarize(name, output), "output": output}


def summarize(name: str, output: dict[str, Any]) -> str:
    """Say in a line what an action returned."""
    for key in ("entries", "matches"):
        if key in output:
            if not isinstance(output[key], list):
                raise ToolRefused(f"The sandbox replied with {key} that are not a list.", reason="bad_reply")
            more = ", and there are more" if output.get("truncated") else ""
            return f"{name}: {len(output[key])} {key}{more}"
    if "totalLineCount" in output:
        return f"{name}: {output.get('selectedLineCount')} of {output['totalLineCount']} lines"
    return name


async def _describe(call: ToolCall, _: Any, __: Preparation) -> ToolResult:
    report = await call.context.sandboxes.level()
    spec = call.spec
    output = {
        "kind": "local",
        "summary": _summarize(report, spec),
        "level": report.level,
        "mounts": describe_mounts(spec),
        "constraints": list(_constraints(report, spec)),
        "actions": [describe_action(action, call.record, report) for action in ACTIONS.values()],
        "commandPolicy": describe_command_policy(spec),
    }
    return ToolResult(output=output)


def describe_mounts(spec: SandboxSpec) -> list[dict[str, str]]:
    """The mounts as an agent sees them: no directory of the host."""
    return [{"mountPath": mount.path, "access": mount.access, "kind": mount.kind} for mount in spec.mounts]


def describe_action(action: Action, record: RuntimeRecord, report: LevelReport) -> dict[str, Any]:
    """An action with its input (`?`: may be left out) and the access that a call of it has now."""
    access = _find_access(action, record, report)
    return {"name": action.name, "summary": action.summary, "input": _name_inputs(action), "access": access}


def _name_inputs(action: Action) -> list[str]:
    tool = TOOL_OF_ACTION.get(action.name)
    fields = msgspec.structs.fields(DEFINITIONS[tool].parameters if tool else action.parameters)
    return [field.name if field.required else f"{field.name}?" for field in fields]


def _find_access(action: Action, record: RuntimeRecord, report: LevelReport) -> str:
    if report.level == "none" or (action.runs_commands and not report.runs_commands):
        return "refused"
    tool = PERMISSION_OF_ACTION.get(action.name, "sandbox_execute")
    return _ACCESS[find_policy(DEFINITIONS[tool], record, action.name if action.name not in TOOL_OF_ACTION else "")]


def _summarize(report: LevelReport, spec: SandboxSpec) -> str:
    commands = "Commands and file tools see the same tree." if report.runs_commands else "Only file tools work here."
    return f"Sandbox at level {report.level}, network {spec.network}. {commands}"


def _constraints(report: LevelReport, spec: SandboxSpec) -> Iterator[str]:
    if not report.runs_commands:
        yield f"No commands and no shell at level {report.level}: {report.reason} {report.remedy}".rstrip()
    yield "Nothing outside of the mounts is visible, apart from the programs of the system, which are read-only."
    yield "The shared files at /workspace/agent change only by resources_promote_to_substrate."
    limits = spec.limits
    yield (
        f"At most {limits.processes} processes, {limits.memory_bytes >> 20} MiB of memory for each, "
        f"{limits.disk_bytes >> 20} MiB on disk."
    )


def describe_command_policy(spec: SandboxSpec) -> dict[str, Any]:
    """What the tool `bash` may run, and what every command gets."""
    return {
        "shell": "shell_run and shell_exec ask a person; bash runs the listed programs without a shell",
        "allowlistedCommands": sorted(COMMANDS),
        "cwdScope": [mount.path for mount in spec.mounts],
        "maxTimeoutMs": MAX_TIMEOUT_MS,
        "exposedEnvKeys": sorted({*BASE_VARIABLES, *spec.environment}),
    }


_ACCESS: dict[Policy, str] = {"always_allow": "allow", "always_ask": "ask", "auto": "ask", "proven": "ask"}
FILE_IMPLEMENTATIONS = {
    **{tool: implement_action(ACTIONS[action]) for action, tool in TOOL_OF_ACTION.items() if tool in _PLAIN_TOOLS},
    "sandbox_describe": Implementation(_describe),
}
