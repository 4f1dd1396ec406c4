"""The tools of `agent_toolset_20260401` in a real sandbox: what a model gets, and what hostile arguments get."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime import events as e
from fidelio.runtime.agent_toolset import shell
from tests.runtime.agent_toolset.conftest import Bench, images_of, text_of
from tests.runtime.wakes.support import replies, results_of, say, use
from tests.support import proves

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 2_000_000).decode()


@proves("toolset.bash")
async def test_the_shell_keeps_directory_variables_and_functions(bench: Bench) -> None:
    assert await bench.read("bash", command="mkdir -p d && cd d && export X=1 && f() { echo from-f; }") == "[No output.]"

    assert await bench.read("bash", command="pwd; echo $X; f") == "/workspace/d\n1\nfrom-f"


@proves("toolset.bash")
async def test_a_non_zero_exit_code_is_no_error(bench: Bench) -> None:
    assert await bench.read("bash", command="echo out; echo err >&2; (exit 3)") == "out\nerr\n[Exit code 3.]"


@proves("toolset.bash")
async def test_a_restart_forgets_functions_and_ends_what_runs(bench: Bench) -> None:
    await bench.read("bash", command="f() { echo from-f; }; sleep 300 & echo $! > pid")

    assert await bench.read("bash", restart=True) == "The shell was restarted."
    assert "not found" in await bench.read("bash", command="f; kill -0 $(cat pid)")
    assert "again" in await bench.read("bash", restart=True, command="echo again")


@proves("toolset.bash")
async def test_a_command_is_ended_at_its_time_limit(bench: Bench) -> None:
    text = await bench.read("bash", command="echo begun; sleep 300", timeout_ms=500)
    stubborn = await bench.read("bash", command="trap '' INT; echo stubborn; while :; do sleep 1; done", timeout_ms=500)

    assert text.startswith("begun\n")
    assert "ended at its time limit of 500 ms" in text
    assert "The shell was restarted" in stubborn
    assert await bench.read("bash", command="echo ready") == "ready"
    assert not (await bench.record()).shell.unsettled


@proves("toolset.bash")
async def test_a_command_is_waited_for_longer_than_a_call_of_the_sandbox(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MAX_WAIT_MS", 100)

    assert await bench.read("bash", command="sleep 1; echo late") == "late"


@proves("toolset.bash")
async def test_long_output_is_cut_and_says_what_to_do(bench: Bench) -> None:
    text = await bench.read("bash", command="yes 0123456789 | head -20000")

    assert len(text) < 50_000
    assert "The output was cut" in text
    assert "Send it to a file" in text


@proves("toolset.files")
async def test_a_file_is_written_edited_and_read_with_line_numbers(bench: Bench) -> None:
    written = await bench.read("write", file_path="dir/a.txt", content="one\ntwo\nthree\n")
    edited = await bench.read("edit", file_path="/workspace/dir/a.txt", old_string="two", new_string="2")

    assert written == "Wrote 14 bytes to /workspace/dir/a.txt."
    assert edited == "Edited /workspace/dir/a.txt: 1 replacement."
    assert await bench.read("read", file_path="dir/a.txt") == "     1\tone\n     2\t2\n     3\tthree"
    assert await bench.read("read", file_path="dir/a.txt", view_range=[2, 0]) == "     2\t2\n     3\tthree"
    assert await bench.read("read", file_path="dir/a.txt", view_range=[2, 2]) == "     2\t2"
    assert "none is in this range" in await bench.read("read", file_path="dir/a.txt", view_range=[9, 12])


@proves("toolset.files")
async def test_an_edit_that_is_not_unique_changes_nothing(bench: Bench) -> None:
    await bench.read("write", file_path="a.txt", content="x x")

    await bench.refuse("edit", file_path="a.txt", old_string="x", new_string="y")
    assert "x x" in await bench.read("read", file_path="a.txt")
    assert "2 replacements" in await bench.read("edit", file_path="a.txt", old_string="x", new_string="y", replace_all=True)
    await bench.refuse("edit", file_path="a.txt", old_string="x", new_string="y")


@proves("toolset.files")
async def test_a_long_file_is_cut_at_a_line_and_says_how_to_go_on(bench: Bench) -> None:
    await bench.read("bash", command="seq 1 50000 > many.txt; head -c 5000 /dev/zero | tr '\\0' y > wide.txt")
    text = await bench.read("read", file_path="many.txt")
    last = int(text.splitlines()[-2].split("\t")[0])
    rest = await bench.read("read", file_path="many.txt", view_range=[last + 1, last + 1])

    assert text.endswith(f"[Cut before line {last + 1} of 50000. Go on with view_range [{last + 1}, 0].]")
    assert rest == f"{last + 1:6d}\t{last + 1}"
    assert "[line cut, 5,000 characters]" in await bench.read("read", file_path="wide.txt")


@proves("toolset.files")
async def test_an_image_is_shown_and_other_binary_files_are_refused(bench: Bench) -> None:
    await bench.read(
        "bash", command="printf '\\x89PNG\\r\\n\\x1a\\n' > a.png; head -c 2000000 /dev/zero >> a.png; cp a.png a.bin"
    )
    result = await bench.call("read", file_path="a.png")

    assert text_of(result) == "/workspace/a.png: image/png, 2,000,008 bytes"
    assert [(image.media_type, image.data) for image in images_of(result)] == [("image/png", PNG)]
    assert "is binary" in await bench.refuse("read", file_path="a.bin")
    await bench.read("bash", command="head -c 5000000 /dev/zero > big.png")
    assert "image_too_large" in await bench.refuse("read", file_path="big.png")


@proves("toolset.search")
async def test_glob_lists_the_newest_first_and_grep_gives_lines(bench: Bench) -> None:
    await bench.read("bash", command="mkdir -p s; echo alpha > s/old.py; echo beta > s/new.py; touch -d 2001-01-01 s/old.py")

    assert await bench.read("glob", pattern="**/*.py") == "/workspace/s/new.py\n/workspace/s/old.py"
    assert await bench.read("glob", pattern="*.py", path="s") == "/workspace/s/new.py\n/workspace/s/old.py"
    assert await bench.read("grep", pattern="^(al|be)", path="s") == "/workspace/s/new.py:1:beta\n/workspace/s/old.py:1:alpha"
    assert await bench.read("grep", pattern="zzz-nowhere") == "No matches."
    assert await bench.read("glob", pattern="*.none") == "No files match."


@proves("toolset.search")
async def test_many_hits_are_cut(bench: Bench) -> None:
    await bench.read("bash", command="mkdir many; cd many; for i in $(seq 300); do seq 1 20 > f$i; done")

    assert (await bench.read("glob", pattern="many/*")).endswith("[There are more. Use a narrower pattern or path.]")
    assert (await bench.read("grep", pattern="1")).endswith("[There are more hits. Use a narrower pattern or path.]")


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("bash", {}),
    ("bash", {"restart": False}),
    ("bash", {"command": ""}),
    ("bash", {"command": 5}),
    ("bash", {"command": "x", "timeout_ms": -1}),
    ("bash", {"command": "x", "timeout_ms": 10**9}),
    ("bash", {"command": "x", "shell": "/bin/sh"}),
    ("read", {}),
    ("read", {"file_path": ""}),
    ("read", {"file_path": "a\0b"}),
    ("read", {"file_path": "../../etc/shadow"}),
    ("read", {"file_path": "/proc/1/environ"}),
    ("read", {"file_path": "x", "view_range": [1]}),
    ("read", {"file_path": "x", "view_range": [0, 5]}),
    ("read", {"file_path": "x", "view_range": [5, 2]}),
    ("read", {"file_path": "x", "view_range": ["1", "2"]}),
    ("read", {"file_path": "x.png", "view_range": [1, 2]}),
    ("read", {"path": "x"}),
    ("write", {"file_path": "/etc/passwd", "content": "x"}),
    ("write", {"file_path": "/workspace/agent/AGENTS.md", "content": "x"}),
    ("write", {"file_path": "x"}),
    ("edit", {"file_path": "x", "old_string": "", "new_string": "y"}),
    ("edit", {"file_path": "link", "old_string": "root", "new_string": "y"}),
    ("glob", {"pattern": "/etc/*"}),
    ("glob", {"pattern": "../*"}),
    ("glob", {"pattern": ""}),
    ("grep", {"pattern": "(("}),
    ("grep", {"pattern": "(a*)*$", "path": "missing"}),
    ("web_fetch", {"url": "https://example.org"}),
    ("web_search", {"query": "x"}),
    ("shell_run", {"command": "id"}),
    ("tool_call", {"name": "shell_run", "arguments": {"command": "id"}}),
    ("tools_open", {"group": "shell"}),
]


@proves("toolset.hostile")
async def test_hostile_arguments_are_refused_and_nothing_breaks(bench: Bench) -> None:
    await bench.read("bash", command="ln -s /etc/passwd link; ln -s /etc out")
    for tool, arguments in HOSTILE:
        result = await bench.call(tool, **arguments)
        assert result.is_error, (tool, arguments, result)
        assert text_of(result).startswith('{"ok":false'), (tool, arguments)
    assert await bench.read("bash", command="echo alive") == "alive"
    assert not await bench.runtime.events(bench.session, e.SESSION_ERROR)


@proves("toolset.policies")
async def test_a_policy_of_a_tool_makes_it_ask(bench: Bench) -> None:
    await bench.begin(policies={"write": "always_ask"})
    bench.runtime.script(_write_once)
    await bench.runtime.tell(bench.session, "Write.")
    await bench.runtime.work()

    (call,) = (await bench.record()).wakes.blocking
    assert call.name == "write"
    await bench.runtime.send(bench.session, {"type": e.USER_CONFIRMATION, "tool_use_id": call.id, "result": "allow"})
    await bench.runtime.work()
    assert "allowed" in await bench.read("read", file_path="asked.txt")


def _write_once(request: ModelRequest) -> ModelReply:
    return say("Done.") if results_of(request) else use(("write", {"file_path": "asked.txt", "content": "allowed"}))


@proves("toolset.policies")
async def test_auto_runs_what_only_reads_and_asks_for_the_rest(bench: Bench) -> None:
    await bench.begin(policies={"bash": "auto", "read": "auto"})
    await bench.read("write", file_path="a.txt", content="one\ntwo\n")

    assert await bench.read("bash", command="cat a.txt") == "one\ntwo"
    assert await bench.read("bash", command="grep -n two a.txt") == "/workspace/a.txt:2:two"
    assert "one" in await bench.read("read", file_path="a.txt")
    assert not (await bench.record()).approvals
    await bench.runtime.tell(bench.session, "Go on.")
    bench.runtime.script(replies(use(("bash", {"command": "rm a.txt"}))))
    await bench.runtime.work()
    assert [call.name for call in (await bench.record()).wakes.blocking] == ["bash"]
