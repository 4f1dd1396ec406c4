"""Output schemas of the workflow tools, as `tools/list` publishes them.

Only small replies have one: a client that gets structured content shows the model that, so it has to be everything, and what is
long is not sent twice. What an agent has found is the exception: programs start agents, and it comes a part at a time.
`required` is what is always there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer"}
OBJECT: Schema = {"type": "object"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
TRUTH: Schema = {"type": ["boolean", "null"]}


def object_with(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


TEXTS = list_of(TEXT)
_WARNED = {"session_token": TEXT, "warnings": TEXTS}
_EFFECT = object_with(setVariable=OBJECT, transitionTo=TEXT, skipActivities=TEXTS)
TRANSITIONS = list_of(object_with("to", "holds", "default", to=TEXT, holds=TRUTH, default=FLAG, condition=TEXT))
HEALTH = object_with(
    "status",
    "server",
    "version",
    "workflows_available",
    "uptime_seconds",
    status=TEXT,
    server=TEXT,
    version=TEXT,
    workflows_available=COUNT,
    uptime_seconds=COUNT,
)
_WORKFLOW = object_with("id", "version", "title", id=TEXT, version=TEXT, title=TEXT, description=TEXT_OR_NULL)
STARTED = object_with(
    "workflow", "session_token", workflow=_WORKFLOW, inherited=FLAG, adopted=FLAG, recovered=FLAG, warning=TEXT, **_WARNED
)
_PARENT = object_with("session_id", "workflow_id", session_id=TEXT, workflow_id=TEXT, activity=TEXT, version=TEXT)
_LAST_CHECKPOINT = object_with(
    "activity_id",
    "checkpoint_id",
    "state",
    "option_id",
    "timestamp",
    activity_id=TEXT,
    checkpoint_id=TEXT,
    state={"enum": ["open", "answered", "dismissed"]},
    option_id=TEXT_OR_NULL,
    timestamp=COUNT,
)
_STATUS: Schema = {"enum": ["active", "blocked", "completed"]}
STATUS = object_with(
    "status",
    "current_activity",
    "completed_activities",
    "workflow",
    "variables",
    "open_checkpoint",
    "transitions",
    "session_token",
    status=_STATUS,
    current_activity=TEXT,
    completed_activities=TEXTS,
    # A workflow whose definition is missing or broken still has its id.
    workflow=object_with("id", id=TEXT, version=TEXT, title=TEXT),
    variables=OBJECT,
    open_checkpoint=TEXT_OR_NULL,
    pending_checkpoints=TEXTS,
    last_checkpoint=_LAST_CHECKPOINT,
    transitions=TRANSITIONS,
    parent=_PARENT,
    suspended_by=TEXT,
    unverified=FLAG,
    claims_to_continue=TEXT_OR_NULL,
    **_WARNED,
)
MOVED = object_with(
    "activity_id",
    "name",
    "status",
    "transitions",
    "session_token",
    activity_id=TEXT,
    name=TEXT,
    status=_STATUS,
    transitions=TRANSITIONS,
    **_WARNED,
)
YIELDED = object_with(
    "status",
    "checkpoint_id",
    "checkpoint_handle",
    "message",
    status={"const": "yielded"},
    checkpoint_id=TEXT,
    checkpoint_handle=TEXT,
    request_id=TEXT,
    already_resolved=FLAG,
    resolved_option=TEXT_OR_NULL,
    effect=_EFFECT,
    message=TEXT,
    warnings=TEXTS,
)
_ANSWER = {"option_id": TEXT_OR_NULL, "effect": _EFFECT, "dismissed": FLAG, "answered_by": TEXT, "channel": TEXT}
_ANSWERED = ("option_id", "effect", "answered_by", "channel")
RESUMED = object_with(
    "status",
    "message",
    "checkpoint_id",
    *_ANSWERED,
    "variables",
    "session_token",
    status={"const": "resumed"},
    message=TEXT,
    checkpoint_id=TEXT,
    variables=OBJECT,
    **_ANSWER,
    **_WARNED,
)
_RESOLVED = {"checkpoint_id": TEXT, "resolved": {"const": True}, "resolved_option": TEXT, "effect": _EFFECT, "dismissed": FLAG}
RESOLVED = object_with("checkpoint_id", "resolved", "checkpoint_handle", **_RESOLVED, checkpoint_handle=TEXT, warnings=TEXTS)
RESOLVED_ONE_OF_MANY = object_with(
    "checkpoint_id", "resolved", "session_token", "remaining_checkpoints", **_RESOLVED, remaining_checkpoints=TEXTS, **_WARNED
)
_OPTION = object_with("id", "label", id=TEXT, label=TEXT, description=TEXT, effect=_EFFECT)
CHECKPOINT = {
    **object_with(
        "id",
        "name",
        "message",
        "options",
        "condition_holds",
        "session_token",
        id=TEXT,
        name=TEXT,
        message=TEXT,
        options=list_of(_OPTION),
        condition_holds=TRUTH,
        answered_by=TEXT,
        pending=FLAG,
        answer=object_with(*_ANSWERED, **_ANSWER),
        **_WARNED,
    ),
    # Whatever else the definition says about it.
    "additionalProperties": True,
}
QUESTION = object_with(
    "id",
    "name",
    "message",
    "options",
    id=TEXT,
    name=TEXT,
    message=TEXT,
    options=list_of(object_with("id", "label", id=TEXT, label=TEXT, description=TEXT)),
    answered_by=TEXT,
    request_id=TEXT,
)
CHECKPOINT_NOW = object_with("active", "message", "state", active=FLAG, checkpoint=QUESTION, message=TEXT, state=TEXT)
VALIDATED = object_with("valid", valid=FLAG, reason=TEXT)
