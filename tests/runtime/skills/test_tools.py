"""The skill tools: list, search and read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import ToolRefused
from fidelio.ids import new_session_id
from fidelio.ledger import open_ledger
from fidelio.ledger.model import NewEvent, NewSession
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import AgentDefinition, AgentSkills
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.calls import NO_SANDBOX
from fidelio.runtime.ports import SkillRoot
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.skills import catalogue
from fidelio.runtime.skills.catalogue import Skill
from fidelio.runtime.skills.definitions import DEFINITIONS
from fidelio.runtime.skills.tools import IMPLEMENTATIONS, MAX_LISTED, rank_skills
from fidelio.runtime.tools.model import Preparation, RuntimeContext, ToolCall
from tests.runtime.skills.support import make_context, write_skill
from tests.support import proves

TOOLS = {tool.name: tool for tool in DEFINITIONS}


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[RuntimeContext]:
    async with await open_ledger(tmp_path / "ledger.db") as ledger:
        ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        (tmp_path / "skills").mkdir()
        yield make_context(SkillRoot(tmp_path / "skills", "user"), ledger=ledger)


async def call(context: RuntimeContext, tool: str, *, version: int = 0, tools: Any = TOOLS, **arguments: Any) -> dict[str, Any]:
    session = new_session_id()
    body = {"agent": "default", "project": "/project", "agent_version": version}
    create = NewSession(kind="runtime", namespace="runtime:test")
    decision = SessionDecision(None, events=(NewEvent(type=e.STARTED, body=body),), create=create)
    await context.unit.create(session, RuntimeRecord(), decision)
    made = ToolCall(context, await context.unit.load(session), "toolu_1", TOOLS[tool], NO_SANDBOX, frozenset(tools))
    result = await IMPLEMENTATIONS[tool].run(made, msgspec.convert(arguments, TOOLS[tool].parameters), Preparation())
    assert set(result.output) == set(TOOLS[tool].output)
    return dict(result.output)


@proves("runtime.skills")
async def test_the_list_names_every_skill_and_the_call_that_reads_it(context: RuntimeContext, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "review", "---\ndescription: Read a change.\n---\nLook first.\n")
    write_skill(tmp_path / "skills" / "broken", "")
    found = await call(context, "skills_list")
    assert (found["count"], found["truncated"]) == (1, False)
    (skill,) = found["skills"]
    step = skill.pop("nextStep")
    assert skill == {"name": "review", "description": "Read a change.", "preview": "Look first.", "source": "user"}
    msgspec.convert(step["args"], TOOLS[step["tool"]].parameters)
    assert [problem["name"] for problem in found["problems"]] == ["broken"]
    assert str(tmp_path) not in str(found)


@proves("runtime.skills")
async def test_a_caller_without_the_tool_gets_no_suggestion(context: RuntimeContext, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "review", "text")
    found = await call(context, "skills_list", tools=["skills_list"])
    assert found["skills"][0]["nextStep"] is None


@proves("runtime.skills")
async def test_a_long_list_is_cut_and_says_so(context: RuntimeContext, tmp_path: Path) -> None:
    for number in range(MAX_LISTED + 1):
        write_skill(tmp_path / "skills" / f"s{number}", "text")
    found = await call(context, "skills_list")
    assert (found["count"], len(found["skills"]), found["truncated"]) == (MAX_LISTED + 1, MAX_LISTED, True)


@proves("runtime.skills")
async def test_a_skill_is_read_by_its_exact_name(context: RuntimeContext, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "review", "Look first.")
    found = await call(context, "skills_read", name="review")
    assert (found["content"], found["truncated"], found["source"]) == ("Look first.", False, "user")
    assert str(tmp_path) not in str(found)
    with pytest.raises(ToolRefused, match="Did you mean review") as refused:
        await call(context, "skills_read", name="Review")
    assert refused.value.reason == "not_found"
    with pytest.raises(ToolRefused, match="skills_list"):
        await call(context, "skills_read", name="../../etc/passwd")


@proves("runtime.skills")
async def test_a_skill_that_is_deleted_after_it_was_listed_is_refused(
    context: RuntimeContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_skill(tmp_path / "skills" / "review", "text")
    loaded = await catalogue.load_catalogue(context, "/project", AgentSkills())

    async def load_earlier(*_: object) -> catalogue.SkillCatalogue:
        return loaded

    monkeypatch.setattr(catalogue, "load_catalogue", load_earlier)
    file.unlink()
    with pytest.raises(ToolRefused) as refused:
        await call(context, "skills_read", name="review")
    assert refused.value.reason == "unreadable"
    assert str(tmp_path) not in str(refused.value)


@proves("runtime.skills")
async def test_a_session_of_an_agent_sees_the_skills_of_its_version(context: RuntimeContext, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_skill(tmp_path / "skills" / name, "text")
    chosen = AgentDefinition(model="scripted:echo", skills=AgentSkills(include=("b",)))
    version = await define_agent(context, "/project", "default", chosen, by="anna")
    found = await call(context, "skills_list", version=version.version)
    assert [skill["name"] for skill in found["skills"]] == ["b"]
    assert (await call(context, "skills_list"))["count"] == 2


@proves("runtime.skills")
async def test_a_search_ranks_the_name_before_the_text_and_says_why(context: RuntimeContext, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "deploy", "---\ndescription: Bring a release out.\n---\nSteps.\n")
    write_skill(tmp_path / "skills" / "test", "---\ndescription: Check before you deploy.\n---\nSteps.\n")
    write_skill(tmp_path / "skills" / "paint", "---\ndescription: Choose colours.\n---\nSteps.\n")
    found = await call(context, "skills_search", query="how do I Deploy?")
    assert [hit["name"] for hit in found["hits"]] == ["deploy", "test"]
    assert found["hits"][0]["reasons"] == ["name: deploy"]
    assert found["hits"][0]["score"] > found["hits"][1]["score"] > 0
    assert found["hits"][0]["nextStep"]["args"] == {"name": "deploy"}
    assert (await call(context, "skills_search", query="deploy", limit=1))["count"] == 1
    assert (await call(context, "skills_search", query="¿?"))["hits"] == []


words = st.sampled_from(["alpha", "beta", "gamma", "delta"])
skills = st.builds(
    Skill,
    st.uuids().map(str),
    st.lists(words, max_size=4).map(" ".join),
    st.lists(words, max_size=4).map(" ".join),
    st.just("user"),
    st.just(""),
)


@proves("runtime.skills")
@given(st.lists(skills, max_size=8), words)
def test_a_search_finds_exactly_the_skills_that_contain_a_word(found: list[Skill], word: str) -> None:
    hits = rank_skills(found, word, 50)
    expected = {skill.name for skill in found if word in f"{skill.description} {skill.preview}".split()}
    assert {hit.skill.name for hit in hits} == expected
    assert [hit.rank for hit in hits] == sorted((hit.rank for hit in hits), reverse=True)
