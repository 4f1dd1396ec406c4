"""The form of `elicitation/create` and its response.

All revisions show a form with a single field, the answer; they differ in how an option gets a readable label. The texts of a
question contain what agents have set, so they are sanitized here, where the structure of the form is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fidelio.surfaces.mcp.endpoint import Client
from fidelio.surfaces.text import escape_text, shorten
from fidelio.toolkit import AnswerOption, AskPerson

ANSWER_FIELD = "answer"
# Columns of the texts in a form.
MAX_QUESTION, MAX_LABEL, MAX_DESCRIPTION = 4_000, 200, 500


class NoAnswer(Exception):
    """Elicitation ended without a choice. The text says why, as a whole sentence."""


def build_elicitation(question: AskPerson, client: Client) -> dict[str, Any]:
    """Build the parameters of `elicitation/create`."""
    schema = {
        "type": "object",
        "properties": {ANSWER_FIELD: _build_field(question.options, client)},
        "required": [ANSWER_FIELD],
    }
    params = {"message": _build_message(question), "requestedSchema": schema}
    return {"mode": "form", **params} if client.supports_titles else params


def _build_field(options: Sequence[AnswerOption], client: Client) -> dict[str, Any]:
    field = {"type": "string", "title": "Answer"}
    if client.supports_titles:
        return {**field, "oneOf": [{"const": escape_text(option.id), "title": _label(option)} for option in options]}
    return {
        **field,
        "enum": [escape_text(option.id) for option in options],
        "enumNames": [_label(option) for option in options],
    }


def _label(option: AnswerOption) -> str:
    return shorten(option.label, MAX_LABEL) or escape_text(option.id)


def _build_message(question: AskPerson) -> str:
    # Question, labels and descriptions contain what an agent has set. Each is one line, so that none looks like another part.
    # A form shows only labels, so the descriptions of the options go into the message above it.
    message = shorten(question.message, MAX_QUESTION)
    explanations = [
        f"- {_label(option)}: {shorten(option.description, MAX_DESCRIPTION)}"
        for option in question.options
        if option.description
    ]
    return "\n".join([message, "", *explanations]) if explanations else message


def read_choice(response: object, question: AskPerson) -> str:
    """Return the id of the chosen option; raise `NoAnswer` if the response has none."""
    action = response.get("action") if isinstance(response, Mapping) else None
    if action == "decline":
        raise NoAnswer("The person declined to answer.")
    if action == "cancel":
        raise NoAnswer("The person closed the question without an answer.")
    content = response.get("content") if isinstance(response, Mapping) else None
    choice = content.get(ANSWER_FIELD) if isinstance(content, Mapping) else None
    chosen = [option.id for option in question.options if escape_text(option.id) == choice]
    if action != "accept" or len(chosen) != 1:
        option_ids = ", ".join(escape_text(option.id) for option in question.options)
        raise NoAnswer(f"The client's response holds no valid answer; the options are: {option_ids}.")
    return chosen[0]
