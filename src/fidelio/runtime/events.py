"""Types of the events of runtime sessions, which are stored and therefore never renamed.

The names of tool calls are those that two vendors of hosted agents share.
"""

from __future__ import annotations

STARTED = "runtime.started"
ENDED = "session.status_terminated"
CONFIGURED = "runtime.configured"

TOOL_USE = "agent.tool_use"
TOOL_RESULT = "agent.tool_result"

APPROVAL_REQUESTED = "approval.requested"
APPROVAL_USED = "approval.used"
APPROVAL_ENDED = "approval.ended"
REQUEST_ANSWERED = "request.answered"
PERMISSION_ALLOWED = "permission.allowed"

SANDBOX_STARTED = "sandbox.started"
SANDBOX_CLOSED = "sandbox.closed"
NETWORK_USED = "sandbox.network_used"

SHELL_OPEN = "shell.opened"
SHELL_CLOSED = "shell.closed"
SHELL_CWD = "shell.cwd_changed"
SHELL_ENV = "shell.env_changed"
COMMAND_STARTED = "shell.command_started"
COMMAND_ENDED = "shell.command_ended"

STAGED = "resource.staged"
PROMOTED = "resource.promoted"
VERSION_STORED = "resource.version_stored"
# Somebody edited the directory that shows shared files; it was written again.
DIRECTORY_REBUILT = "resource.directory_rebuilt"
PROJECT_APPLIED = "project.applied"

ENVIRONMENT_DEFINED = "environment.defined"
ENVIRONMENT_PREPARING = "environment.preparing"
ENVIRONMENT_FAILED = "environment.preparation_failed"
ENVIRONMENT_PREPARED = "environment.prepared"
VAULT_CHANGED = "vault.changed"
# Refers to the sealed value. It is redacted when the value is replaced; the change stays on record.
VAULT_VALUE_STORED = "vault.value_stored"
