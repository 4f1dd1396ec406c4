"""Output schemas of the workflow tools, as `tools/list` publishes them, and the helpers that build schemas.

Only small replies have a schema: clients show the model the structured content instead of the text, so it would have to hold
everything, and a long document would be sent twice. The result of an agent is the exception: programs read it, and it is sent
in parts. `required` lists the keys that are always present.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
OBJECT: Schema = {"type": "object"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
BOOLEAN_OR_NULL: Schema = {"type": ["boolean", "null"]}


class _Optional(NamedTuple):
    schema: Schema


Properties = dict[str, Schema | _Optional]


def object_schema(**properties: Schema | _Optional) -> Schema:
    """Build the schema of an object. All properties are required except those of `optional`."""
    required = [name for name, schema in properties.items() if not isinstance(schema, _Optional)]
    schemas = {name: schema.schema if isinstance(schema, _Optional) else schema for name, schema in properties.items()}
    return {"type": "object", "properties": schemas, "required": required}


def optional(**properties: Schema) -> Properties:
    return {name: _Optional(schema) for name, schema in properties.items()}


def array_schema(item: Schema) -> Schema:
    return {"type": "array", "items": item}


TEXTS = array_schema(TEXT)
_WARNINGS = optional(warnings=TEXTS)
_EFFECT = object_schema(**optional(setVariable=OBJECT, transitionTo=TEXT, skipActivities=TEXTS))
TRANSITIONS = array_schema(object_schema(to=TEXT, holds=BOOLEAN_OR_NULL, default=BOOLEAN, **optional(condition=TEXT)))
HEALTH_CHECK = object_schema(
    status=TEXT,
    server=TEXT,
    version=TEXT,
    workflows_available=INTEGER,
    uptime_seconds=INTEGER,
    **_WARNINGS,
)
_WORKFLOW = object_schema(id=TEXT, version=TEXT, title=TEXT, **optional(description=TEXT_OR_NULL))
START_SESSION = object_schema(
    workflow=_WORKFLOW,
    **optional(inherited=BOOLEAN, adopted=BOOLEAN, recovered=BOOLEAN, warning=TEXT),
    session_token=TEXT,
    **_WARNINGS,
)
_PARENT = object_schema(session_id=TEXT, workflow_id=TEXT, **optional(activity=TEXT, version=TEXT))
_LAST_CHECKPOINT = object_schema(
    activity_id=TEXT,
    checkpoint_id=TEXT,
    state={"enum": ["open", "answered", "dismissed"]},
    option_id=TEXT_OR_NULL,
    timestamp=INTEGER,
)
_STATUS: Schema = {"enum": ["active", "blocked", "completed", "cancelled"]}
GET_WORKFLOW_STATUS = object_schema(
    status=_STATUS,
    current_activity=TEXT,
    completed_activities=TEXTS,
    # A workflow whose definition is missing or broken still has its id.
    workflow=object_schema(id=TEXT, **optional(version=TEXT, title=TEXT)),
    variables=OBJECT,
    open_checkpoint=TEXT_OR_NULL,
    **optional(pending_checkpoints=TEXTS, last_checkpoint=_LAST_CHECKPOINT),
    transitions=TRANSITIONS,
    **optional(more_transitions=INTEGER),
    **optional(parent=_PARENT, suspended_by=TEXT, unverified=BOOLEAN, claims_to_continue=TEXT_OR_NULL),
    session_token=TEXT,
    **_WARNINGS,
)
NEXT_ACTIVITY = object_schema(
    activity_id=TEXT,
    name=TEXT,
    status=_STATUS,
    transitions=TRANSITIONS,
    **optional(more_transitions=INTEGER),
    session_token=TEXT,
    **_WARNINGS,
)
YIELD_CHECKPOINT = object_schema(
    status={"const": "yielded"},
    checkpoint_id=TEXT,
    checkpoint_handle=TEXT,
    **optional(request_id=TEXT, already_resolved=BOOLEAN, resolved_option=TEXT_OR_NULL, effect=_EFFECT),
    message=TEXT,
    **_WARNINGS,
)
_ANSWER: Properties = {
    "option_id": TEXT_OR_NULL,
    "effect": _EFFECT,
    **optional(dismissed=BOOLEAN),
    "answered_by": TEXT,
    "channel": TEXT,
}
RESUME_CHECKPOINT = object_schema(
    status={"const": "resumed"},
    message=TEXT,
    checkpoint_id=TEXT,
    variables=OBJECT,
    **_ANSWER,
    session_token=TEXT,
    **_WARNINGS,
)
_RESOLVED: Properties = {
    "checkpoint_id": TEXT,
    "resolved": {"const": True},
    **optional(resolved_option=TEXT, effect=_EFFECT, dismissed=BOOLEAN),
}
RESPOND_CHECKPOINT = object_schema(**_RESOLVED, checkpoint_handle=TEXT, **_WARNINGS)
RESPOND_PENDING_CHECKPOINT = object_schema(**_RESOLVED, remaining_checkpoints=TEXTS, session_token=TEXT, **_WARNINGS)
_OPTION = object_schema(id=TEXT, label=TEXT, **optional(description=TEXT, effect=_EFFECT))
GET_CHECKPOINT = {
    **object_schema(
        id=TEXT,
        name=TEXT,
        message=TEXT,
        options=array_schema(_OPTION),
        condition_holds=BOOLEAN_OR_NULL,
        **optional(answered_by=TEXT, pending=BOOLEAN, answer=object_schema(**_ANSWER)),
        session_token=TEXT,
        **_WARNINGS,
    ),
    # Further keys of the definition.
    "additionalProperties": True,
}
QUESTION = object_schema(
    id=TEXT,
    name=TEXT,
    message=TEXT,
    options=array_schema(object_schema(id=TEXT, label=TEXT, **optional(description=TEXT))),
    **optional(answered_by=TEXT, request_id=TEXT),
)
NAV_CHECKPOINT = object_schema(active=BOOLEAN, **optional(checkpoint=QUESTION), message=TEXT, state=TEXT)
VALIDATE_TRANSITION = object_schema(valid=BOOLEAN, **optional(reason=TEXT))
