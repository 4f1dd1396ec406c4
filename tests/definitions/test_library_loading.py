"""Loading: a workflow put together from its own and from borrowed activities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.models import Workflow
from fidelio.errors import ComponentNotFound, UnreadableDefinition
from tests.definitions.libraries import FORMATS, activity, library, manifest, save, skill, written
from tests.definitions.test_models import ACTIVITY
from tests.support import proves


def ids(workflow: Workflow) -> list[str]:
    return [found.id for found in workflow.activities]


@proves("library.names", "library.assembly")
def test_activities_are_ordered_by_number_and_carry_it(tmp_path: Path) -> None:
    names = {"9-nine": "nine", "10-ten": "ten", "001-one": "one", "plain": "plain"}
    save(tmp_path, {"w/workflow.yaml": manifest("w"), "w/activities/README.md": "no", "w/activities/README.yaml": "no: ["})
    save(tmp_path, {f"w/activities/{file}.yaml": activity(name) for file, name in names.items()})

    workflow = library(tmp_path).workflow("w")

    assert ids(workflow) == ["one", "nine", "ten", "plain"]
    assert [found.artifact_prefix for found in workflow.activities] == ["001", "9", "10", None]
    assert {found.owner for found in workflow.activities} == {"w"}


@proves("library.assembly")
def test_a_workflow_may_borrow_activities_and_write_out_its_own(tmp_path: Path) -> None:
    listed = [
        "lender/02-b.yaml",
        "lender/activities/03-c.yaml",
        {"id": "inline", "version": "1.0.0", "name": "Inline"},
        "lender/d",
        "01-a.yaml",
    ]
    save(tmp_path, {"lender/workflow.yaml": manifest("lender"), "w/workflow.yaml": manifest("w", activities=listed)})
    save(tmp_path, {f"lender/activities/0{n}-{name}.yaml": activity(name, n=n) for n, name in enumerate("abcd", 1)})
    save(tmp_path, {"w/activities/01-a.yaml": activity("a"), "w/activities/05-b.yaml": activity("b", mine=True)})

    shelf = library(tmp_path)
    workflow = shelf.workflow("w")

    assert ids(workflow) == ["a", "b", "c", "inline", "d"]
    assert [found.owner for found in workflow.activities] == ["w", "w", "lender", "w", "lender"]
    assert [found.artifact_prefix for found in workflow.activities] == ["01", "05", "03", None, "04"]
    assert shelf.source("activity", "c", workflow="w").content == (tmp_path / "lender/activities/03-c.yaml").read_bytes()
    assert "id: inline" in shelf.toon("activity", "inline", workflow="w")
    assert [finding.rule for finding in shelf.findings()] == ["duplicate-id"]


@proves("library.assembly")
@pytest.mark.parametrize("folder", ["stages", "./stages/", "deep/stages"])
def test_the_activities_may_lie_in_another_directory_of_the_workflow(tmp_path: Path, folder: str) -> None:
    place = folder.strip("./")
    save(tmp_path, {"w/workflow.yaml": manifest("w", activitiesDir=folder), f"w/{place}/01-a.yaml": activity("a")})
    save(tmp_path, {"v/workflow.yaml": manifest("v", activities=["w/a"])})

    shelf = library(tmp_path)

    assert ids(shelf.workflow("w")) == ["a"]
    assert ids(shelf.workflow("v")) == ["a"]


@proves("library.single-file")
def test_a_workflow_without_a_first_activity_is_a_set_of_independent_ones(tmp_path: Path) -> None:
    save(
        tmp_path,
        {
            "w.yaml": manifest("w", activities=[ACTIVITY]),
            "v.yaml": manifest("v", initialActivity="review", activities=[ACTIVITY]),
        },
    )

    assert library(tmp_path).workflow("w").independent
    assert not library(tmp_path).workflow("v").independent


@proves("models.formats-equal")
def test_the_same_workflow_in_three_formats_is_the_same(tmp_path: Path) -> None:
    head = {"id": "w", "version": "1.0.0", "title": "W", "variables": [{"name": "n", "type": "number", "defaultValue": 3}]}
    for name in FORMATS:
        files = {f"w/workflow.{name}": written(head, name), f"w/activities/01-review.{name}": written(ACTIVITY, name)}
        save(tmp_path / name, files)

    toon, yaml, json_ = (library(tmp_path / name).workflow("w") for name in FORMATS)

    assert toon == yaml == json_


@proves("library.broken")
def test_one_broken_activity_costs_that_activity_and_nothing_else(tmp_path: Path) -> None:
    listed: list[Any] = ["nobody/x.yaml", "../../x.yaml", {"id": "inline", "version": "1"}]
    save(
        tmp_path,
        {"w/workflow.yaml": manifest("w"), "w/activities/01-a.yaml": activity("a"), "w/activities/02-b.yaml": "id: b\nid: c\n"},
    )
    save(
        tmp_path, {"w/activities/03-c.toon": "id: c\n  name: C\n", "v/workflow.yaml": manifest("v", activities=["w/b", "w/a"])}
    )
    save(tmp_path, {"u.yaml": manifest("u", activities=listed)})
    shelf = library(tmp_path)

    assert ids(shelf.workflow("w")) == ["a"]
    assert sorted(shelf.workflow("w").broken) == ["b", "c"]
    assert ids(shelf.workflow("v")) == ["a"]
    assert sorted(shelf.workflow("u").broken) == ["../../x.yaml", "inline", "nobody/x.yaml"]
    with pytest.raises(UnreadableDefinition) as caught:
        shelf.activity("w", "b")
    assert (caught.value.findings[0].file, caught.value.findings[0].line) == (str(tmp_path / "w/activities/02-b.yaml"), 2)
    assert shelf.activity("w", "a").name == "A"
    assert {Path(finding.file).name for finding in shelf.findings()} == {"02-b.yaml", "03-c.toon", "u.yaml"}


@proves("library.broken")
def test_a_broken_manifest_makes_only_its_own_workflow_unavailable(tmp_path: Path) -> None:
    save(
        tmp_path, {"bad/workflow.yaml": "id: [", "bad/activities/01-a.yaml": activity("a"), "bad/skills/01-s.yaml": skill("s")}
    )
    save(tmp_path, {"w/workflow.yaml": manifest("w", activities=["bad/a"])})
    shelf = library(tmp_path)

    with pytest.raises(UnreadableDefinition):
        shelf.workflow("bad")
    assert ids(shelf.workflow("w")) == ["a"]
    assert shelf.skill("bad/s", workflow="w").definition.id == "s"


@proves("library.ids")
def test_an_unknown_activity_is_answered_with_near_names(tmp_path: Path) -> None:
    shelf = library(save(tmp_path, {"w/workflow.yaml": manifest("w"), "w/activities/01-review.yaml": activity("review")}))

    with pytest.raises(ComponentNotFound, match=r"Activity not found: reviwe in workflow w\. Did you mean review"):
        shelf.activity("w", "reviwe")


@proves("library.snapshot")
def test_the_same_workflow_can_be_made_from_its_snapshot(tmp_path: Path) -> None:
    shelf = library(save(tmp_path, {"w.yaml": manifest("w", activities=[ACTIVITY], odd={"a": [1, None]})}))

    snapshot = json.loads(json.dumps(shelf.snapshot("w")))

    assert Workflow.model_validate(snapshot) == shelf.workflow("w")
    assert snapshot["odd"] == {"a": [1, None]}
    assert snapshot["activities"][0]["checkpoints"][0]["blocking"] is True
    assert str(tmp_path) not in json.dumps(snapshot)


@proves("models.unknown-keys")
def test_an_unknown_key_that_is_called_like_an_attribute_is_kept_and_means_nothing(tmp_path: Path) -> None:
    unknown = {"initial_activity": "a", "artifact_locations": 3, "_fields_set": 4}
    shelf = library(save(tmp_path, {"w.yaml": manifest("w", activities=[ACTIVITY], broken="no", **unknown)}))

    workflow = shelf.workflow("w")

    assert (workflow.initial_activity, workflow.artifact_locations, workflow.broken) == (None, {}, {})
    assert workflow.model_extra == unknown
    assert shelf.snapshot("w") == workflow.model_dump(mode="json", by_alias=True, exclude={"broken"})


@proves("library.listed-ids")
@pytest.mark.parametrize("file", ["foo/workflow.yaml", "foo.yaml"])
def test_a_workflow_goes_by_the_name_it_is_found_by_whatever_its_file_calls_it(file: str, tmp_path: Path) -> None:
    shelf = library(save(tmp_path, {file: manifest("score", activities=[ACTIVITY])}))
    [listed] = shelf.list()

    assert (listed.id, shelf.workflow("foo").id, shelf.snapshot("foo")["id"]) == ("foo", "foo", "foo")
    assert shelf.version(shelf.workflow(listed.id).id).workflow is shelf.workflow("foo")
