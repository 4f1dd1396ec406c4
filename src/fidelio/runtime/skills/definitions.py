"""Definitions of the skill tools and their parameters."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fidelio.runtime.tools.model import ToolDefinition as Tool
from fidelio.runtime.tools.parameters import EmptyParameters, Name, ToolParameters


class SearchSkills(ToolParameters, frozen=True, kw_only=True):
    """What to look for."""

    query: Annotated[str, Meta(min_length=1, max_length=1_000)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 8


class ReadSkill(ToolParameters, frozen=True, kw_only=True, rename="camel"):
    """The exact name of the skill."""

    name: Name
    # Longer texts are rare; the default is about 6,000 tokens.
    max_chars: Annotated[int, Meta(ge=1, le=100_000)] = 24_000


# Light to import: lists of tools are shown without anything being carried out.
DEFINITIONS: tuple[Tool, ...] = (
    Tool(
        name="skills_list",
        title="List the skills",
        description="The skills that you can read: name, description and how each begins.",
        parameters=EmptyParameters,
        group="skills",
        effects=("skill_read",),
        output=("count", "skills", "truncated", "problems"),
        read_only=True,
    ),
    Tool(
        name="skills_search",
        title="Search for a skill",
        description="The skills that fit some words best, by name, description and beginning.",
        parameters=SearchSkills,
        group="skills",
        effects=("skill_read",),
        output=("count", "hits"),
        read_only=True,
    ),
    Tool(
        name="skills_read",
        title="Read a skill",
        description="The whole text of a skill, by its exact name, up to maxChars.",
        parameters=ReadSkill,
        group="skills",
        effects=("skill_read",),
        output=("name", "description", "preview", "source", "content", "truncated"),
        read_only=True,
    ),
)
