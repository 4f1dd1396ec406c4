"""Workflows for tests, written as plain data with as little as possible."""

from __future__ import annotations

from typing import Any

from fidelio.definitions.models import Workflow
from tests.definitions.lint.example_libraries import filled

IS_READY = {"type": "simple", "variable": "is_ready", "operator": "==", "value": True}
BOOLEAN = {"name": "is_ready", "type": "boolean"}


def workflow(*activities: dict[str, Any], **head: Any) -> Workflow:
    """A workflow that begins with its first activity, unless `initialActivity` says otherwise."""
    data = {"initialActivity": activities[0]["id"] if activities else None, **head, "activities": list(activities)}
    return Workflow.model_validate(filled(data, {"id": "demo", "version": "1.0.0", "title": "Demo"}))


def way(to: str, **more: Any) -> dict[str, Any]:
    return {"to": to, **more}


def otherwise(to: str) -> dict[str, Any]:
    return {"to": to, "isDefault": True}


def answer(name: str, to: str) -> dict[str, Any]:
    return {"id": name, "label": name.title(), "effect": {"transitionTo": to}}
