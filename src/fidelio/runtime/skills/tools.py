"""The skill tools, and the ranking of skills. No result has a path of the host: a skill has a name and a source."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from fidelio.ledger.search import tokenize
from fidelio.runtime.agents.definition import AgentSkills
from fidelio.runtime.agents.versions import load_session_agent
from fidelio.runtime.shell.plans import suggest
from fidelio.runtime.skills.catalogue import Skill, list_skills, load_catalogue, read_skill
from fidelio.runtime.skills.definitions import ReadSkill, SearchSkills
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult

# What one answer shows.
MAX_LISTED = 100
MAX_PROBLEMS = 20
# The usual constants of BM25, and how much a word counts in each field.
_K1, _B = 1.2, 0.75
_WEIGHTS = {"name": 3, "description": 2, "preview": 1}


class RankedSkill(msgspec.Struct, frozen=True):
    """A skill that contains words of a query, with the fields in which they occur."""

    skill: Skill
    rank: float
    reasons: tuple[str, ...]


def rank_skills(skills: Sequence[Skill], query: str, limit: int) -> list[RankedSkill]:
    """The skills that contain words of the query, best first (BM25 over weighted fields), then by name."""
    words = list(dict.fromkeys(tokenize(query)))
    fields = [{field: Counter(tokenize(getattr(skill, field))) for field in _WEIGHTS} for skill in skills]
    lengths = [sum(found.total() * _WEIGHTS[field] for field, found in each.items()) for each in fields]
    average = (sum(lengths) / len(lengths) if lengths else 0.0) or 1.0
    having = Counter(word for each in fields for word in {word for found in each.values() for word in found})
    rarity = {word: math.log(1 + (len(skills) - having[word] + 0.5) / (having[word] + 0.5)) for word in words}
    ranked = []
    for skill, counts, length in zip(skills, fields, lengths, strict=True):
        rank = sum(rarity[word] * _weigh(word, counts, length / average) for word in words)
        if rank > 0:
            ranked.append(RankedSkill(skill, round(rank, 4), tuple(_explain(words, counts))))
    return sorted(ranked, key=lambda hit: (-hit.rank, hit.skill.name))[:limit]


def _weigh(word: str, counts: dict[str, Counter[str]], length: float) -> float:
    """How much a skill is about a word: more often counts more, but less and less; so does a longer text."""
    frequency = sum(found[word] * _WEIGHTS[field] for field, found in counts.items())
    return frequency * (_K1 + 1) / (frequency + _K1 * (1 - _B + _B * length))


def _explain(words: Sequence[str], counts: dict[str, Counter[str]]) -> Iterator[str]:
    for field, found in counts.items():
        if matched := [word for word in words if word in found]:
            yield f"{field}: {', '.join(matched[:8])}"


async def _list(call: ToolCall, _: Any, __: Preparation) -> ToolResult:
    found = await load_catalogue(call.context, call.record.project, await _find_chosen(call))
    problems = [{"name": each.name, "source": each.source, "problem": each.problem} for each in found.problems]
    return ToolResult(
        output={
            "count": len(found.skills),
            "skills": [_describe(call, skill) for skill in found.skills[:MAX_LISTED]],
            "truncated": len(found.skills) > MAX_LISTED,
            "problems": problems[:MAX_PROBLEMS],
        }
    )


async def _search(call: ToolCall, arguments: SearchSkills, _: Preparation) -> ToolResult:
    skills = await list_skills(call.context, call.record.project, await _find_chosen(call))
    hits = rank_skills(skills, arguments.query, arguments.limit)
    described = [{**_describe(call, hit.skill), "score": hit.rank, "reasons": list(hit.reasons)} for hit in hits]
    return ToolResult(output={"count": len(described), "hits": described})


async def _read(call: ToolCall, arguments: ReadSkill, _: Preparation) -> ToolResult:
    chosen = await _find_chosen(call)
    found = await read_skill(call.context, call.record.project, chosen, arguments.name, max_characters=arguments.max_chars)
    return ToolResult(output={**_describe_facts(found.skill), "content": found.text, "truncated": found.truncated})


async def _find_chosen(call: ToolCall) -> AgentSkills:
    """Which skills the agent of the session sees. A session without a model sees all."""
    record = call.record
    if not record.agent_version:
        return AgentSkills()
    return (await load_session_agent(call.context, record)).definition.skills


def _describe(call: ToolCall, skill: Skill) -> dict[str, Any]:
    step = suggest(call.tools, "skills_read", {"name": skill.name}, "Read the skill before you follow it.")
    return {**_describe_facts(skill), "nextStep": step}


def _describe_facts(skill: Skill) -> dict[str, Any]:
    return {"name": skill.name, "description": skill.description, "preview": skill.preview, "source": skill.source}


IMPLEMENTATIONS: dict[str, Implementation] = {
    "skills_list": Implementation(_list),
    "skills_search": Implementation(_search),
    "skills_read": Implementation(_read),
}
