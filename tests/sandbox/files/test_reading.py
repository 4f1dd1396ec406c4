"""Reading of files: exact lines, bounded memory, and reports instead of binary or huge content."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.sandbox.inside.files import ACTIONS
from fidelio.sandbox.inside.lines import CHUNK, HUGE
from fidelio.sandbox.inside.tree import PlainTree
from tests.sandbox.files.conftest import Actions
from tests.support import proves


@proves("sandbox.exact-lines")
@given(
    st.lists(st.sampled_from(["", "a", "b c", "é\u2028x", "\r", "\x0b\x0c\x85"]), max_size=8),
    st.booleans(),
    st.integers(1, 10),
    st.integers(1, 10),
)
def test_windows_are_exact_and_only_lf_ends_a_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], is_closed: bool, start: int, count: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "f"
    text = "\n".join(lines) + ("\n" if lines and is_closed else "")
    path.write_bytes(text.encode())
    expected = [line + "\n" for line in text.split("\n")[:-1]] + ([text.split("\n")[-1]] if text.split("\n")[-1] else [])
    read, tree = ACTIONS["read_text"], PlainTree(str(path.parent))

    whole = read(tree, {"path": "f"})
    window = read(tree, {"path": "f", "startLine": start, "lineCount": count})
    tail = read(tree, {"path": "f", "tailLines": count})

    assert (whole["content"], whole["newlineCount"], whole["totalLineCount"]) == (text, text.count("\n"), len(expected))
    assert window["content"] == "".join(expected[start - 1 : start - 1 + count])
    assert window["selectedLineCount"] == len(expected[start - 1 : start - 1 + count])
    assert tail["content"] == "".join(expected[-count:])
    assert not whole["truncated"]


@proves("sandbox.exact-lines")
def test_a_window_may_begin_and_end_in_any_chunk(act: Actions) -> None:
    lines = [f"{number:06d} {'x' * (number % 90)}\n" for number in range(1, 20_001)]
    (act.top / "f").write_text("".join(lines))
    assert (act.top / "f").stat().st_size > 3 * CHUNK

    for start, count in ((1, 1), (5_000, 7), (9_999, 10_002), (19_999, 5)):
        found = act("read_text", path="f", startLine=start, lineCount=count, maxChars=200_000)
        expected = "".join(lines[start - 1 : start - 1 + count])
        assert found["content"] == expected[:200_000]
        assert found["truncated"] == (len(expected) > 200_000)
        assert found["selectedLineCount"] == len(lines[start - 1 : start - 1 + count])
    assert act("read_text", path="f", tailLines=3)["content"] == "".join(lines[-3:])
    assert act("read_text", path="f", tailLines=3)["lineWindow"] == {"startLine": 19_998, "endLine": 20_000}


@proves("sandbox.exact-lines")
def test_a_long_text_is_cut_between_characters_and_says_so(act: Actions) -> None:
    (act.top / "f").write_text("é" * 20)

    found = act("read_text", path="f", maxChars=5)

    assert (found["content"], found["truncated"], found["charCount"], found["totalLineCount"]) == ("é" * 5, True, 5, 1)


@proves("sandbox.bounded-reading")
def test_binary_files_are_reported_and_still_counted(act: Actions) -> None:
    (act.top / "f").write_bytes(b"a\n\0\n")

    found = act("read_text", path="f", tailLines=1)

    assert (found["binary"], found["size"], found["content"], found["newlineCount"]) == (True, 4, "", 2)


@proves("sandbox.bounded-reading")
def test_bytes_that_are_not_utf8_are_replaced_and_marked(act: Actions) -> None:
    (act.top / "f").write_bytes(b"caf\xe9\n")

    found = act("read_text", path="f")

    assert (found["content"], found["lossy"]) == ("caf\ufffd\n", True)


@proves("sandbox.bounded-reading")
def test_a_huge_file_is_reported_and_its_ends_can_be_read_in_little_memory(act: Actions) -> None:
    with (act.top / "f").open("wb") as file:
        file.write(b"line\n" * 4_000)
        file.truncate(4 * HUGE)
        file.seek(4 * HUGE)
        file.write(b"\nlast but one\nlast\n")

    tracemalloc.start()
    whole = act("read_text", path="f")
    tail = act("read_text", path="f", tailLines=2)
    head = act("read_text", path="f", lineCount=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (whole["huge"], whole["content"], whole["totalLineCount"]) == (True, "", None)
    assert (tail["content"], tail["selectedLineCount"]) == ("last but one\nlast\n", 2)
    assert (head["content"], head["lineWindow"]) == ("line\n", {"startLine": 1, "endLine": 1})
    assert peak < 32 << 20


@proves("sandbox.bounded-reading")
def test_lines_far_into_a_huge_file_are_refused_with_another_way(act: Actions) -> None:
    with (act.top / "f").open("wb") as file:
        file.write(b"line\n" * 4_000)
        file.truncate(2 * HUGE)

    assert act("read_text", path="f", startLine=3_999, lineCount=1)["content"] == "line\n"
    failure = act.fail("read_text", path="f", startLine=1_000_000, lineCount=1)
    assert failure.code == "too_large"
    assert "sed" in failure.message


@proves("sandbox.no-blocking-open")
def test_fifos_sockets_and_devices_are_refused_at_once(act: Actions) -> None:
    os.mkfifo(act.top / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(act.top / "socket"))
    server.close()

    for action in ("read_text", "read_bytes", "digest"):
        assert act.fail(action, path="fifo").code == "not_a_file"
        assert act.fail(action, path="socket").code == "not_a_file"
    assert act.fail("grep_text", path="fifo", query="a").code == "not_a_file"
    assert act.fail("write_text", path="fifo", content="a").code == "not_a_file"
    assert act.fail("append_text", path="fifo", content="a").code == "not_a_file"
    assert act("grep_text", path=".", query="a")["filesSearched"] == 0


@proves("sandbox.named-failures")
def test_a_failure_says_what_to_do(act: Actions) -> None:
    (act.top / "main.py").write_text("")
    (act.top / "dir").mkdir()
    (act.top / "loop").symlink_to("loop")
    (act.top / "dangling").symlink_to("missing")

    missing = act.fail("read_text", path="mian.py")
    assert (missing.code, missing.message.endswith("main.py?")) == ("not_found", True)
    assert act.fail("read_text", path="dir").code == "is_directory"
    assert act.fail("read_text", path="main.py/x").code == "not_a_directory"
    assert act.fail("read_text", path="main.py/").code == "not_a_directory"
    assert act.fail("read_text", path="loop").code == "too_many_links"
    assert "link" in act.fail("read_text", path="dangling").message
    assert act.fail("read_text", path="no/such").code == "not_found"
    assert act.fail("read_text", path="a\0b").code == "invalid_path"
    assert act.fail("read_text", path="x" * 300).code == "invalid_path"
    assert act.fail("read_text", path=3).code == "invalid_arguments"
    assert act.fail("read_text", path="main.py", startLine=1, tailLines=1).code == "invalid_arguments"
    assert act.fail("read_text", path="main.py", lineCount=True).code == "invalid_arguments"
    assert act.fail("list_dir", path="main.py").code == "not_a_directory"


@proves("sandbox.host-actions")
def test_bytes_are_read_in_pieces_with_a_digest_of_the_whole(act: Actions) -> None:
    data = os.urandom(3_000_000)
    (act.top / "f").write_bytes(data)
    received, is_at_end = b"", False

    while not is_at_end:
        piece = act("read_bytes", path="f", offset=len(received))
        received, is_at_end = received + base64.b64decode(piece["data"]), piece["eof"]

    assert received == data
    assert act("digest", path="f") == {
        "path": f"{act.tree.base}/f",
        "digest": hashlib.sha256(data).hexdigest(),
        "size": len(data),
    }
    (act.top / "small").write_bytes(b"ab")
    assert act("read_bytes", path="small")["digest"] == hashlib.sha256(b"ab").hexdigest()
    assert "digest" not in act("read_bytes", path="small", length=1)


@proves("sandbox.listing")
def test_a_listing_shows_hidden_names_kinds_sizes_and_targets(act: Actions) -> None:
    (act.top / ".env").write_text("abc")
    (act.top / "dir").mkdir()
    (act.top / "link").symlink_to("/etc/passwd")
    os.mkfifo(act.top / "pipe")

    found = act("list_dir")

    assert [(entry["name"], entry["kind"]) for entry in found["entries"]] == [
        (".env", "file"),
        ("dir", "directory"),
        ("link", "link"),
        ("pipe", "other"),
    ]
    assert found["entries"][0]["size"] == 3
    assert found["entries"][2]["target"] == "/etc/passwd"
    assert act("list_dir", limit=2)["truncated"]
    assert act("stat", path="link")["kind"] == "link"
    assert act("inspect")["workspace"] == act.tree.base


@proves("sandbox.listing")
def test_names_that_are_not_utf8_are_listed_as_valid_text(act: Actions) -> None:
    (act.top / os.fsdecode(b"caf\xe9")).write_text("foo")

    assert [entry["name"] for entry in act("list_dir")["entries"]] == ["caf\ufffd"]
    assert act.names(act("glob_entries", path=".", pattern="*")) == ["caf\ufffd"]
    assert act.names(act("grep_text", path=".", query="foo"), "matches") == ["caf\ufffd"]
