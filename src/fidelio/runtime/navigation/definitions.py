"""Definitions of the navigation tools. Descriptions are short because every model pays for them with each request."""

from __future__ import annotations

from fidelio.runtime.navigation import parameters as p
from fidelio.runtime.tools.model import ToolDefinition as Tool
from fidelio.runtime.tools.parameters import EmptyParameters, SessionParameters

_SESSION = ("session_read",)
_MEMORY = ("session_read", "memory_read")
_SETUP = ("session_read", "resource_read")

DEFINITIONS: tuple[Tool, ...] = (
    Tool(
        name="environment_describe",
        title="Describe the environment",
        description="Network, limits, programs and mounts of this session's environment, with fingerprints.",
        parameters=EmptyParameters,
        group="navigation",
        effects=("resource_read",),
        output=(
            *("id", "name", "version", "description", "kind"),
            *("fingerprint", "resourceContractFingerprint", "agentSetupFingerprint"),
            *("artifactPath", "agentSetupArtifactPath", "sandbox", "workspaceMountDefaults", "mountedResources"),
        ),
        read_only=True,
    ),
    Tool(
        name="agent_describe_setup",
        title="Describe a setup",
        description="Model, prompt, tools, skills, environment, mounts and permissions of a session at its last wake.",
        parameters=SessionParameters,
        group="navigation",
        effects=_SETUP,
        output=("sessionId", "available", "artifactPath", "artifactMarkdownPath", "agentSetup", "reason"),
        read_only=True,
    ),
    Tool(
        name="agent_compare_setup",
        title="Compare setups",
        description="Whether another session works with the setup of this one, and which sections and items differ.",
        parameters=SessionParameters,
        group="navigation",
        effects=_SETUP,
        output=(
            *("currentSessionId", "targetSessionId", "available", "sameSetup", "sameMemory", "currentFingerprint"),
            *("targetFingerprint", "changedSections", "differences", "artifactPath", "reason"),
        ),
        read_only=True,
    ),
    Tool(
        name="session_list",
        title="List sessions",
        description="Sessions of this agent, most useful first: same setup, same outcome, waiting, trend, relation, newest.",
        parameters=p.FindSessions,
        group="navigation",
        effects=_MEMORY,
        output=("agentId", "count", "considered", "sessions"),
        read_only=True,
    ),
    Tool(
        name="session_list_children",
        title="List child sessions",
        description="The sessions that a session has delegated to, with the same filters and order.",
        parameters=p.FindChildren,
        group="navigation",
        effects=_MEMORY,
        output=("parentSessionId", "count", "considered", "sessions"),
        read_only=True,
    ),
    Tool(
        name="session_get_snapshot",
        title="Describe a session",
        description="Status, what it waits for, outcome and verdict, shell, usage and files of a session.",
        parameters=SessionParameters,
        group="navigation",
        effects=("session_read", "memory_read", "sandbox_execute"),
        output=(
            *("sessionId", "agentId", "title", "environment"),
            *("parentSessionId", "relationToCurrent", "childCount", "setupMatchesCurrent"),
            *("setupFingerprint", "currentSetupFingerprint", "status", "stopReason", "requiresAction", "pendingActionKind"),
            *("pendingActionToolName", "pendingToolConfirmationRequests", "pendingCustomToolRequests", "turns", "createdAt"),
            *("updatedAt", "resourceCount", "pendingEventCount", "queuedWakes", "lastWakeId", "latestSummary", "activeOutcome"),
            *("outcomeGrade", "outcomeStatus", "outcomeMatchesCurrent", "outcomeTrend", "outcomeTrendSummary"),
            *("promotionReady", "outcomeEvaluation", "nextOutcomeStep", "evaluationHistoryCount", "latestIteration"),
            *("eventCursor", "usage", "shellState", "artifactPaths", "nextStep"),
        ),
        read_only=True,
    ),
    Tool(
        name="session_describe_context",
        title="Describe the context",
        description="How full the model's window is, what fills it, and which tools bring back what was left out.",
        parameters=SessionParameters,
        group="navigation",
        effects=("session_read", "memory_read", "sandbox_execute"),
        output=("sessionId", "available", "artifactPaths", "contextBudget", "pressure", "reason"),
        read_only=True,
    ),
    Tool(
        name="session_get_events",
        title="Read a log",
        description=(
            "Events of a session in log order: the newest, those after, before or around an event, or of a wake. "
            "Long ones are shortened; aroundEventId alone gives one whole."
        ),
        parameters=p.ReadEvents,
        group="navigation",
        effects=_SESSION,
        output=("sessionId", "count", "events", "hasMore", "nextStep"),
        read_only=True,
    ),
    Tool(
        name="session_get_trace",
        title="Read a wake",
        description="The events of one wake in log order.",
        parameters=p.ReadTrace,
        group="navigation",
        effects=_SESSION,
        output=("sessionId", "wakeId", "count", "events", "hasMore", "nextStep"),
        read_only=True,
    ),
    Tool(
        name="session_list_traces",
        title="List wakes",
        description="The wakes of a session, newest first, each with times, number of events and summary.",
        parameters=p.ListTraces,
        group="navigation",
        effects=_SESSION,
        output=("sessionId", "count", "traces"),
        read_only=True,
    ),
)
