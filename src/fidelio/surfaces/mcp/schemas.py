"""Output schemas of the workflow tools, as `tools/list` publishes them, and the helpers that build schemas.

Only small replies have a schema: clients show the model the structured content instead of the text, so it would have to hold
everything, and a long document would be sent twice. The result of an agent is the exception: programs read it, and it is sent
in parts. `required` lists the keys that are always present.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
OBJECT: Schema = {"type": "object"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
BOOLEAN_OR_NULL: Schema = {"type": ["boolean", "null"]}


def object_schema(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def array_schema(item: Schema) -> Schema:
    return {"type": "array", "items": item}


TEXTS = array_schema(TEXT)
_WARNED = {"session_token": TEXT, "warnings": TEXTS}
_EFFECT = object_schema(setVariable=OBJECT, transitionTo=TEXT, skipActivities=TEXTS)
TRANSITIONS = array_schema(
    object_schema("to", "holds", "default", to=TEXT, holds=BOOLEAN_OR_NULL, default=BOOLEAN, condition=TEXT)
)
HEALTH_CHECK = object_schema(
    "status",
    "server",
    "version",
    "workflows_available",
    "uptime_seconds",
    status=TEXT,
    server=TEXT,
    version=TEXT,
    workflows_available=INTEGER,
    uptime_seconds=INTEGER,
)
_WORKFLOW = object_schema("id", "version", "title", id=TEXT, version=TEXT, title=TEXT, description=TEXT_OR_NULL)
START_SESSION = object_schema(
    "workflow",
    "session_token",
    workflow=_WORKFLOW,
    inherited=BOOLEAN,
    adopted=BOOLEAN,
    recovered=BOOLEAN,
    warning=TEXT,
    **_WARNED,
)
_PARENT = object_schema("session_id", "workflow_id", session_id=TEXT, workflow_id=TEXT, activity=TEXT, version=TEXT)
_LAST_CHECKPOINT = object_schema(
    "activity_id",
    "checkpoint_id",
    "state",
    "option_id",
    "timestamp",
    activity_id=TEXT,
    checkpoint_id=TEXT,
    state={"enum": ["open", "answered", "dismissed"]},
    option_id=TEXT_OR_NULL,
    timestamp=INTEGER,
)
_STATUS: Schema = {"enum": ["active", "blocked", "completed", "cancelled"]}
GET_WORKFLOW_STATUS = object_schema(
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
    workflow=object_schema("id", id=TEXT, version=TEXT, title=TEXT),
    variables=OBJECT,
    open_checkpoint=TEXT_OR_NULL,
    pending_checkpoints=TEXTS,
    last_checkpoint=_LAST_CHECKPOINT,
    transitions=TRANSITIONS,
    parent=_PARENT,
    suspended_by=TEXT,
    unverified=BOOLEAN,
    claims_to_continue=TEXT_OR_NULL,
    **_WARNED,
)
NEXT_ACTIVITY = object_schema(
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
YIELD_CHECKPOINT = object_schema(
    "status",
    "checkpoint_id",
    "checkpoint_handle",
    "message",
    status={"const": "yielded"},
    checkpoint_id=TEXT,
    checkpoint_handle=TEXT,
    request_id=TEXT,
    already_resolved=BOOLEAN,
    resolved_option=TEXT_OR_NULL,
    effect=_EFFECT,
    message=TEXT,
    warnings=TEXTS,
)
_ANSWER = {"option_id": TEXT_OR_NULL, "effect": _EFFECT, "dismissed": BOOLEAN, "answered_by": TEXT, "channel": TEXT}
_ANSWERED = ("option_id", "effect", "answered_by", "channel")
RESUME_CHECKPOINT = object_schema(
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
_RESOLVED = {
    "checkpoint_id": TEXT,
    "resolved": {"const": True},
    "resolved_option": TEXT,
    "effect": _EFFECT,
    "dismissed": BOOLEAN,
}
RESPOND_CHECKPOINT = object_schema(
    "checkpoint_id", "resolved", "checkpoint_handle", **_RESOLVED, checkpoint_handle=TEXT, warnings=TEXTS
)
RESPOND_PENDING_CHECKPOINT = object_schema(
    "checkpoint_id", "resolved", "session_token", "remaining_checkpoints", **_RESOLVED, remaining_checkpoints=TEXTS, **_WARNED
)
_OPTION = object_schema("id", "label", id=TEXT, label=TEXT, description=TEXT, effect=_EFFECT)
GET_CHECKPOINT = {
    **object_schema(
        "id",
        "name",
        "message",
        "options",
        "condition_holds",
        "session_token",
        id=TEXT,
        name=TEXT,
        message=TEXT,
        options=array_schema(_OPTION),
        condition_holds=BOOLEAN_OR_NULL,
        answered_by=TEXT,
        pending=BOOLEAN,
        answer=object_schema(*_ANSWERED, **_ANSWER),
        **_WARNED,
    ),
    # Further keys of the definition.
    "additionalProperties": True,
}
QUESTION = object_schema(
    "id",
    "name",
    "message",
    "options",
    id=TEXT,
    name=TEXT,
    message=TEXT,
    options=array_schema(object_schema("id", "label", id=TEXT, label=TEXT, description=TEXT)),
    answered_by=TEXT,
    request_id=TEXT,
)
NAV_CHECKPOINT = object_schema("active", "message", "state", active=BOOLEAN, checkpoint=QUESTION, message=TEXT, state=TEXT)
VALIDATE_TRANSITION = object_schema("valid", valid=BOOLEAN, reason=TEXT)
