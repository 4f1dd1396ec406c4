"""Definitions of the skill tools."""

from __future__ import annotations

from fidelio.runtime.skills import parameters as p
from fidelio.runtime.tools.model import ToolDefinition as Tool
from fidelio.runtime.tools.parameters import EmptyParameters

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
        parameters=p.SearchSkills,
        group="skills",
        effects=("skill_read",),
        output=("count", "hits"),
        read_only=True,
    ),
    Tool(
        name="skills_read",
        title="Read a skill",
        description="The whole text of a skill, by its exact name, up to maxChars.",
        parameters=p.ReadSkill,
        group="skills",
        effects=("skill_read",),
        output=("name", "description", "preview", "source", "content", "truncated"),
        read_only=True,
    ),
)
