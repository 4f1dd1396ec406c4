"""Learnings as files at /memory/learnings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.runtime.memory.learning_files import write_learnings
from tests.runtime.memory.support import MemoryBench
from tests.support import proves


def learning(kind: str, title: str) -> dict[str, Any]:
    return {"kind": kind, "title": title, "detail": "detail"}


async def directory(bench: MemoryBench, session: str) -> Path:
    return await bench.directory(session) / "learnings"


async def show(bench: MemoryBench, session: str) -> dict[str, list[str]]:
    await write_learnings(bench.context, await bench.load(session))
    files = sorted((await directory(bench, session)).iterdir())
    return {file.name: [json.loads(line)["learning"]["title"] for line in file.read_text().splitlines()] for file in files}


@proves("runtime.learning-files")
async def test_every_kind_has_a_file_with_a_line_per_learning(bench: MemoryBench) -> None:
    session = await bench.start()
    await bench.learn(session, learning("lesson", "a"), learning("error", "b"), learning("lesson", "c"))
    assert await show(bench, session) == {"corrections.jsonl": [], "errors.jsonl": ["b"], "lessons.jsonl": ["a", "c"]}
    listed = (await bench.call(session, "learning_list"))["learnings"]
    lines = ((await directory(bench, session)) / "lessons.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == listed[0]


@proves("runtime.learning-files")
async def test_only_what_has_changed_is_written(bench: MemoryBench) -> None:
    session = await bench.start()
    await bench.learn(session, learning("lesson", "a"))
    await show(bench, session)
    before = {file.name: file.stat().st_ino for file in (await directory(bench, session)).iterdir()}
    assert not await write_learnings(bench.context, await bench.load(session))
    await bench.learn(session, learning("error", "b"))
    assert await write_learnings(bench.context, await bench.load(session))
    after = {file.name: file.stat().st_ino for file in (await directory(bench, session)).iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"errors.jsonl"}


@proves("runtime.learning-files")
async def test_the_files_are_readable_for_the_user_of_the_sandbox_and_nothing_else_is_there(bench: MemoryBench) -> None:
    session = await bench.start()
    await show(bench, session)
    assert {file.stat().st_mode & 0o777 for file in (await directory(bench, session)).iterdir()} == {0o644}
    assert not [file for file in (await bench.directory(session)).iterdir() if file.name.startswith(".")]


@proves("runtime.learning-files", "runtime.learning-network")
async def test_a_session_with_a_network_gets_no_file_with_what_an_offline_session_learned(bench: MemoryBench) -> None:
    offline, online = await bench.start_in("none", "off"), await bench.start_in("unrestricted", "on")
    await bench.learn(offline, learning("lesson", "inside"))
    await bench.learn(online, learning("lesson", "outside"))
    assert (await show(bench, online))["lessons.jsonl"] == ["outside"]
    assert (await show(bench, offline))["lessons.jsonl"] == ["inside", "outside"]


@proves("runtime.learning-files")
async def test_a_directory_that_cannot_be_written_does_not_fail_the_wake(
    bench: MemoryBench, caplog: pytest.LogCaptureFixture
) -> None:
    session = await bench.start()
    (await directory(bench, session)).rmdir()
    await write_learnings(bench.context, await bench.load(session))
    assert "cannot be shown as files" in caplog.text


@proves("runtime.learning-files")
async def test_files_that_somebody_deleted_come_back_with_the_next_change(bench: MemoryBench) -> None:
    session = await bench.start()
    await bench.learn(session, learning("lesson", "a"))
    await show(bench, session)
    ((await directory(bench, session)) / "lessons.jsonl").unlink()
    await bench.learn(session, learning("error", "b"))
    assert (await show(bench, session))["lessons.jsonl"] == ["a"]
