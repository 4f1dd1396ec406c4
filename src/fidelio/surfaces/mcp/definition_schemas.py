"""JSON Schemas of workflow files and of a session's state, generated from the models that parse them."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import TypeAdapter

from fidelio.definitions import models
from fidelio.definitions.models.components import Skill
from fidelio.engine.state import Record

_MODELS: dict[str, Any] = {
    "workflow": models.Workflow,
    "activity": models.Activity,
    "condition": models.Condition,
    "skill": Skill,
}


def load_schema(name: str) -> dict[str, Any]:
    return msgspec.json.schema(Record) if name == "state" else TypeAdapter(_MODELS[name]).json_schema(by_alias=True)
