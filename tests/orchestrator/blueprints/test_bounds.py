"""Files that are none, or not where they seem to be, or full of anything: one broken entry each, and the others stay."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.definitions.library.files import Files
from fidelio.definitions.reading.positions import MAX_BYTES
from fidelio.errors import BrokenBlueprint
from fidelio.orchestrator.blueprints import reading
from tests.orchestrator.blueprints.files import AGENTS, open_catalogue, write_folder, write_page
from tests.support import proves

FILES = ("agent.json", "agent.system-prompt.md", "agent.mcp.json", "notes")


def only_helper_is_sound(project: Path) -> str:
    """What is said about the other."""
    listing = open_catalogue().list(project)
    assert [one.name for one in listing.agents] == ["helper"]
    (broken,) = listing.broken
    return broken.error


@proves("blueprints.any-bytes", "blueprints.broken")
@settings(max_examples=150, deadline=None)
@given(file=st.sampled_from(FILES), raw=st.binary(max_size=200))
def test_any_bytes_in_any_file_of_a_folder_hide_no_other(file: str, raw: bytes) -> None:
    _check_with(lambda root: (write_folder(root, "other") / file).write_bytes(raw))


_WORDS = (
    "name description limits turns permissions mode mcpServers mcp_servers command args env url headers input_schema"
    " output_schema type properties $ref environment inherit tags options"
)
_KEYS = st.sampled_from(_WORDS.split()) | st.text(max_size=5)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@proves("blueprints.any-bytes", "blueprints.broken")
@settings(max_examples=150, deadline=None)
@given(head=st.dictionaries(_KEYS, _JSON, max_size=5), servers=_JSON)
def test_any_values_under_any_keys_hide_no_other(head: dict[str, object], servers: object) -> None:
    def write(root: Path) -> None:
        place = write_folder(root, "other", head)
        (place / "agent.mcp.json").write_text(json.dumps({"mcpServers": servers}))

    _check_with(write)


@proves("blueprints.any-bytes", "blueprints.broken")
@settings(max_examples=150, deadline=None)
@given(raw=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f"---\n{text}\n---\n".encode(errors="replace")))
def test_any_bytes_in_a_page_hide_no_other(raw: bytes) -> None:
    _check_with(lambda root: write_page(root, "other").write_bytes(raw))


def _check_with(write: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as place:
        project = Path(place)
        write_folder(project / AGENTS, "helper")
        write(project / AGENTS)
        listing = open_catalogue().list(project)
        found = [one.name for one in listing.agents] + [one.name for one in listing.broken]
        assert sorted(found) == ["helper", "other"]
        assert listing.agents[0].name == "helper"
        for one in listing.broken:
            assert (one.error.isprintable(), len(one.error) < 5_000) == (True, True)
            with pytest.raises(BrokenBlueprint):
                open_catalogue().get("other", project)


@proves("blueprints.any-bytes", "blueprints.bounds")
def test_a_name_of_any_bytes_hides_no_other(tmp_path: Path) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "helper")
    os.mkdir(os.fsencode(root) + b"/\xff\n")  # noqa: PTH102  # a Path has no such name

    assert "is not a valid blueprint name" in only_helper_is_sound(tmp_path)
    assert [one.name for one in open_catalogue().list(tmp_path).broken] == ["\\xff\\n"]


@proves("blueprints.bounds")
@pytest.mark.parametrize("file", FILES)
def test_a_link_that_leads_out_of_the_directory_is_refused(tmp_path: Path, file: str) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "helper")
    secret = tmp_path / "secret"
    secret.write_text('{"name": "other", "description": "stolen"}')
    place = write_folder(root, "other") / file
    place.unlink(missing_ok=True)
    place.symlink_to(secret)

    assert "leads out" in only_helper_is_sound(tmp_path)


@proves("blueprints.bounds")
def test_a_folder_that_is_a_link_to_somewhere_else_is_refused(tmp_path: Path) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "helper")
    (root / "other").symlink_to(write_folder(tmp_path / "outside", "other"))
    (root / "page.md").symlink_to(write_page(tmp_path / "outside", "page"))

    listing = open_catalogue().list(tmp_path)

    assert [one.name for one in listing.agents] == ["helper"]
    assert ["leads out" in one.error for one in listing.broken] == [True, True]


@proves("blueprints.bounds")
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "helper")
    os.mkfifo(write_folder(root, "other") / "agent.mcp.json")

    assert "not a regular file" in only_helper_is_sound(tmp_path)


@proves("blueprints.bounds")
def test_a_link_that_leads_to_itself_is_one_broken_entry(tmp_path: Path) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "helper")
    place = write_folder(root, "other")
    (place / "agent.mcp.json").symlink_to("agent.mcp.json")

    assert "agent.mcp.json" in only_helper_is_sound(tmp_path)


@proves("blueprints.bounds")
@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_too_large_is_refused(tmp_path: Path, file: str) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "helper")
    (write_folder(root, "other") / file).write_bytes(b" " * (MAX_BYTES + 1))

    assert f"more than {MAX_BYTES} bytes" in only_helper_is_sound(tmp_path)


@proves("blueprints.bounds")
def test_a_folder_full_of_files_is_refused(tmp_path: Path) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "helper")
    place = write_folder(root, "other")
    for number in range(reading.MAX_FILES):
        (place / str(number)).touch()

    assert f"has {reading.MAX_FILES + 1} files" in only_helper_is_sound(tmp_path)


@proves("blueprints.bounds")
@pytest.mark.parametrize("file", FILES)
def test_a_file_that_vanishes_while_it_is_read_is_one_broken_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    root = tmp_path / AGENTS
    write_folder(root, "helper")
    gone = write_folder(root, "other", prompt="x", mcp="{}") / file
    gone.touch()
    real = Files.read

    def read(files: Files, path: str) -> object:
        if path == str(gone):
            gone.unlink(missing_ok=True)
        return real(files, path)

    monkeypatch.setattr(Files, "read", read)

    assert "No such file" in only_helper_is_sound(tmp_path)


@proves("blueprints.bounds")
def test_a_directory_of_blueprints_that_is_a_file_has_none(tmp_path: Path) -> None:
    (tmp_path / AGENTS).parent.mkdir()
    (tmp_path / AGENTS).write_text("oops")

    assert open_catalogue().list(tmp_path).agents == ()
