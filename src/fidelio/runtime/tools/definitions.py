"""The table of tool definitions. Tool lists, managed-tools.json and permissions_check all come from it.

Descriptions are short because every model pays for them with each request.
"""

from __future__ import annotations

from collections.abc import Mapping

from fidelio.runtime.delegation.definitions import DEFINITIONS as DELEGATION_TOOLS
from fidelio.runtime.memory.definitions import DEFINITIONS as MEMORY_TOOLS
from fidelio.runtime.navigation.definitions import DEFINITIONS as NAVIGATION_TOOLS
from fidelio.runtime.outcomes.definitions import DEFINITIONS as OUTCOME_TOOLS
from fidelio.runtime.recall.definitions import DEFINITIONS as RECALL_TOOLS
from fidelio.runtime.skills.definitions import DEFINITIONS as SKILL_TOOLS
from fidelio.runtime.tools import parameters as p
from fidelio.runtime.tools.meta_definitions import META_TOOLS
from fidelio.runtime.tools.model import ToolDefinition as Tool
from fidelio.runtime.tools.shared_definitions import PERMISSION_TOOLS, RESOURCE_TOOLS
from fidelio.sandbox.actions import ACTIONS

_READ = ("resource_read", "sandbox_execute")
_WRITE = ("resource_write", "sandbox_execute")
_SHELL_READ = ("memory_read", "sandbox_execute")
_SHELL = ("sandbox_execute", "memory_write")
_RESULT = ("ok", "name", "text", "output")
_PLANS = ("busyPlan", "recoveryPlan", "nextStep")
# While the command runs, its result has the plans too.
_COMMAND = (*_RESULT, "commandId", "status")
_SHELL_STATE = ("sessionId", "cwd", "persistentShell", "shellState")

_FILES = (
    Tool(
        name="read",
        title="Read a file",
        description="Read a text file: whole up to maxChars, lineCount lines from startLine, or the last tailLines.",
        parameters=ACTIONS["read_text"].parameters,
        group="files",
        effects=_READ,
        output=_RESULT,
        read_only=True,
    ),
    Tool(
        name="write",
        title="Write a file",
        description="Create or overwrite a file in a writable mount, with its parent directories.",
        parameters=ACTIONS["write_text"].parameters,
        group="files",
        effects=_WRITE,
        output=_RESULT,
        destructive=True,
    ),
    Tool(
        name="edit",
        title="Edit a file",
        description="Replace oldText, taken literally, by newText. It must occur exactly once unless replaceAll.",
        parameters=ACTIONS["replace_text"].parameters,
        group="files",
        effects=_WRITE,
        output=_RESULT,
        destructive=True,
    ),
    Tool(
        name="glob",
        title="Find files by name",
        description="List entries below path that match a pattern: * in one directory, ** at any depth.",
        parameters=ACTIONS["glob_entries"].parameters,
        group="files",
        effects=_READ,
        output=_RESULT,
        read_only=True,
    ),
    Tool(
        name="grep",
        title="Search in files",
        description="Search a file or a directory for a text, or a regular expression; gives path, line and text of each hit.",
        parameters=ACTIONS["grep_text"].parameters,
        group="files",
        effects=_READ,
        output=_RESULT,
        read_only=True,
    ),
    Tool(
        name="bash",
        title="Run a read-only command",
        description=(
            "Run one read-only program without a shell: pwd env ls cat head tail wc basename dirname realpath stat find grep."
        ),
        parameters=ACTIONS["run_command"].parameters,
        group="files",
        effects=("sandbox_execute",),
        output=_RESULT,
        read_only=True,
        interrupt="cancel",
    ),
)
_SANDBOX = (
    Tool(
        name="sandbox_describe",
        title="Describe the sandbox",
        description="Mounts, actions with their access, limits, network and the policy for commands.",
        parameters=p.EmptyParameters,
        group="sandbox",
        effects=("sandbox_execute",),
        output=("kind", "summary", "level", "mounts", "constraints", "actions", "commandPolicy"),
        read_only=True,
    ),
    Tool(
        name="sandbox_execute",
        title="Run an action of the sandbox",
        description="Run an action that sandbox_describe lists, by name. The permission is that of the action.",
        parameters=p.SandboxExecute,
        # It may name a tool that has them.
        secrets=("value",),
        group="sandbox",
        effects=("sandbox_execute",),
        output=_RESULT,
        destructive=True,
    ),
)
_SHELL_TOOLS = (
    Tool(
        name="shell_describe",
        title="Describe the shell",
        description="Directory, variable names, live state, recent commands and what to do next.",
        parameters=p.SessionParameters,
        group="shell",
        effects=_SHELL_READ,
        output=(
            *_SHELL_STATE,
            "env",
            "contextPressure",
            "outcomeEvaluation",
            "nextOutcomeStep",
            "requiresOutcomePass",
            "artifactPaths",
            "lastCommandPreview",
            "commandPolicy",
            *_PLANS,
            "shellReadFirstAlternatives",
        ),
        read_only=True,
    ),
    Tool(
        name="shell_history",
        title="List recent commands",
        description="Recent commands, newest first, with short previews of their output.",
        parameters=p.ShellHistory,
        group="shell",
        effects=_SHELL_READ,
        output=("sessionId", "cwd", "count", "artifactPaths", "commands", *_PLANS),
        read_only=True,
    ),
    Tool(
        name="shell_read_last_output",
        title="Read the last output",
        description="The output of the last command, and of the running one so far.",
        parameters=p.SessionParameters,
        group="shell",
        effects=_SHELL_READ,
        output=("sessionId", "cwd", "artifactPaths", "lastCommand", "liveCommand", *_PLANS),
        read_only=True,
    ),
    Tool(
        name="shell_read_command",
        title="Read one command again",
        description="A command of the history with its output, by commandId.",
        parameters=p.ShellReadCommand,
        group="shell",
        effects=_SHELL_READ,
        output=("sessionId", "cwd", "artifactPaths", "command", *_PLANS),
        read_only=True,
    ),
    Tool(
        name="shell_wait",
        title="Wait for a command",
        description="Wait up to 45 s for the running command, or for commandId, and return its result if it has ended.",
        parameters=p.ShellWait,
        group="shell",
        effects=("memory_read", "memory_write", "sandbox_execute"),
        output=(*_SHELL_STATE, "artifactPaths", "status", "result", "error", *_PLANS),
        read_only=True,
        interrupt="cancel",
    ),
    Tool(
        name="shell_set_cwd",
        title="Set the directory",
        description="Set the directory of the following commands. It stays.",
        parameters=p.ShellSetCwd,
        group="shell",
        effects=("memory_write", "sandbox_execute"),
        output=("sessionId", "cwd", "shellState"),
        interrupt="cancel",
        repeatable=True,
    ),
    Tool(
        name="shell_set_env",
        title="Set a variable",
        description="Set a variable of the following commands. It stays; the value is stored encrypted.",
        parameters=p.ShellSetEnv,
        secrets=("value",),
        group="shell",
        effects=("memory_write",),
        output=("sessionId", "key", "env", "shellState"),
        interrupt="cancel",
        repeatable=True,
    ),
    Tool(
        name="shell_unset_env",
        title="Remove a variable",
        description="Remove a variable of the following commands.",
        parameters=p.ShellUnsetEnv,
        group="shell",
        effects=("memory_write",),
        output=("sessionId", "key", "removed", "env", "shellState"),
        interrupt="cancel",
        repeatable=True,
    ),
    Tool(
        name="shell_open",
        title="Open the shell",
        description="Open the persistent shell, or use the live one. pty gives it a terminal.",
        parameters=p.ShellOpen,
        group="shell",
        effects=_SHELL,
        output=(*_SHELL_STATE, "reused", *_PLANS),
        interrupt="cancel",
        repeatable=True,
    ),
    Tool(
        name="shell_restart",
        title="Restart the shell",
        description="End the persistent shell with everything in it and open a new one.",
        parameters=p.ShellRestart,
        group="shell",
        effects=_SHELL,
        output=(*_SHELL_STATE, "reused", *_PLANS),
        interrupt="cancel",
    ),
    Tool(
        name="shell_run",
        title="Run a command",
        description=(
            "Run a command in a shell of its own. A person must allow it. timeoutMs ends it; after 45 s it returns running."
        ),
        parameters=p.ShellRun,
        group="shell",
        effects=_SHELL,
        output=_COMMAND,
        policy="always_ask",
        destructive=True,
        interrupt="cancel",
    ),
    Tool(
        name="shell_exec",
        title="Run a command in the persistent shell",
        description=(
            "Run a command in the persistent shell: cd and export stay. A person must allow it. "
            "timeoutMs limits only the waiting; then it returns running."
        ),
        parameters=p.ShellExec,
        group="shell",
        effects=_SHELL,
        output=_COMMAND,
        policy="always_ask",
        destructive=True,
        interrupt="cancel",
    ),
    Tool(
        name="shell_close",
        title="Close the shell",
        description="End the persistent shell and everything in it. Directory and variables stay for the next one.",
        parameters=p.EmptyParameters,
        group="shell",
        effects=_SHELL,
        output=("sessionId", "closed", "shellId", "shellState"),
        interrupt="cancel",
        repeatable=True,
    ),
    Tool(
        name="shell_interrupt",
        title="Interrupt the running command",
        description="Send Ctrl-C to the running command. The shell stays.",
        parameters=p.EmptyParameters,
        group="shell",
        effects=_SHELL,
        output=(*_SHELL_STATE, "interrupted", "commandId", "status", "result", *_PLANS),
        interrupt="cancel",
        repeatable=True,
    ),
    Tool(
        name="shell_send_input",
        title="Send input to the running command",
        description="Write text to the input of the running command. A person must allow it.",
        parameters=p.ShellSendInput,
        group="shell",
        effects=_SHELL,
        output=(*_SHELL_STATE, "sent", "commandId", "status", "result", *_PLANS),
        policy="always_ask",
        destructive=True,
        interrupt="cancel",
    ),
)

# The tools by which an agent touches a machine.
SANDBOX_TOOLS: tuple[Tool, ...] = (*_FILES, *_SANDBOX, *_SHELL_TOOLS, *RESOURCE_TOOLS, *PERMISSION_TOOLS)
SANDBOX_TOOL_NAMES = frozenset(tool.name for tool in SANDBOX_TOOLS)
# All tools of an agent, and beside them those by which a model reaches the ones that are not declared to it.
RUNTIME_TOOLS: tuple[Tool, ...] = (
    *SANDBOX_TOOLS,
    *NAVIGATION_TOOLS,
    *OUTCOME_TOOLS,
    *MEMORY_TOOLS,
    *RECALL_TOOLS,
    *SKILL_TOOLS,
    *DELEGATION_TOOLS,
)
RUNTIME_TOOL_NAMES = frozenset(tool.name for tool in RUNTIME_TOOLS)
DEFINITIONS: Mapping[str, Tool] = {tool.name: tool for tool in (*RUNTIME_TOOLS, *META_TOOLS)}
# The tool that an action of the sandbox is.
TOOL_OF_ACTION = {
    "read_text": "read",
    "write_text": "write",
    "replace_text": "edit",
    "glob_entries": "glob",
    "grep_text": "grep",
    "run_command": "bash",
    "run_shell": "shell_run",
    "inspect_persistent_shell": "shell_describe",
    "open_persistent_shell": "shell_open",
    "exec_persistent_shell": "shell_exec",
    "wait_persistent_shell": "shell_wait",
    "close_persistent_shell": "shell_close",
}
# The tool whose permission an action needs: the tool that it is, or the one that has the same effect.
PERMISSION_OF_ACTION = {**TOOL_OF_ACTION, "append_text": "write", "mkdir": "write"}
