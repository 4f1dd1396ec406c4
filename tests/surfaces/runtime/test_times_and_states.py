"""Commands of the runtime about times and earlier states: schedules, snapshots, forks, and leaving the work to others."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import Callable
from pathlib import Path

from fidelio.providers.model import ModelReply, ModelRequest
from tests.runtime.wakes.support import replies, say
from tests.support import proves
from tests.surfaces.runtime.conftest import STARTED_WORKERS, ModelBehaviour, RunFidelio
from tests.surfaces.runtime.test_commands import begin_demo, run_json

DEMO = ("--model", "scripted:demo")
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@proves("runtime-cli.wakes")
def test_a_person_schedules_wakes_lists_them_and_ends_them(fidelio: RunFidelio) -> None:
    fidelio("chat", *DEMO, text="Hi\n")

    added = fidelio("runtime", "schedule", "add", "default", "daily", "--every", "1d", "--note", "Look again.")
    listed = fidelio("runtime", "schedule", "list", "default").stdout
    status = fidelio("runtime", "status", "default").stdout
    wrong = [fidelio("runtime", "schedule", "add", "default", "x", "--every", every) for every in ("soon", "1s")]
    removed = fidelio("runtime", "schedule", "remove", "default", "daily")
    again = fidelio("runtime", "schedule", "remove", "default", "daily")

    assert added.returncode == removed.returncode == 0, added.stderr + removed.stderr
    assert "wakes every 1d: daily." in added.stdout
    assert listed.splitlines()[1].split()[:3] == ["daily", "every", "1d"]
    assert "schedule daily: every 1d, next at" in status
    assert [done.returncode for done in (*wrong, again)] == [2, 2, 2]
    assert "has no schedule" in again.stderr
    assert run_json(fidelio, "runtime", "schedule", "list", "default") == {"items": [], "next": None}


@proves("runtime-cli.snapshots")
def test_earlier_states_of_the_workspace_are_listed_compared_and_restored(fidelio: RunFidelio, home: Path) -> None:
    begin_demo(fidelio)
    fidelio("runtime", "confirm", "default")
    fidelio("runtime", "follow", "default", "--until-rest")

    (snapshot,) = run_json(fidelio, "runtime", "snapshots", "list", "default")["items"]
    (workspace,) = (home / "sandboxes").glob("*/workspace")
    (workspace / "new.txt").write_text("new")
    diff = fidelio("runtime", "snapshots", "diff", "default", snapshot["snapshotId"])
    unasked = fidelio("runtime", "snapshots", "restore", "default", snapshot["snapshotId"])
    restored = fidelio("runtime", "snapshots", "restore", "default", snapshot["snapshotId"], "--yes")
    unknown = fidelio("runtime", "snapshots", "diff", "default", "snap_nothing")

    assert snapshot["snapshotId"] in fidelio("runtime", "snapshots", "list", "default").stdout
    assert "+ /workspace/new.txt" in diff.stdout
    assert unasked.returncode == unknown.returncode == 2
    assert restored.returncode == 0, restored.stderr
    assert not (workspace / "new.txt").exists()


@proves("runtime-cli.snapshots")
def test_a_fork_continues_with_another_model_and_the_source_stays(fidelio: RunFidelio) -> None:
    first = fidelio("chat", *DEMO, text="Hi\n").stdout.split()[1]

    forked = fidelio("runtime", "fork", "default", "--model", "scripted:echo")
    told = run_json(fidelio, "runtime", "fork", first)
    session = forked.stdout.split()[1]
    answer = fidelio("chat", "--session", session, text="Who answers now?\n")

    assert forked.returncode == 0, forked.stderr
    assert f"Session {session} continues {first}." in forked.stdout
    assert "scripted:echo" in answer.stdout
    assert "Who answers now?" in answer.stdout
    assert told["source"] == first
    assert run_json(fidelio, "runtime", "status", first)["model"] == "scripted:demo"


@proves("runtime-cli.send")
def test_who_stops_watching_leaves_the_work_to_the_background(
    fidelio: RunFidelio, script: Callable[[ModelBehaviour], None]
) -> None:
    async def hang(request: ModelRequest) -> ModelReply:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return say("Never.")

    script(hang)
    done = fidelio("runtime", "send", "default", "Go.", "--model", "scripted:test", "--follow")
    script(replies(say("Done in the end.")))
    again = fidelio("runtime", "follow", "default", "--until-rest")

    assert done.returncode == 130
    assert "The session goes on without you." in done.stderr
    assert STARTED_WORKERS
    assert "│ Done in the end." in again.stdout
