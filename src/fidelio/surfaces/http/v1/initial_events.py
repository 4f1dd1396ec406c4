"""Initial events of deployments: checked when they are stored, as if they were sent then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fidelio.runtime.wakes.content import check_content
from fidelio.surfaces.http.v1.endpoint import ApiRequest
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.events.sending import (
    DefineOutcome,
    SystemMessage,
    UserMessage,
    describe_event,
    resolve_content,
)


async def check_initial_events(request: ApiRequest, raw: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The events in the form in which they are stored and shown. Raises 400 and 404 for what could not be sent."""
    events = [_read(raw, number) for number in range(len(raw))]
    for number, resolved in enumerate(await resolve_content(request, events)):
        if "content" in resolved:
            where = f"initial_events.{number}"
            blocks = check_content(resolved["content"], where)
            if resolved["type"] == "system.message" and any(block["type"] != "text" for block in blocks):
                raise ApiProblem(f"{where}: a system.message has only text.")
    return tuple(events)


def _read(raw: Sequence[dict[str, Any]], number: int) -> dict[str, Any]:
    where = f"initial_events.{number}"
    try:
        event = msgspec.convert(raw[number], UserMessage | SystemMessage | DefineOutcome)
    except msgspec.ValidationError as error:
        raise ApiProblem(f"{where}: {error}") from error
    if isinstance(event, SystemMessage):
        is_last, before = number == len(raw) - 1, raw[number - 1].get("type") if number else None
        if not (is_last and before == "user.message"):
            raise ApiProblem(f"{where}: system.message has to be the last event, behind the user.message that it goes with.")
    shown = describe_event(event)
    if isinstance(shown.get("content"), str):
        shown["content"] = [{"type": "text", "text": shown["content"]}]
    return shown
