"""The catalogue of skills: what is found, what wins, and what hostile files do."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fidelio.clock import now_ms
from fidelio.definitions.library import memo as memo_module
from fidelio.definitions.library.memo import TICK_MS, Memo
from fidelio.home import Home
from fidelio.runtime.agents.definition import AgentSkills
from fidelio.runtime.ports import SkillRoot
from fidelio.runtime.skills import scanning
from fidelio.runtime.skills.catalogue import SkillCatalogue, list_skills, load_catalogue, read_skill
from fidelio.runtime.skills.roots import list_default_roots
from fidelio.runtime.skills.scanning import MAX_BYTES, PREVIEW, FoundSkill, SkillProblem, scan_root
from tests.runtime.skills.support import make_context, write_skill
from tests.support import proves


async def load(*roots: Path | SkillRoot) -> SkillCatalogue:
    found = tuple(root if isinstance(root, SkillRoot) else SkillRoot(root, root.name) for root in roots)
    return await load_catalogue(make_context(*found), "/project", AgentSkills())


async def names(*roots: Path | SkillRoot) -> list[str]:
    return [skill.name for skill in (await load(*roots)).skills]


@proves("runtime.skills")
async def test_a_skill_has_the_name_and_description_of_its_front_matter(tmp_path: Path) -> None:
    write_skill(
        tmp_path / "any", "---\nname: review\ndescription: Read a change.\n---\n# Review\n\n- First\n> second\nthird\nfourth\n"
    )
    (skill,) = (await load(SkillRoot(tmp_path, "user"))).skills
    assert (skill.name, skill.description, skill.source) == ("review", "Read a change.", "user")
    assert skill.preview == "Review First second"


@proves("runtime.skills")
async def test_without_front_matter_the_directory_and_the_first_line_name_it(tmp_path: Path) -> None:
    write_skill(tmp_path / "deploy", "# Deploying\n\nHow we deploy.\n")
    (skill,) = (await load(tmp_path)).skills
    assert (skill.name, skill.description) == ("deploy", "Deploying")


@proves("runtime.skills")
async def test_a_preview_is_bounded_and_skips_what_says_nothing(tmp_path: Path) -> None:
    write_skill(tmp_path / "a", "---\n---\n\n```\n\u200b\n<!-- hidden -->\n" + "word " * 200 + "\nmore\n")
    (skill,) = (await load(tmp_path)).skills
    assert len(skill.preview) == PREVIEW
    assert skill.preview.startswith("word word")


@proves("runtime.skills")
async def test_skills_are_found_at_any_reasonable_depth_and_sorted_by_name(tmp_path: Path) -> None:
    for name in ("b", "group/a", "group/inner/c", ".hidden/d", "1/2/3/4/5/6/7/e"):
        write_skill(tmp_path / name, "text")
    assert await names(tmp_path) == ["a", "b", "c"]


@proves("runtime.skills")
async def test_an_agent_sees_the_skills_that_its_definition_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_skill(tmp_path / name, "text")
    context = make_context(SkillRoot(tmp_path, "user"))

    async def seen(skills: AgentSkills) -> list[str]:
        return [skill.name for skill in await list_skills(context, "/project", skills)]

    assert await seen(AgentSkills()) == ["a", "b"]
    assert await seen(AgentSkills(include=("b", "missing"))) == ["b"]
    assert await seen(AgentSkills(include=())) == []
    assert await seen(AgentSkills(enabled=False)) == []
    with pytest.raises(Exception, match="no skill 'a'"):
        await read_skill(context, "/project", AgentSkills(include=("b",)), "a", max_characters=10)


@proves("runtime.skill-files")
async def test_the_nearest_skill_of_a_name_wins_and_the_other_is_reported(tmp_path: Path) -> None:
    write_skill(tmp_path / "project" / "review", "near")
    write_skill(tmp_path / "user" / "review", "far")
    write_skill(tmp_path / "user" / "other", "only here")
    found = await load(tmp_path / "project", tmp_path / "user")
    assert [(skill.name, skill.source) for skill in found.skills] == [("other", "user"), ("review", "project")]
    assert [(problem.name, problem.source) for problem in found.problems] == [("review", "user")]
    assert "'project' is nearer" in found.problems[0].problem


BROKEN = {
    "empty": b"",
    "invisible": b"---\nname: x\n---\n\xe2\x80\x8b\xe2\x81\xa0 \n",
    "binary": bytes(range(256)),
    "escapes": b"text \x1b[2J",
    "half-utf8": "naïve".encode("latin-1"),
    "huge": b"x" * (MAX_BYTES + 1),
    "bad-yaml": b"---\nname: [unclosed\n---\ntext\n",
    "tagged": b"---\nname: !!python/object:os.system x\n---\ntext\n",
    "list-name": b"---\nname: [a]\n---\ntext\n",
    "number": b"---\ndescription: 7\n---\ntext\n",
    "long-name": b"---\nname: " + b"x" * 101 + b"\n---\ntext\n",
    "bomb": b"---\na: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (letter, letter, b",".join([b"*%c" % (letter - 1)] * 9)) for letter in b"bcdefghi")
    + b"---\ntext\n",
    "deep": b"---\na: " + b"[" * 500 + b"]" * 500 + b"\n---\ntext\n",
}


@proves("runtime.skill-files")
@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_file_is_reported_and_hides_no_other(tmp_path: Path, name: str) -> None:
    write_skill(tmp_path / name, BROKEN[name])
    write_skill(tmp_path / "good", "text")
    found = await load(tmp_path)
    assert [skill.name for skill in found.skills] == ["good"]
    (problem,) = found.problems
    assert problem.name == name
    assert str(tmp_path) not in problem.problem


@proves("runtime.skill-files")
async def test_files_that_are_no_files_are_reported(tmp_path: Path) -> None:
    for name in ("pipe", "directory", "socket", "loop"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / "SKILL.md")
    (tmp_path / "directory" / "SKILL.md").mkdir()
    (tmp_path / "loop" / "SKILL.md").symlink_to("SKILL.md")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket" / "SKILL.md"))
        found = await load(tmp_path)
    assert found.skills == ()
    assert sorted(problem.name for problem in found.problems) == ["directory", "loop", "pipe", "socket"]


@proves("runtime.skill-files")
async def test_links_do_not_lead_out_and_loops_end(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    write_skill(outside, "secret")
    write_skill(root / "good", "text")
    (root / "linked").symlink_to(outside)
    (root / "file").mkdir()
    (root / "file" / "SKILL.md").symlink_to(outside / "SKILL.md")
    (root / "loop").symlink_to(root)
    (root / "good" / "self").symlink_to(".")
    (root / "dangling").symlink_to("nowhere")
    found = await load(root)
    assert [skill.name for skill in found.skills] == ["good"]
    assert sorted(problem.name for problem in found.problems) == ["file", "linked"]
    assert "secret" not in str(found)


@proves("runtime.skill-files")
async def test_a_link_inside_of_the_root_is_followed(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "review.md").write_text("shared text")
    (tmp_path / "review").mkdir()
    (tmp_path / "review" / "SKILL.md").symlink_to("../texts/review.md")
    assert await names(tmp_path) == ["review"]


@proves("runtime.skill-files")
async def test_a_root_that_is_itself_a_link_works(tmp_path: Path) -> None:
    write_skill(tmp_path / "real" / "a", "text")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert await names(tmp_path / "link") == ["a"]


@proves("runtime.skill-files")
async def test_a_directory_with_too_many_entries_is_cut_off_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "MAX_ENTRIES", 10)
    for number in range(20):
        write_skill(tmp_path / f"s{number:02}", "text")
    found = list(scan_root(SkillRoot(tmp_path, "user"), Memo()))
    assert [type(item) for item in found] == [SkillProblem]
    assert isinstance(found[0], SkillProblem)
    assert "more than 10 entries" in found[0].problem


@proves("runtime.skills")
async def test_the_skills_of_workflows_have_the_name_of_their_workflow(tmp_path: Path) -> None:
    skills = tmp_path / "hello" / "skills"
    skills.mkdir(parents=True)
    (skills / "01-look-around.yaml").write_text("id: look-around\ncapability: Find out.\ndescription: Three files.\n")
    (skills / "02-broken.yaml").write_text("id: [\n")
    (skills / "README.md").write_text("no skill")
    (tmp_path / "hello" / "workflow.yaml").write_text("id: hello\n")
    found = list(scan_root(SkillRoot(tmp_path, "library"), Memo()))
    (skill,) = [item.skill for item in found if isinstance(item, FoundSkill)]
    assert (skill.name, skill.description, skill.source) == ("hello/look-around", "Three files.", "library")
    assert len(found) == 2


@proves("runtime.skill-changes")
async def test_a_new_a_changed_and_a_deleted_skill_are_seen(tmp_path: Path) -> None:
    assert await names(tmp_path / "root") == []
    file = write_skill(tmp_path / "root" / "a", "first")
    assert await names(tmp_path / "root") == ["a"]
    file.write_text("other")
    assert (await load(tmp_path / "root")).skills[0].preview == "other"
    file.unlink()
    assert await names(tmp_path / "root") == []


@proves("runtime.skill-changes")
async def test_an_unchanged_directory_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_skill(tmp_path / "a", "text")
    later = now_ms() + 10 * TICK_MS
    monkeypatch.setattr(memo_module, "now_ms", lambda: later)
    first = await load(tmp_path)
    monkeypatch.setattr(scanning, "_read_skill", None)
    assert await load(tmp_path) is first


@proves("runtime.skills")
async def test_a_long_text_is_cut_and_says_so(tmp_path: Path) -> None:
    write_skill(tmp_path / "a", "0123456789" * 3)
    context = make_context(SkillRoot(tmp_path, "user"))
    cut = await read_skill(context, "/project", AgentSkills(), "a", max_characters=10)
    whole = await read_skill(context, "/project", AgentSkills(), "a", max_characters=30)
    assert (cut.text, cut.truncated, whole.truncated) == ("0123456789", True, False)


@proves("runtime.skills")
async def test_the_bundled_skills_can_be_used_and_have_a_description(tmp_path: Path) -> None:
    roots = list_default_roots(Home(tmp_path), str(tmp_path))
    (bundled,) = [root for root in roots if root.source == "bundled"]
    found = await load(bundled)
    assert found.problems == ()
    assert [skill.name for skill in found.skills] == ["change-shared-files", "remember-across-wakes"]
    assert all(skill.description and len(skill.description) < 200 for skill in found.skills)
