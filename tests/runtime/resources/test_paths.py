"""Paths of shared files and drafts: what is refused before anything is read."""

from __future__ import annotations

import pytest

from fidelio.errors import ToolRefused
from fidelio.runtime.resources.paths import read_session_path, read_shared_path
from tests.runtime.resources.support import Bench
from tests.support import proves

HOSTILE = [
    "..",
    "../keys.json",
    "a/../../keys.json",
    "/etc/passwd",
    "/workspace",
    "/workspace/",
    "/workspace/../etc/passwd",
    "/workspaces/a",
    "//etc/passwd",
    "",
    ".",
    "./",
    "a/",
    "a\0b",
    "a\nb",
    "a\x1b[2J",
    "\ud800",
    "invoice\u202efdp.exe",
    "x" * 300,
    "a/" * 600 + "b",
    "/workspace/agent/../agent/../../etc/passwd",
]


@proves("runtime.resource-paths")
@pytest.mark.parametrize(
    "path", [*HOSTILE, "agent/a.md", "/workspace/agent/a.md", "agent", ".openboa-runtime/x", "./agent/./a"]
)
def test_a_path_that_is_not_of_the_workspace_is_refused(path: str) -> None:
    with pytest.raises(ToolRefused) as refused:
        read_session_path(path)
    assert refused.value.reason == "invalid_path"


@proves("runtime.resource-paths")
@pytest.mark.parametrize("path", [*HOSTILE, "/workspace/notes.md", "/runtime/x", "/workspace/agent", "/workspace/agent/"])
def test_a_path_that_is_not_of_the_shared_files_is_refused(path: str) -> None:
    with pytest.raises(ToolRefused) as refused:
        read_shared_path(path)
    assert refused.value.reason == "invalid_path"


@proves("runtime.resource-paths")
def test_one_file_has_one_name() -> None:
    assert {read_session_path(path) for path in ("a/b.md", "/workspace/a/b.md", "./a//b.md")} == {"a/b.md"}
    assert {read_shared_path(path) for path in ("a/b.md", "/workspace/agent/a/b.md", "a/./b.md")} == {"a/b.md"}
    assert read_session_path("agents/a..b/...md") == "agents/a..b/...md"


@proves("runtime.resource-paths")
@pytest.mark.parametrize(
    ("tool", "name", "rest"),
    [
        ("resources_stage_from_substrate", "sourcePath", {}),
        ("resources_stage_from_substrate", "targetPath", {"sourcePath": "a.md"}),
        ("resources_list_versions", "targetPath", {}),
        ("resources_compare_with_substrate", "sessionPath", {}),
        ("resources_compare_with_substrate", "substratePath", {"sessionPath": "a.md"}),
        ("resources_promote_to_substrate", "sourcePath", {}),
        ("resources_promote_to_substrate", "targetPath", {"sourcePath": "a.md"}),
    ],
)
async def test_every_tool_refuses_hostile_paths_before_it_uses_the_sandbox(
    bench: Bench, tool: str, name: str, rest: dict[str, str]
) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    for path in ("../keys.json", "/etc/passwd", "a/../../b"):
        assert (await bench.refuse(session, tool, **{**rest, name: path})).reason == "invalid_path"
    assert bench.sandboxes.calls == []


@proves("runtime.resource-paths")
@pytest.mark.parametrize("version", ["../x", "a/b", "", "ver_", "ver_'; DROP TABLE", "x" * 200, "ver_0000000000000000"])
async def test_an_unknown_or_hostile_version_is_refused(bench: Bench, version: str) -> None:
    session = await bench.start()
    if version:
        assert (await bench.refuse(session, "resources_read_version", versionId=version)).reason == "not_found"
        assert (await bench.refuse(session, "resources_restore_version", versionId=version)).reason == "not_found"
