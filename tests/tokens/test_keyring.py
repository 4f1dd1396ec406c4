"""What the key ring promises."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fidelio.errors import BadToken, KeyRingProblem
from fidelio.tokens.keyring import FileKeys, open_keys
from fidelio.tokens.seal import Seal
from tests.support import proves

MAKE_A_TOKEN = """
import sys
from pathlib import Path
from fidelio.tokens.keyring import FileKeys
from fidelio.tokens.seal import Seal
sys.stdin.readline()
print(Seal(FileKeys(Path(sys.argv[1])), "session").seal({"sid": "x"}))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@proves("tokens.key-file")
def test_the_key_file_belongs_to_its_owner_alone(file: Path) -> None:
    FileKeys(file).active()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["keys.json"]


@proves("tokens.key-file")
def test_nothing_is_written_before_a_key_is_needed(file: Path) -> None:
    FileKeys(file)

    assert not file.exists()


@proves("tokens.key-file", "tokens.genuine")
def test_processes_that_start_together_seal_with_the_same_key(file: Path) -> None:
    command = [sys.executable, "-c", MAKE_A_TOKEN, str(file)]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    tokens = [process.communicate("\n", timeout=60)[0].strip() for process in started]

    seal = Seal(FileKeys(file), "session")

    assert [seal.open(token, now=0) for token in tokens] == [{"sid": "x"}] * 6


@proves("tokens.rotation")
def test_old_tokens_open_after_a_rotation_and_new_ones_use_the_new_key(file: Path) -> None:
    keys = FileKeys(file)
    seal = Seal(keys, "session")
    before = seal.seal({"n": 1})

    key = keys.rotate()

    assert seal.open(before, now=0) == {"n": 1}
    assert seal.seal({"n": 2}).split(".")[1] == key.kid != before.split(".")[1]


@proves("tokens.rotation")
def test_a_running_process_accepts_tokens_of_a_key_that_another_one_added(file: Path) -> None:
    running = Seal(FileKeys(file), "session")
    running.seal({})
    other = FileKeys(file)
    other.rotate()

    assert running.open(Seal(other, "session").seal({"n": 3}), now=0) == {"n": 3}


@proves("tokens.rotation")
def test_two_rotations_keep_every_key(file: Path) -> None:
    one, two = FileKeys(file), FileKeys(file)
    kids = {one.active().kid, one.rotate().kid, two.rotate().kid}

    assert set(json.loads(file.read_text())["keys"]) == kids


@proves("tokens.key-file-damaged")
@pytest.mark.parametrize(
    "content",
    [
        "",
        "not json",
        "[]",
        '{"version": 2}',
        '{"version": 1, "active": "nobody", "keys": {}}',
        '{"version": 1, "active": "000000", "keys": {"000000": {"secret": "c2hvcnQ="}}}',
        '{"version": 1, "active": "000000", "keys": {"000000": {"secret": 7}}}',
        '{"version": 1, "active": "000000", "keys": {"000000": null}}',
    ],
)
def test_a_damaged_key_file_is_named_and_never_replaced(file: Path, content: str) -> None:
    file.write_text(content)
    file.chmod(0o600)

    with pytest.raises(KeyRingProblem, match=r"damaged\. Restore it from a backup"):
        FileKeys(file).active()
    assert file.read_text() == content


@proves("tokens.key-file-damaged")
def test_a_key_file_that_others_can_read_is_refused(file: Path) -> None:
    FileKeys(file).active()
    file.chmod(0o644)

    with pytest.raises(KeyRingProblem, match=r"chmod 600"):
        FileKeys(file).active()


@proves("tokens.key-file-damaged")
def test_a_directory_that_cannot_hold_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(KeyRingProblem, match=r"cannot be written: Not a directory"):
        FileKeys(tmp_path / "file" / "keys.json").active()


@proves("tokens.environment-key")
def test_a_key_from_the_environment_needs_no_file(file: Path) -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    token = Seal(open_keys(file, environ={"FIDELIO_KEY": key}), "session").seal({"n": 1})

    again = open_keys(file, environ={"FIDELIO_KEY": key})

    assert Seal(again, "session").open(token, now=0) == {"n": 1}
    assert not file.exists()


@proves("tokens.environment-key", "tokens.rotation")
def test_later_keys_of_the_environment_still_check(file: Path) -> None:
    old, new = (base64.urlsafe_b64encode(os.urandom(32)).decode() for _ in range(2))
    token = Seal(open_keys(file, environ={"FIDELIO_KEY": old}), "session").seal({})

    both = Seal(open_keys(file, environ={"FIDELIO_KEY": f"{new},{old}"}), "session")

    assert both.open(token, now=0) == {}
    with pytest.raises(BadToken):
        Seal(open_keys(file, environ={"FIDELIO_KEY": new}), "session").open(token, now=0)


@proves("tokens.environment-key")
@pytest.mark.parametrize("value", ["short", "not base64!", base64.b64encode(b"x" * 31).decode(), "é"])
def test_a_bad_key_in_the_environment_is_refused_with_the_way_to_make_one(file: Path, value: str) -> None:
    with pytest.raises(KeyRingProblem, match=r"head -c 32 /dev/urandom"):
        open_keys(file, environ={"FIDELIO_KEY": value})


@proves("tokens.key-file-damaged")
def test_a_key_file_that_cannot_be_looked_for_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyRingProblem, match=r"cannot be read: File name too long"):
        FileKeys(tmp_path / ("x" * 300) / "keys.json").active()


@proves("tokens.rotation")
def test_a_rotation_that_cannot_be_written_is_named_and_changes_nothing(file: Path) -> None:
    keys = FileKeys(file)
    before = keys.active()
    # A directory in the place of the lock stops everybody, also who may write anywhere.
    (file.parent / ".keys.json.lock").mkdir()

    with pytest.raises(KeyRingProblem, match=r"cannot be written"):
        keys.rotate()
    assert FileKeys(file).active() == before
