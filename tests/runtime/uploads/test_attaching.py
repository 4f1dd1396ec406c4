"""Rules of the places that files may have in a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import UsageProblem
from fidelio.runtime.uploads.attaching import MAX_RESOURCES, MAX_TOTAL, check_mount_path, check_together, find_target
from fidelio.runtime.uploads.files import CHUNK, clean_name, split_chunks
from fidelio.sandbox.model import UPLOADS
from tests.support import proves

_PART = st.text(min_size=0, max_size=12) | st.sampled_from(["..", ".", "agent", "project", ".openboa-runtime", "a", ""])


def _resource(path: str, size: int = 1) -> dict[str, object]:
    return {"id": "x", "type": "file", "content": {"mount_path": path, "size": size, "chunks": []}}


@proves("session-files.paths")
@pytest.mark.parametrize(
    "path",
    [
        "relative.txt",
        "/etc/passwd",
        "/workspace",
        "/workspace/",
        "/workspace/../etc/passwd",
        "/workspace/./a",
        "/workspace//a",
        "//workspace/a",
        "/workspace/agent/x",
        "/workspace/agent",
        "/workspace/project/x",
        "/workspace/.openboa-runtime/x",
        "/mnt/memory/x",
        "/mnt/skills/x",
        UPLOADS,
        f"{UPLOADS}/../../skills/x",
        "/workspace/a\nb",
        "/workspace/a\x00b",
        "/workspace/" + "x" * 300,
        "/workspace/" + "a/" * 20 + "b",
        "",
    ],
)
def test_a_path_elsewhere_or_above_is_refused(path: str) -> None:
    with pytest.raises(UsageProblem, match="mount_path"):
        check_mount_path(path)


@proves("session-files.paths")
@given(st.sampled_from(["/workspace", UPLOADS, "/mnt", ""]), st.lists(_PART, max_size=5))
def test_a_path_that_is_taken_stays_below_the_directory_of_uploads(top: str, parts: list[str]) -> None:
    path = "/".join([top, *parts])
    try:
        place = find_target(check_mount_path(path))
    except UsageProblem:
        return
    assert place
    assert not place.startswith("/")
    assert not {"", ".", ".."} & set(place.split("/"))
    assert not path.startswith(("/workspace/agent/", "/workspace/project/", "/workspace/.openboa-runtime/"))


@proves("session-files.paths")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("/workspace/a", "/workspace/a"),
        ("/workspace/a", "/workspace/a/b"),
        (f"{UPLOADS}/a/b/c", f"{UPLOADS}/a"),
        ("/workspace/a", f"{UPLOADS}/workspace/a"),
    ],
)
def test_two_files_cannot_be_in_each_others_place(first: str, second: str) -> None:
    with pytest.raises(UsageProblem, match="each other"):
        check_together([_resource(first), _resource(second)])
    check_together([_resource("/workspace/a"), _resource("/workspace/ab"), _resource("/workspace/a.b")])


@proves("session-files.paths")
def test_the_number_and_the_size_of_all_files_are_limited() -> None:
    with pytest.raises(UsageProblem, match=str(MAX_RESOURCES)):
        check_together([_resource(f"/workspace/{number}") for number in range(MAX_RESOURCES + 1)])
    with pytest.raises(UsageProblem, match="bytes"):
        check_together([_resource("/workspace/a", MAX_TOTAL), _resource("/workspace/b", 1)])


@proves("v1-files.content")
@given(st.lists(st.binary(max_size=3 * CHUNK // 1000), max_size=8), st.integers(1, 2_000))
def test_chunks_joined_are_the_content(parts: list[bytes], times: int) -> None:
    content = [part * times for part in parts][:3]
    chunks = list(split_chunks(content))

    assert b"".join(chunks) == b"".join(content)
    assert all(len(chunk) == CHUNK for chunk in chunks[:-1])


@proves("v1-files.names")
@given(st.text(max_size=80))
def test_a_cleaned_name_is_a_single_harmless_component(name: str) -> None:
    cleaned = clean_name(name, "text/plain")

    assert cleaned not in ("", ".", "..")
    assert not set(cleaned) & set('/\\\x00\n\r"')
    assert clean_name(cleaned, "text/plain") == cleaned
