"""Lookup: which skill, resource or template does a reference mean?"""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.definitions.library import Library
from fidelio.errors import ComponentNotFound, UnreadableDefinition, WorkflowNotFound
from tests.definitions.libraries import activity, library, manifest, save, skill, written
from tests.support import proves


@pytest.fixture
def shelf(tmp_path: Path) -> Library:
    workflows = ("here", "lender", "other", "meta")
    save(tmp_path, {f"{name}/workflow.yaml": manifest(name) for name in workflows})
    save(tmp_path, {f"{name}/skills/01-everywhere.yaml": skill("everywhere", description=name) for name in workflows})
    save(tmp_path, {f"{name}/skills/02-only-{name}.yaml": skill(f"only-{name}", description=name) for name in workflows})
    save(tmp_path, {f"{name}/skills/03-shared.yaml": skill("shared", description=name) for name in ("lender", "meta")})
    save(tmp_path, {f"{name}/resources/0{n}-page.md": f"# {name}" for n, name in enumerate(workflows)})
    save(tmp_path, {f"{name}/resources/007-all.md": f"# {name}" for name in workflows})
    save(tmp_path, {"here/templates/report.md": "---\nid: r\n---\n# {title}\n", "meta/templates/letter.md": "Dear {name}"})
    return library(tmp_path)


@proves("library.skills")
@pytest.mark.parametrize(
    ("reference", "owner", "found_in"),
    [
        ("everywhere", None, "here"),
        ("everywhere", "lender", "here"),
        ("shared", "lender", "lender"),
        ("shared", None, "meta"),
        ("only-meta", "lender", "meta"),
        ("only-meta", "here", "meta"),
        ("other/everywhere", "lender", "other"),
        ("meta/everywhere", None, "meta"),
        ("lender/skills/03-shared.yaml", None, "lender"),
        ("02-only-here", None, "here"),
        ("only-lender", "lender", "lender"),
        ("shared", "gone", "meta"),
    ],
)
def test_a_skill_is_looked_up_where_its_reader_expects_it(
    shelf: Library, reference: str, owner: str | None, found_in: str
) -> None:
    found = shelf.skill(reference, workflow="here", owner=owner)

    assert (found.owner, found.definition.description) == (found_in, found_in)


@proves("library.skills")
def test_a_skill_of_a_workflow_that_was_not_asked_is_not_found(shelf: Library) -> None:
    for reference in ("only-other", "only-lender", "here/only-meta"):
        with pytest.raises(ComponentNotFound, match="Skill not found"):
            shelf.skill(reference, workflow="here")
    with pytest.raises(ComponentNotFound, match="Did you mean everywhere"):
        shelf.skill("everywere", workflow="here")
    with pytest.raises(WorkflowNotFound):
        shelf.skill("nowhere/everywhere", workflow="here")


@proves("library.broken")
def test_a_broken_skill_is_reported_and_not_replaced_by_another(tmp_path: Path, shelf: Library) -> None:
    save(tmp_path, {"here/skills/01-everywhere.yaml": "id: everywhere\nversion: 1.0.0\n"})

    with pytest.raises(UnreadableDefinition, match="capability"):
        shelf.skill("everywhere", workflow="here")
    assert shelf.skill("only-here", workflow="here").owner == "here"


@proves("library.resources")
@pytest.mark.parametrize(
    ("reference", "after", "found_in"),
    [
        ("0", None, "here"),
        ("00", None, "here"),
        ("000", None, "here"),
        ("7", "lender", "here"),
        ("1", "lender", "lender"),
        ("3", None, "meta"),
        ("meta/03", None, "meta"),
        ("other/7", "lender", "other"),
        ("other/2", None, "other"),
        ("all", None, "here"),
        ("meta/page", None, "meta"),
        ("007-all.md", None, "here"),
    ],
)
def test_a_resource_is_found_by_number_or_name(shelf: Library, reference: str, after: str | None, found_in: str) -> None:
    found = shelf.resource(reference, workflow="here", last_skill_owner=after)

    assert (found.owner, found.definition.title) == (found_in, found_in)


@proves("library.resources")
@pytest.mark.parametrize("reference", ["2", "99", "-1", "\N{ARABIC-INDIC DIGIT SEVEN}", "0x7", "nothing"])
def test_a_resource_that_is_not_there_is_not_found(shelf: Library, reference: str) -> None:
    with pytest.raises(ComponentNotFound, match=f"Resource not found: {reference} in workflow here"):
        shelf.resource(reference, workflow="here")


@proves("library.resources")
def test_data_comes_before_markdown_and_guides_are_resources(tmp_path: Path) -> None:
    data = written({"id": "d", "title": "Data", "purpose": "x", "anything": [1]}, "toon")
    save(
        tmp_path,
        {"w/workflow.yaml": manifest("w"), "w/guides/01-a.md": "# A", "w/guides/01-b.toon": data, "w/guides/README.md": "# No"},
    )

    found = library(tmp_path).resource("1", workflow="w")

    assert (found.definition.id, found.definition.title, found.source.format) == ("d", "Data", "toon")
    assert found.source.toon == data
    assert [part.file for part in library(tmp_path).components("resources", "w")] == ["01-b.toon", "01-a.md"]


@proves("library.resources", "reading.markdown")
def test_a_resource_knows_its_front_matter(tmp_path: Path) -> None:
    text = "---\nid: guide\nversion: 2\nextra: yes\n---\n\n# Heading\n\nText.\n"
    shelf = library(save(tmp_path, {"w/workflow.yaml": manifest("w"), "w/resources/03-guide.md": text}))

    found = shelf.resource("3", workflow="w")

    definition = found.definition
    assert (definition.id, definition.version, definition.title, definition.index) == ("guide", "2", "Heading", "03")
    assert definition.front_matter == {"id": "guide", "version": 2, "extra": "yes"}
    assert definition.content == "\n# Heading\n\nText.\n"
    assert found.source.content == text.encode()


@proves("library.texts")
def test_templates_are_listed_and_loaded(shelf: Library) -> None:
    assert [part.id for part in shelf.templates("here")] == ["report"]
    assert shelf.template("report", workflow="here").definition.content == "# {title}\n"
    assert shelf.template("letter", workflow="here").owner == "meta"
    with pytest.raises(ComponentNotFound, match="Template not found"):
        shelf.template("nothing", workflow="here")


@proves("library.texts")
def test_the_global_rules_are_those_of_meta(tmp_path: Path) -> None:
    rules = {"id": "rules", "title": "Rules", "sections": [{"id": "s", "title": "S", "rules": ["Be kind."], "more": {"a": 1}}]}
    shelf = library(save(tmp_path, {"meta/workflow.yaml": manifest("meta"), "meta/rules.toon": written(rules, "toon")}))

    found = shelf.rules()

    assert found is not None
    assert found.definition.sections[0].rules == ("Be kind.",)
    assert shelf.toon("rules", workflow="meta") == written(rules, "toon")
    assert library(tmp_path / "elsewhere").rules() is None
    with pytest.raises(ComponentNotFound, match="no global rules"):
        library(save(tmp_path / "b", {"w.yaml": manifest("w")})).source("rules", workflow="w")


@proves("library.source")
def test_every_part_is_served_byte_for_byte_and_as_toon(tmp_path: Path) -> None:
    raw = b'\xef\xbb\xbf# kept\r\nid: s\r\nversion: 1.0.0\r\ncapability: "C"\r\n'
    save(
        tmp_path,
        {"w/workflow.yaml": manifest("w"), "w/activities/01-a.yaml": activity("a", tags=["x", "y"]), "w/skills/01-s.toon": raw},
    )
    save(tmp_path, {"w/resources/01-r.md": "---\nid: r\n---\nText", "w/templates/t.md": "T"})
    shelf = library(tmp_path)

    assert shelf.source("skill", "s", workflow="w").content == raw
    assert shelf.toon("skill", "s", workflow="w").encode() == raw
    assert shelf.toon("activity", "a", workflow="w") == "id: a\nversion: 1.0.0\nname: A\ntags[2]: x,y"
    assert shelf.toon("workflow", workflow="w") == "id: w\nversion: 1.0.0\ntitle: W"
    assert shelf.toon("resource", "1", workflow="w") == "---\nid: r\n---\nText"
    assert shelf.source("template", "t", workflow="w").content == b"T"
