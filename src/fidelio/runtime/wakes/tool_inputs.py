"""Inputs of tool calls on record. A value that no event may hold is hidden there, and sealed for the call itself.

A turn is on record before its calls are carried out, maybe by another process and after a person's answer. So the value has to
be stored, but neither the event nor a later request to the model shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.errors import KeyRingProblem, RecordMismatch
from fidelio.ledger.long_text import StoredText, json_text, load_text, store_text
from fidelio.providers.model import ToolUseBlock
from fidelio.runtime.secrets import open_sealed, seal
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.meta import unwrap
from fidelio.runtime.tools.model import HIDDEN, RuntimeContext
from fidelio.runtime.wakes.record import OpenCall

_PURPOSE = "tool_input"


class StoredInput(msgspec.Struct, frozen=True):
    """The input of a call for its event: the part of the body, and the blobs that it refers to."""

    body: dict[str, Any]
    digests: tuple[str, ...]
    blobs: tuple[bytes, ...]


def store_input(
    context: RuntimeContext, session: str, tool_use: str, use: ToolUseBlock, others: Collection[str]
) -> StoredInput:
    """Prepare an input for its event. `others` are the tools of this session that are not ours."""
    arguments = dict(use.input)
    shown = _hide(use, others)
    texts: dict[str, StoredText] = {"input": store_text(json_text(shown))}
    if _has_secrets(use) and shown != arguments:
        sealed = seal(context.open_keys(), _PURPOSE, _identify(session, tool_use), json_text(arguments))
        texts["sealed_input"] = store_text(sealed)
    return StoredInput(
        {name: text.body for name, text in texts.items()},
        tuple(digest for text in texts.values() for digest in text.digests),
        tuple(blob for text in texts.values() for blob in text.blobs),
    )


async def open_inputs(
    context: RuntimeContext, session: str, calls: Iterable[OpenCall], uses: Mapping[str, ToolUseBlock]
) -> dict[str, ToolUseBlock]:
    """The calls by id, with the values that their events hide."""
    hidden = [call for call in calls if call.id in uses and _has_secrets(uses[call.id])]
    return {**uses, **{call.id: await _open_input(context, session, call, uses[call.id]) for call in hidden}}


async def _open_input(context: RuntimeContext, session: str, call: OpenCall, use: ToolUseBlock) -> ToolUseBlock:
    events = await context.ledger.events(session, after=call.seq - 1, limit=1)
    stored = events[0].body.get("sealed_input") if events else None
    if stored is None:
        return use
    try:
        text = open_sealed(context.open_keys(), _PURPOSE, _identify(session, call.id), await load_text(context.ledger, stored))
    except (KeyRingProblem, RecordMismatch) as error:
        return replace(use, problem=f"a hidden value cannot be opened. {error.sentence}")
    return replace(use, input=msgspec.json.decode(text, type=dict[str, Any]))


def _has_secrets(use: ToolUseBlock) -> bool:
    definition = DEFINITIONS.get(unwrap(use.name, use.input)[0])
    return definition is not None and bool(definition.secrets)


def _hide(use: ToolUseBlock, others: Collection[str]) -> dict[str, Any]:
    name, _ = unwrap(use.name, use.input)
    if name in others or use.name in others:
        return dict(use.input)
    definition = DEFINITIONS.get(name)
    # Nobody knows what the arguments of an unknown tool are; one of a misspelt tool may be a secret.
    return definition.hide_secrets(dict(use.input)) if definition is not None else dict.fromkeys(use.input, HIDDEN)


def _identify(session: str, tool_use: str) -> str:
    # No session id contains a slash.
    return f"{session}/{tool_use}"
