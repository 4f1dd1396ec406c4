"""Writing of files: in one step, with the mode, never through a link that leads out, never half."""

from __future__ import annotations

import base64
import hashlib
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from fidelio.sandbox.inside.beneath import BeneathTree
from tests.sandbox.files.conftest import Actions, names_in
from tests.support import proves
from tests.support.users import NOBODY, needs_root


@proves("sandbox.atomic-writes")
def test_a_new_file_gets_parents_and_the_mode_of_the_umask(act: Actions) -> None:
    before = os.umask(0o027)
    try:
        output = act("write_text", path="a/b/c.txt", content="é\n")
    finally:
        os.umask(before)

    assert (output["bytes"], output["created"]) == (3, True)
    assert (act.top / "a/b/c.txt").read_text() == "é\n"
    assert stat.S_IMODE((act.top / "a/b/c.txt").stat().st_mode) == 0o640
    assert names_in(act.top / "a/b") == ["c.txt"]


@proves("sandbox.atomic-writes")
def test_an_existing_file_keeps_its_mode_and_readers_keep_the_old_content(act: Actions) -> None:
    path = act.top / "run.sh"
    path.write_text("old")
    path.chmod(0o751)

    with path.open() as reader:
        output = act("write_text", path="run.sh", content="new")
        assert reader.read() == "old"

    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode), output["created"]) == ("new", 0o751, False)


@needs_root
@proves("sandbox.atomic-writes")
def test_the_owner_stays_where_that_is_allowed(act: Actions) -> None:
    path = act.top / "f"
    path.write_text("old")
    os.chown(path, NOBODY, NOBODY)

    act("replace_text", path="f", oldText="old", newText="new")

    assert (path.read_text(), path.stat().st_uid) == ("new", NOBODY)


@proves("sandbox.atomic-writes")
def test_a_link_stays_and_its_target_is_replaced(act: Actions) -> None:
    (act.top / "target").write_text("old")
    (act.top / "link").symlink_to("target")

    act("write_text", path="link", content="new")

    assert (act.top / "link").is_symlink()
    assert (act.top / "target").read_text() == "new"


@proves("sandbox.atomic-writes")
def test_a_file_system_without_unnamed_files_is_written_too(act: Actions) -> None:
    (act.top / "f").write_text("old")

    with patch("os.link", side_effect=OSError(95, "not supported")):
        act("write_text", path="f", content="new")

    assert (act.top / "f").read_text() == "new"
    assert names_in(act.top) == ["f"]


_WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from fidelio.sandbox.inside.tree import PlainTree
from fidelio.sandbox.inside.files import ACTIONS
tree, number = PlainTree(sys.argv[2]), 0
while True:
    number += 1
    ACTIONS["write_text"](tree, {"path": "f", "content": f"{number}\\n" * 50_000})
    print(number, flush=True)
"""


@proves("sandbox.atomic-writes")
@pytest.mark.parametrize("writes", [1, 2, 3, 5, 8, 13])
def test_a_kill_during_a_write_leaves_the_old_content_or_the_new(tmp_path: Path, writes: int) -> None:
    source = Path(__file__).resolve().parents[3] / "src"
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(source), str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        lines_read = [writer.stdout.readline() for _ in range(writes)]
        writer.send_signal(signal.SIGKILL)

    assert all(lines_read)
    lines = (tmp_path / "f").read_text().splitlines()
    assert len(lines) == 50_000
    assert len(set(lines)) == 1
    assert int(lines[0]) >= writes


@proves("sandbox.literal-edits")
def test_an_edit_is_literal_and_leaves_all_other_bytes(act: Actions) -> None:
    (act.top / "f").write_bytes(b"caf\xe9 $1 a\r\n")

    output = act("replace_text", path="f", oldText="$1", newText="\\1 $& $$")

    assert (act.top / "f").read_bytes() == b"caf\xe9 \\1 $& $$ a\r\n"
    assert (output["occurrences"], output["replacements"]) == (1, 1)


@proves("sandbox.literal-edits")
def test_an_ambiguous_or_missing_text_is_refused_and_nothing_changes(act: Actions) -> None:
    (act.top / "f").write_bytes(b"a b a\r\nc\r\n")

    ambiguous = act.fail("replace_text", path="f", oldText="a", newText="x")
    assert ambiguous.code == "ambiguous_text"
    assert "2 times" in ambiguous.message
    assert act.fail("replace_text", path="f", oldText="z", newText="x").code == "text_not_found"
    assert "CRLF" in act.fail("replace_text", path="f", oldText="a\nc", newText="x").message
    assert "white space" in act.fail("replace_text", path="f", oldText="a  b", newText="x").message
    assert act.fail("replace_text", path="f", oldText="", newText="x").code == "invalid_arguments"
    assert act.fail("replace_text", path="f", oldText="a", newText="a").code == "invalid_arguments"
    assert (act.top / "f").read_bytes() == b"a b a\r\nc\r\n"
    assert act("replace_text", path="f", oldText="a", newText="x", replaceAll=True)["replacements"] == 2
    assert (act.top / "f").read_bytes() == b"x b x\r\nc\r\n"


@proves("sandbox.literal-edits")
def test_an_edit_does_not_undo_a_change_that_happened_meanwhile(act: Actions) -> None:
    (act.top / "f").write_text("a")
    rename = os.link

    def change_first(*arguments: object, **options: object) -> None:
        (act.top / "f").write_text("changed by a command")
        rename(*arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    with patch("os.link", change_first):
        failure = act.fail("replace_text", path="f", oldText="a", newText="b")

    assert (failure.code, failure.retryable) == ("changed", True)
    assert (act.top / "f").read_text() == "changed by a command"
    assert names_in(act.top) == ["f"]


@proves("sandbox.atomic-writes")
def test_text_is_appended_and_the_file_created(act: Actions) -> None:
    assert act("append_text", path="d/log", content="a\n")["created"]
    assert act("append_text", path="d/log", content="b\n")["size"] == 4
    assert (act.top / "d/log").read_text() == "a\nb\n"


@proves("sandbox.no-half-writes")
@pytest.mark.parametrize("action", ["write_text", "append_text"])
def test_a_full_disk_changes_nothing_and_says_so(act: Actions, action: str) -> None:
    (act.top / "f").write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        failure = act.fail(action, path="f", content="x" * 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert failure.code == "no_space"
    assert (act.top / "f").read_text() == "old"
    assert names_in(act.top) == ["f"]


@proves("sandbox.named-failures")
def test_what_cannot_be_written_says_why(act: Actions) -> None:
    (act.top / "dir").mkdir()
    (act.top / "f").write_text("old")

    assert act.fail("write_text", path="dir", content="x").code == "is_directory"
    assert act.fail("write_text", path="f/", content="x").code == "is_directory"
    assert act.fail("write_text", path="f/x", content="x").code == "not_a_directory"
    assert act.fail("write_text", path="f", content="\ud800").code == "invalid_arguments"
    assert act.fail("mkdir", path="f").code == "not_a_directory"
    assert act.fail("mkdir", path="x/y", recursive=False).code == "not_found"
    assert act("mkdir", path="x/y")["created"]
    assert not act("mkdir", path="x/y")["created"]


@proves("sandbox.named-failures")
def test_a_read_only_mount_is_named(tmp_path: Path) -> None:
    for name in ("workspace", "agent"):
        (tmp_path / name).mkdir()
    (tmp_path / "agent/A.md").write_text("a")
    table = [("/workspace", tmp_path / "workspace", True), ("/workspace/agent", tmp_path / "agent", False)]
    opened = [(path, os.open(source, os.O_PATH), can) for path, source, can in table]
    act = Actions(BeneathTree(opened), tmp_path / "workspace")

    for action, more in (("write_text", {"content": "x"}), ("append_text", {"content": "x"}), ("remove", {})):
        failure = act.fail(action, path="agent/A.md", **more)
        assert failure.code == "read_only"
        assert "/workspace/agent." in failure.message
    assert act.fail("write_text", path="/etc/x", content="x").code == "read_only"
    assert act.fail("remove", path="agent", recursive=True).code == "permission_denied"
    for _, descriptor, _ in opened:
        os.close(descriptor)


@proves("sandbox.host-actions")
def test_the_host_writes_bytes_under_a_precondition(act: Actions) -> None:
    data = base64.b64encode(b"\0\xff").decode()

    created = act("write_bytes", path="f", data=data, expectDigest="")
    assert (created["created"], created["digest"]) == (True, hashlib.sha256(b"\0\xff").hexdigest())
    assert act.fail("write_bytes", path="f", data=data, expectDigest="").code == "digest_mismatch"
    act("write_bytes", path="f", data=data, expectDigest=created["digest"], append=True)
    assert (act.top / "f").read_bytes() == b"\0\xff\0\xff"
    assert act.fail("write_bytes", path="f", data="!").code == "invalid_arguments"


@proves("sandbox.host-actions")
def test_removing_takes_a_link_itself_and_directories_only_when_told(act: Actions) -> None:
    (act.top / "d/e").mkdir(parents=True)
    (act.top / "d/e/f").write_text("x")
    (act.top / "keep").mkdir()
    (act.top / "keep/f").write_text("x")
    (act.top / "d/link").symlink_to("../keep")

    assert act.fail("remove", path="d").code == "not_empty"
    assert act("remove", path="d/", recursive=True)["removed"] == 4
    assert names_in(act.top) == ["keep"]
    assert (act.top / "keep/f").exists()
