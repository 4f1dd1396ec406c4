"""What a worker hands in at the end of its activity: one JSON object in its last message, with the steps it has done.

    {"steps": [{"step_id": "write", "output": "Wrote the greeting."}], "variables": {"tone": "warm"}}

Agents put words, fences and other objects around it, so the last object of the message that has `steps` counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fidelio.engine.manifests import StepReport
from fidelio.errors import BadRecord
from fidelio.ledger.encoding import encode

LONGEST_MESSAGE = 1_000_000
# A message full of braces must not take the whole day: so many of them may turn out to begin nothing.
MOST_FAILURES = 2_000
NOTHING = "Your last message has no JSON object with the steps you did."
_BEGINS = re.compile(r'\{(?=\s*["}])')
_decode = json.JSONDecoder().raw_decode


class Manifest(msgspec.Struct, frozen=True):
    """What was done, and what was found out."""

    steps: tuple[StepReport, ...] = ()
    variables: Mapping[str, Any] = msgspec.field(default_factory=dict)


class _Entry(msgspec.Struct):
    step_id: str
    output: Any = ""


class _Written(msgspec.Struct):
    steps: list[_Entry]
    variables: dict[str, Any] = msgspec.field(default_factory=dict)


def read_manifest(message: str, data: Any = None) -> Manifest | str:
    """The manifest of a worker's last message, or of its structured result; else what is wrong, in words for the worker."""
    found = list(_objects(message[-LONGEST_MESSAGE:])) if data is None else [data]
    reports = [one for one in found if isinstance(one, dict) and "steps" in one]
    if not reports:
        return NOTHING
    try:
        # What the ledger does not take has to be told to whoever can write it anew, before anything is made of it.
        encode(reports[-1], "report")
        return _manifest(msgspec.convert(reports[-1], _Written))
    except (BadRecord, msgspec.ValidationError) as error:
        return f"The JSON object with your steps cannot be read: {error}"


def _manifest(written: _Written) -> Manifest:
    return Manifest(tuple(StepReport(one.step_id, _text(one.output)) for one in written.steps), written.variables)


def _text(output: Any) -> str:
    return output if isinstance(output, str) else "" if output is None else json.dumps(output)


def _objects(text: str) -> Iterator[Any]:
    """Every outermost object in the text, in order."""
    end = failures = 0
    while (begins := _BEGINS.search(text, end)) is not None and failures < MOST_FAILURES:
        try:
            found, end = _decode(text, begins.start())
            yield found
        except (ValueError, RecursionError):
            end, failures = begins.end(), failures + 1
