"""Which blueprint a name stands for."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from fidelio.errors import BlueprintNotFound, BrokenBlueprint
from fidelio.home import Home
from fidelio.orchestrator.blueprints.catalogue import BlueprintCatalogue, open_blueprints
from tests.orchestrator.blueprints.files import AGENTS, open_catalogue, write_folder, write_page
from tests.support import proves


def names(blueprints: BlueprintCatalogue, project: Path) -> list[str]:
    return [one.name for one in blueprints.list(project).agents]


@proves("blueprints.broken")
def test_a_broken_blueprint_hides_no_other(tmp_path: Path) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "alice")
    write_folder(root, "bob", mcp="{")
    write_page(root, "carol")
    write_page(root, "dave", "oops: 1\n")

    listing = open_catalogue().list(tmp_path)

    assert [one.name for one in listing.agents] == ["alice", "carol"]
    assert [one.name for one in listing.broken] == ["bob", "dave"]
    assert open_catalogue().get("alice", tmp_path) == listing.agents[0]
    with pytest.raises(BrokenBlueprint, match=r"dave.md, line 4: `oops` means nothing here"):
        open_catalogue().get("dave", tmp_path)


@proves("blueprints.not-found")
def test_an_unknown_name_is_answered_with_near_ones(tmp_path: Path) -> None:
    write_folder(tmp_path / AGENTS, "helper")

    with pytest.raises(BlueprintNotFound, match=r"no blueprint is called helpr\. Did you mean helper\?"):
        open_catalogue().get("helpr", tmp_path)
    with pytest.raises(BlueprintNotFound, match="list_agent_blueprints"):
        open_catalogue().get("zzz", tmp_path)


@proves("blueprints.not-found", "blueprints.bounds")
@pytest.mark.parametrize("name", ["", "..", "../helper", "/etc", "a/b", "a\\b", ".hidden", "a\n", "ä", "x" * 65, "a\0b"])
def test_a_name_that_is_a_path_is_refused(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path / ".fidelio", "helper")

    with pytest.raises(BlueprintNotFound, match="is not a valid blueprint name"):
        open_catalogue().get(name, tmp_path)


@proves("blueprints.name")
def test_a_name_on_disk_that_cannot_be_asked_for_is_broken(tmp_path: Path) -> None:
    write_folder(tmp_path / AGENTS, "not good")
    write_folder(tmp_path / AGENTS, "good")

    listing = open_catalogue().list(tmp_path)

    assert ([one.name for one in listing.agents], [one.name for one in listing.broken]) == (["good"], ["not good"])


@proves("blueprints.name")
def test_a_folder_and_a_page_of_one_name_are_broken_together(tmp_path: Path) -> None:
    write_folder(tmp_path / AGENTS, "helper")
    write_page(tmp_path / AGENTS, "helper")

    (broken,) = open_catalogue().list(tmp_path).broken

    assert (broken.name, broken.remedy) == ("helper", "Keep one of the two.")


@proves("blueprints.disabled")
@pytest.mark.parametrize("form", ["folder", "page", "empty"])
def test_what_is_switched_off_is_not_listed_and_says_so(tmp_path: Path, form: str) -> None:
    root, further = tmp_path / AGENTS, tmp_path / "further"
    write_folder(further, "helper")
    if form == "page":
        write_page(root, "helper").rename(root / "helper.md.disabled")
    else:
        place = write_folder(root, "helper", mcp="{")
        (place / ".disabled").touch()
        if form == "empty":
            (place / "agent.json").unlink()

    blueprints = open_catalogue(further)

    listing = blueprints.list(tmp_path)
    assert (listing.agents, listing.broken) == ((), ())
    with pytest.raises(BlueprintNotFound, match=r"helper is switched off\. Take \.disabled away from .*helper"):
        blueprints.get("helper", tmp_path)


@proves("blueprints.search-path")
def test_the_nearest_blueprint_of_a_name_is_used_without_merging(tmp_path: Path) -> None:
    near, far = tmp_path / "project", tmp_path / "far"
    write_folder(near / AGENTS, "helper", prompt="near")
    write_folder(far, "helper", mcp=json.dumps({"mcpServers": {"a": {"command": "b"}}}))
    write_folder(far, "other", prompt="far")

    blueprints = open_catalogue(far)

    assert names(blueprints, near) == ["helper", "other"]
    assert (blueprints.get("helper", near).system_prompt, blueprints.get("helper", near).mcp_servers) == ("near", {})
    assert blueprints.get("other", near).system_prompt == "far"
    assert blueprints.get("helper", tmp_path / "elsewhere").system_prompt == ""


@proves("blueprints.search-path", "blueprints.broken")
def test_a_broken_blueprint_is_not_replaced_by_one_in_a_later_root(tmp_path: Path) -> None:
    write_page(tmp_path / AGENTS, "helper", "oops: 1\n")
    write_folder(tmp_path / "far", "helper")

    blueprints = open_catalogue(tmp_path / "far")

    assert names(blueprints, tmp_path) == []
    with pytest.raises(BrokenBlueprint):
        blueprints.get("helper", tmp_path)


@proves("blueprints.search-path")
def test_the_default_roots_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("FIDELIO_TRUST", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    project, home = tmp_path, Home(tmp_path / "home")
    places = [project / AGENTS, project / ".agent-orchestrator/agents", home.agents, tmp_path / "data/fidelio/agents"]
    for place in places:
        write_folder(place, "echo", prompt=str(place))
    blueprints = open_blueprints(home)

    found = []
    for place in places:
        found.append(blueprints.get("echo", project).system_prompt)
        assert blueprints.get("echo") == blueprints.get("echo", str(project))
        shutil.rmtree(place)

    assert found == [str(place) for place in places]
    assert blueprints.get("echo", project).executor == "scripted"


@proves("blueprints.folder", "blueprints.page")
def test_readmes_and_hidden_files_are_ignored(tmp_path: Path) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "helper")
    write_folder(root, ".git")
    (root / "README.md").write_text("# Our agents")
    (root / ".notes.md").write_text("hidden")
    (root / "notes.txt").write_text("no blueprint")

    listing = open_catalogue().list(tmp_path)

    assert ([one.name for one in listing.agents], listing.broken) == (["helper"], ())


@proves("blueprints.hash")
def test_the_hash_commits_to_every_file_and_to_nothing_else(tmp_path: Path) -> None:
    place = write_folder(tmp_path / "one" / AGENTS, "helper", prompt="Help.")
    copy = tmp_path / "two" / AGENTS / "helper"
    shutil.copytree(place, copy)

    def digest(project: str) -> str:
        return open_catalogue().get("helper", tmp_path / project).hash

    first = digest("one")
    same = digest("two")
    (copy / "script.yaml").write_text("turns: []")
    with_script = digest("two")
    (copy / "script.yaml").rename(copy / "other.yaml")
    renamed = digest("two")
    (copy / "other.yaml").unlink()
    (copy / ".hidden").touch()
    again = digest("two")

    assert first == same == again
    assert len({first, with_script, renamed}) == 3


@proves("blueprints.fresh")
def test_a_change_is_seen_at_once(tmp_path: Path) -> None:
    blueprints = open_catalogue()
    before = names(blueprints, tmp_path)
    place = write_folder(tmp_path / AGENTS, "helper", prompt="one")
    first = blueprints.get("helper", tmp_path).system_prompt
    (place / "agent.system-prompt.md").write_text("two")
    second = blueprints.get("helper", tmp_path).system_prompt
    (place / "agent.json").unlink()
    broken = blueprints.list(tmp_path).broken
    shutil.rmtree(place)

    assert (before, first, second, len(broken), names(blueprints, tmp_path)) == ([], "one", "two", 1, [])


@proves("blueprints.bounds")
def test_a_root_without_read_permission_hides_no_other_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, real = tmp_path / AGENTS, os.scandir
    write_folder(closed, "helper")
    write_folder(tmp_path / "further", "other")

    def scandir(path: str) -> object:
        if path == str(closed):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    listing = open_catalogue(tmp_path / "further").list(tmp_path)

    assert ["cannot be listed: Permission denied" in one.error for one in listing.broken] == [True]
    assert [one.name for one in listing.agents] == ["other"]
