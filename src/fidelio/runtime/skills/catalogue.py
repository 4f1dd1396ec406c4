"""The catalogue of skills that an agent can use: those of all roots, the nearest of each name.

A skill of a farther root does not replace a nearer one of the same name, and a file that cannot be used hides no other: both
are reported. Only name, description and preview are in prompts and lists; the text is read when an agent asks for it.
"""

from __future__ import annotations

import asyncio
from difflib import get_close_matches
from functools import lru_cache

import msgspec

from fidelio.definitions.library.memo import Memo
from fidelio.errors import ToolRefused
from fidelio.runtime.agents.definition import AgentSkills
from fidelio.runtime.ports import SkillRoot
from fidelio.runtime.skills.scanning import UPLOADED, FoundSkill, SkillProblem, UnusableSkill, read_file, scan_root
from fidelio.runtime.skills.scanning import AgentSkill as Skill
from fidelio.runtime.skills.uploaded import show_skills
from fidelio.runtime.tools.model import RuntimeContext

__all__ = ["Skill", "SkillCatalogue", "SkillContent", "SkillProblem", "list_skills", "load_catalogue", "read_skill"]

MAX_SKILLS = 500
_MEMOS = 64


class SkillContent(msgspec.Struct, frozen=True):
    """A skill with its text; `truncated` if only the beginning of it."""

    skill: Skill
    text: str
    truncated: bool


class SkillCatalogue(msgspec.Struct, frozen=True):
    """The skills by name, and what is not used. `paths` are files of the host, for reading only."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()
    paths: dict[str, str] = {}


async def load_catalogue(context: RuntimeContext, project: str, skills: AgentSkills) -> SkillCatalogue:
    """The skills of a project that an agent can use, by name."""
    if not skills.enabled:
        return SkillCatalogue()
    # In a thread: the first time many files are read, and finding the roots reads what is trusted.
    placed, missing = await show_skills(context, project, skills.references) if skills.references else ((), ())
    own = tuple(SkillRoot(skill.directory, UPLOADED) for skill in placed)
    found = await asyncio.to_thread(lambda: _load((*own, *context.ports.skill_roots(project))))
    if missing:
        problems = tuple(SkillProblem("", UPLOADED, "This version of the skill was deleted.") for _ in missing)
        found = msgspec.structs.replace(found, problems=(*problems, *found.problems))
    if skills.include is None:
        return found
    chosen = tuple(skill for skill in found.skills if skill.source == UPLOADED or skill.name in skills.include)
    return msgspec.structs.replace(found, skills=chosen)


async def list_skills(context: RuntimeContext, project: str, skills: AgentSkills) -> tuple[Skill, ...]:
    """The skills that an agent can use, by name."""
    return (await load_catalogue(context, project, skills)).skills


async def read_skill(
    context: RuntimeContext, project: str, skills: AgentSkills, name: str, *, max_characters: int
) -> SkillContent:
    """The text of a skill, by its exact name. Raises `ToolRefused` if there is none, or if its file cannot be read any more."""
    found = await load_catalogue(context, project, skills)
    skill = next((skill for skill in found.skills if skill.name == name), None)
    if skill is None:
        near = get_close_matches(name, [skill.name for skill in found.skills], n=3)
        remedy = f"Did you mean {' or '.join(near)}?" if near else "List them with skills_list."
        raise ToolRefused(f"There is no skill {name!r:.100}.", remedy=remedy, reason="not_found")
    try:
        raw = await asyncio.to_thread(read_file, found.paths[name])
    except UnusableSkill as problem:
        raise ToolRefused(f"The skill {name} cannot be read: {problem}", reason="unreadable", retryable=True) from problem
    text = raw.decode("utf-8-sig", errors="replace")
    return SkillContent(skill, text[:max_characters], len(text) > max_characters)


@lru_cache(maxsize=_MEMOS)
def _open_memo(_: tuple[SkillRoot, ...]) -> Memo:
    """The cache of the skills of some roots: valid until a file or directory in them changes.

    Reading 100 skills takes 55 ms; checking the 201 paths that the result depends on takes 0.8 ms. Every wake needs it.
    """
    return Memo()


def _load(roots: tuple[SkillRoot, ...]) -> SkillCatalogue:
    memo = _open_memo(roots)
    return memo.get_or_make("skills", lambda _: _build(roots, memo))


def _build(roots: tuple[SkillRoot, ...], memo: Memo) -> SkillCatalogue:
    found: dict[str, FoundSkill] = {}
    problems: list[SkillProblem] = []
    for root in roots:
        for item in scan_root(root, memo):
            if isinstance(item, SkillProblem):
                problems.append(item)
            elif problem := _find_conflict(found, item.skill):
                problems.append(SkillProblem(item.skill.name, item.skill.source, problem))
            else:
                found[item.skill.name] = item
    skills = tuple(found[name].skill for name in sorted(found))
    return SkillCatalogue(skills, tuple(problems), {name: item.path for name, item in found.items()})


def _find_conflict(found: dict[str, FoundSkill], skill: Skill) -> str:
    if (nearer := found.get(skill.name)) is not None:
        return f"Not used: the skill of the same name in {nearer.skill.source!r} is nearer."
    return f"Not used: there are {MAX_SKILLS} skills already." if len(found) >= MAX_SKILLS else ""
