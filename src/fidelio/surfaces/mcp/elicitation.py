"""The question to a person as the protocol carries it, and what came back.

All revisions show a form with one field, the answer; they differ in how a choice gets a readable label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fidelio.surfaces.mcp.revisions import Client
from fidelio.surfaces.mcp.tools import AskPerson, Option

FIELD = "answer"
METHOD = "elicitation/create"


class Refused(Exception):
    """The person, or the client, did not choose. The text says what happened, as a whole sentence."""


def form(question: AskPerson, client: Client) -> dict[str, Any]:
    """The parameters of `elicitation/create`."""
    schema = {"type": "object", "properties": {FIELD: _choice(question.options, client)}, "required": [FIELD]}
    params = {"message": _message(question), "requestedSchema": schema}
    return {"mode": "form", **params} if client.knows_titles else params


def _choice(options: Sequence[Option], client: Client) -> dict[str, Any]:
    field = {"type": "string", "title": "Answer"}
    if client.knows_titles:
        return {**field, "oneOf": [{"const": option.id, "title": option.label} for option in options]}
    return {**field, "enum": [option.id for option in options], "enumNames": [option.label for option in options]}


def _message(question: AskPerson) -> str:
    # A form has room for labels only, so what an option means goes into the text above it.
    explained = [f"- {option.label}: {option.description}" for option in question.options if option.description]
    return "\n".join([question.message, "", *explained]) if explained else question.message


def read_choice(response: object, question: AskPerson) -> str:
    """The chosen option; `Refused` when there is none."""
    action = response.get("action") if isinstance(response, Mapping) else None
    if action == "decline":
        raise Refused("The person declined to answer.")
    if action == "cancel":
        raise Refused("The person closed the question without an answer.")
    content = response.get("content") if isinstance(response, Mapping) else None
    chosen = content.get(FIELD) if isinstance(content, Mapping) else None
    if action != "accept" or chosen not in [option.id for option in question.options]:
        known = ", ".join(option.id for option in question.options)
        raise Refused(f"The client brought back no answer that can be taken; the options are: {known}.")
    return str(chosen)
