"""A damaged ledger gives an error with a name and a remedy in every command, whatever bytes have changed."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.write_fixtures import FIXTURES
from tests.support import proves
from tests.surfaces.conftest import Fidelio

COMMANDS = (
    ("sessions",),
    ("events", "{session}", "--json"),
    ("trace", "{session}"),
    ("report", "{session}"),
    ("report", "{session}", "--json"),
    ("verify", "--all"),
    ("verify", "{session}", "--json"),
    ("inbox", "--all"),
    ("search", "tone"),
    ("answer", "{request}", "short"),
)


def flip_bits(data: bytearray, chance: random.Random) -> None:
    """Flip bits near the ids of sessions and requests, where the rows of all tables are, or anywhere."""
    ids = [found.start() for found in re.finditer(rb"[sr]_[0-9a-z]{12}", data)]
    near = chance.random() < 0.6
    for _ in range(chance.choice([1, 5, 40])):
        place = chance.choice(ids) + chance.randrange(-40, 160) if near else chance.randrange(len(data))
        data[max(0, min(place, len(data) - 1))] ^= 1 << chance.randrange(8)


def damage_header(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 6])):
        data[chance.randrange(100)] ^= 1 << chance.randrange(8)


def truncate(data: bytearray, chance: random.Random) -> None:
    del data[chance.choice([0, 1, 600, 4096, len(data) // 2, len(data) - 1]) :]


def replace_whole(data: bytearray, _chance: random.Random) -> None:
    data[:] = b"#!/bin/sh\n" + b"echo not a database\n" * 300


def replace_pages(data: bytearray, chance: random.Random) -> None:
    for _ in range(3):
        page = chance.randrange(1, len(data) // 4096) * 4096
        data[page : page + 4096] = chance.randbytes(4096)


DAMAGES: dict[str, Callable[[bytearray, random.Random], None]] = {
    **{f"bits-{seed}": flip_bits for seed in range(12)},
    **{f"header-{seed}": damage_header for seed in range(2)},
    **{f"cut-{seed}": truncate for seed in range(4)},
    **{f"pages-{seed}": replace_pages for seed in range(2)},
    "other": replace_whole,
}


@pytest.fixture
def damaged_home(home: Path) -> Path:
    shutil.copytree(FIXTURES / "0.1.0" / "home", home)
    for place in (home, *home.rglob("*")):
        place.chmod(0o700 if place.is_dir() else 0o600)
    return home


@proves("cli.damaged-ledger")
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_command_names_what_is_wrong(fidelio: Fidelio, damaged_home: Path, damage: str) -> None:
    _check_commands(fidelio, damaged_home, damage, DAMAGES[damage])


@proves("cli.damaged-ledger")
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_no_flipped_bit_surprises_a_command(fidelio: Fidelio, damaged_home: Path, seed: int) -> None:
    _check_commands(fidelio, damaged_home, f"soak-{seed}", flip_bits)


def _check_commands(fidelio: Fidelio, home: Path, seed: str, change: Callable[[bytearray, random.Random], None]) -> None:
    chance, file = random.Random(seed), home / "ledger.db"
    data = bytearray(file.read_bytes())
    names = {kind: sorted(set(re.findall(rb"\b" + kind + rb"_[0-9a-z]{12}", data))) for kind in (b"s", b"r")}
    change(data, chance)
    for command in COMMANDS:
        # Every command meets the damage itself, not what the one before has written.
        file.write_bytes(data)
        for rest in home.glob("ledger.db-*"):
            rest.unlink()
        values = {"session": chance.choice(names[b"s"]).decode(), "request": chance.choice(names[b"r"]).decode()}
        done = fidelio(*(word.format(**values) for word in command))
        assert done.returncode in (0, 1, 2, 3, 4, 5), (command, done.stderr)
        assert "Traceback" not in done.stderr
        assert "Unexpected" not in done.stderr
        assert done.returncode == 0 or done.stderr.strip() or done.stdout.strip()


@proves("cli.damaged-ledger")
def test_the_error_says_what_to_do(fidelio: Fidelio, damaged_home: Path) -> None:
    data = bytearray((damaged_home / "ledger.db").read_bytes())
    data[4096 : 4096 * 20] = random.Random(1).randbytes(4096 * 19)
    (damaged_home / "ledger.db").write_bytes(data)

    done = fidelio("sessions")

    assert done.returncode == 5
    assert "is damaged" in done.stderr
    assert "verify --all" in done.stderr
    assert "restore it from a backup" in done.stderr
    assert "events SESSION --json" in done.stderr
