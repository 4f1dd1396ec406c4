"""Parameters of the skill tools. A wrong type, an unknown name or value is refused by name."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fidelio.runtime.tools.parameters import Name, ToolParameters


class SearchSkills(ToolParameters, frozen=True, kw_only=True):
    """What to look for."""

    query: Annotated[str, Meta(min_length=1, max_length=1_000)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 8


class ReadSkill(ToolParameters, frozen=True, kw_only=True):
    """The exact name of the skill."""

    name: Name
    maxChars: Annotated[int, Meta(ge=1, le=100_000)] = 24_000
