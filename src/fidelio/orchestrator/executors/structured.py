"""A result with a structure from an agent that only knows how to talk: it is told the schema, and what it says is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def with_schema(prompt: str, schema: Mapping[str, Any] | None) -> str:
    if schema is None:
        return prompt
    wish = "When you are done, answer with one JSON value that fits this schema, and nothing else:"
    return f"{prompt}\n\n{wish}\n\n{json.dumps(schema)}"


def data_in(text: str) -> Any:
    """The JSON value that the text is, or the last that it shows as code. None where there is none."""
    for candidate in (text, *reversed(_FENCED.findall(text))):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    return None
