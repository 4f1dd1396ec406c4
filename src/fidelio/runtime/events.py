"""Types of the events of runtime sessions, which are stored and therefore never renamed.

Names that two vendors of hosted agents share are used where they have one. Every event inside of a wake names it (`wake_id`).
"""

from __future__ import annotations

STARTED = "runtime.started"
ENDED = "session.status_terminated"
CONFIGURED = "runtime.configured"

# A file or a memory store was given to a session, or taken away.
RESOURCE_SET = "session.resource_set"
RESOURCE_REMOVED = "session.resource_removed"

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
CREDENTIAL_SET = "vault.credential_set"
CREDENTIAL_REMOVED = "vault.credential_removed"

# What a caller sends to a session. Messages, interrupts and outcomes start a wake.
USER_MESSAGE = "user.message"
USER_INTERRUPT = "user.interrupt"
USER_CONFIRMATION = "user.tool_confirmation"
USER_TOOL_RESULT = "user.custom_tool_result"
USER_OUTCOME = "user.define_outcome"
# What the program that uses the agent adds to the instructions, for the turn that begins with it and those after it.
SYSTEM_MESSAGE = "system.message"
# The result of a call that a worker of the user has carried out.
WORKER_RESULT = "user.tool_result"

AGENT_MESSAGE = "agent.message"
AGENT_THINKING = "agent.thinking"
CUSTOM_TOOL_USE = "agent.custom_tool_use"
# The caller has to carry out a custom tool: the request that shows it in the inbox.
CUSTOM_TOOL_REQUESTED = "agent.custom_tool_requested"
CONTEXT_COMPACTED = "agent.thread_context_compacted"

STATUS_RUNNING = "session.status_running"
STATUS_IDLE = "session.status_idle"
STATUS_RESCHEDULED = "session.status_rescheduled"
SESSION_ERROR = "session.error"
# Something that a person should know and that stops nothing.
SESSION_NOTICE = "session.notice"
SESSION_ARCHIVED = "session.archived"
CHILD_CREATED = "session.child_created"
CHILD_IDLE = "session.child_idle"
# A closed child has left a part of its share of the budget.
CHILD_BUDGET_RETURNED = "session.child_budget_returned"

# A wake, or a tool call inside of one. That a call has begun is on record before its effect.
SPAN_STARTED = "span.started"
SPAN_COMPLETED = "span.completed"
MODEL_REQUEST_STARTED = "span.model_request_start"
MODEL_REQUEST_ENDED = "span.model_request_end"
EVALUATION_STARTED = "span.outcome_evaluation_start"
EVALUATION_ENDED = "span.outcome_evaluation_end"

WAKE_QUEUED = "wake.queued"
WAKES_CANCELLED = "wake.cancelled"
SCHEDULE_SET = "wake.schedule_set"
SNAPSHOT_TAKEN = "workspace.snapshot_taken"
SNAPSHOT_SKIPPED = "workspace.snapshot_skipped"
SNAPSHOT_RESTORED = "workspace.snapshot_restored"
# The end of what was copied from another session: the session goes on from here as one of its own.
SESSION_FORKED = "session.forked"
# Which tools the MCP servers of the user have. The list is fixed for the session.
SERVER_TOOLS_LISTED = "mcp.tools_listed"

OUTCOME_DEFINED = "outcome.defined"
OUTCOME_DECIDED = "outcome.decided"
# A person lets the next write of shared content pass, whatever the verdicts are.
GATE_OVERRIDDEN = "outcome.gate_overridden"

# A new version of the content of an object that a program created, such as a memory store.
OBJECT_DEFINED = "object.defined"
# A version of a memory in a memory store. Refers to the content; it is redacted alone.
MEMORY_VERSION_STORED = "memory.version_stored"
# What a session wrote into a mounted memory store became versions of it, or could not.
MEMORY_STORE_SYNCED = "memory.store_synced"
# Refers to the blobs that an object consists of, such as the chunks of a file.
CONTENT_STORED = "object.content_stored"
AGENT_DEFINED = "agent.defined"
# A definition that sessions have in place of a version of their agent.
AGENT_VARIED = "agent.varied"
LEARNING_CAPTURED = "learning.captured"
MEMORY_CHANGED = "memory.written"

# In the body of `agent.tool_use`: the tools of this toolset have names of our own ones, and other inputs.
AGENT_TOOLSET = "agent_toolset_20260401"
# A call was allowed, and waits for the worker that carries it out.
CALL_HANDED_OVER = "fidelio.call_handed_over"
# Work of a self-hosted environment has another state.
WORK_CHANGED = "work.changed"
