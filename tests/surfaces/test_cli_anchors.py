"""`fidelio anchor`, `fidelio verify --anchor` and `fidelio up --anchor-every`."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from fidelio.processes.table import AGENT_MARKER
from tests.anchors.conftest import cut, remove, rewrite
from tests.support import proves
from tests.surfaces.conftest import Fidelio
from tests.surfaces.test_demo import line_with, up


@pytest.fixture
def session(fidelio: Fidelio) -> str:
    """The id of a recorded session."""
    return str(json.loads(fidelio("tour", "--json").stdout)["session"]["id"])


# Another content of a call from which the same record follows: only an anchor shows that it was changed.
FORGED = '{"forged":true,"aid":"tour","agent_number":1}'


@proves("anchors.command")
def test_an_anchor_is_written_and_agrees_with_the_ledger(fidelio: Fidelio, session: str, tmp_path: Path) -> None:
    created = fidelio("anchor", "first.json")
    second = json.loads(fidelio("anchor", "second.json", "--json").stdout)
    key = fidelio("anchor", "--fingerprint").stdout.strip()
    fidelio("tour", "--json")
    plain = fidelio("verify", "--anchor", "first.json", "--anchor", "second.json")
    pinned = fidelio("verify", session, "--anchor", "second.json", "--key", key, "--json")
    (verdict,) = json.loads(pinned.stdout)["anchors"]

    assert created.stdout.startswith(f"Anchor 1 of 1 sessions: {tmp_path / 'first.json'}\n  signed by the key {key}\n")
    assert (second["number"], second["sessions"], second["fingerprint"], second["time_stamped"]) == (2, 1, key, False)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "2 of 2 sessions hold." in plain.stdout
    assert plain.stdout.count(f"agrees with the ledger: 1 sessions, signed by a key of this home {key}.") == 2
    assert plain.stdout.count("Whoever can write to this home") == 1
    assert (pinned.returncode, verdict["holds"], verdict["signer"], verdict["findings"]) == (0, True, "pinned", [])


@proves("anchors.command", "anchors.proof")
@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (lambda path, session: rewrite(path, session, 2, FORGED), "was rewritten: the hash of its event 6"),
        (lambda path, session: cut(path, session, 3), "lacks event 6, which was signed"),
        (remove, "is missing; it had 6 events"),
    ],
)
def test_what_the_owner_of_the_database_changed_is_named(
    fidelio: Fidelio, home: Path, session: str, attack: object, words: str
) -> None:
    fidelio("anchor", "anchor.json")
    assert callable(attack)
    attack(home / "ledger.db", session)
    without, compared = fidelio("verify", "--all"), fidelio("verify", "--anchor", "anchor.json")
    as_json = fidelio("verify", "--anchor", "anchor.json", "--json")

    assert without.returncode == 0
    assert compared.returncode == 3
    assert f"session {session} {words}" in compared.stderr
    assert "agrees with the ledger" not in compared.stdout
    assert (as_json.returncode, json.loads(as_json.stdout)["holds"]) == (3, False)


@proves("chain.covers-projections")
def test_without_an_anchor_a_cut_is_found_if_the_record_is_left_as_it_was(fidelio: Fidelio, home: Path, session: str) -> None:
    cut(home / "ledger.db", session, 3, carefully=False)
    verified = fidelio("verify", "--all")

    assert verified.returncode == 3
    assert "its record is that of event 6, which does not exist" in verified.stderr


@proves("anchors.command", "anchors.unknown-key")
def test_an_unknown_key_is_reported_and_is_no_proof(fidelio: Fidelio, session: str, tmp_path: Path) -> None:
    fidelio("anchor", "theirs.json", FIDELIO_HOME=str(tmp_path / "other home"))
    unknown = fidelio("verify", "--anchor", "theirs.json")
    pinned = fidelio("verify", "--anchor", "theirs.json", "--key", "0" * 64)

    assert (unknown.returncode, pinned.returncode) == (3, 3)
    assert "proves nothing: it is signed by the unknown key" in unknown.stderr
    assert "agrees" not in unknown.stdout + pinned.stdout


@proves("anchors.command", "anchors.keys")
def test_a_person_rotates_the_key_and_an_agent_cannot(fidelio: Fidelio, session: str) -> None:
    old = fidelio("anchor", "--fingerprint").stdout.strip()
    refused = fidelio("anchor", "--rotate-key", **{AGENT_MARKER: "s_000000000000.1"})
    unchanged = fidelio("anchor", "--fingerprint").stdout.strip()
    new = json.loads(fidelio("anchor", "--rotate-key", "--json").stdout)

    assert refused.returncode == 2
    assert unchanged == old
    assert (new["rotated"], new["fingerprint"] != old) == (True, True)


@proves("anchors.command")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["anchor"], "anchor needs a target, --fingerprint or --rotate-key"),
        (["anchor", "a.json", "--fingerprint"], "and only one of them"),
        (["anchor", "git:heads/main"], "names no git tag or note"),
        (["anchor", "a.json", "--tsa", "file:///etc/passwd"], "is not the address of a time-stamping server"),
        (["verify", "--all", "--key", "0" * 64], "--key and --tsa-ca belong to --anchor"),
        (["verify", "--anchor", "x", "--key", "abc"], "neither a fingerprint"),
        (["up", "--anchor-every", "1h"], "--anchor-every and --anchor-to belong together"),
        (["up", "--anchor-to", "x"], "--anchor-every and --anchor-to belong together"),
        (["up", "--anchor-every", "soon", "--anchor-to", "x"], "is no interval for anchors"),
        (["up", "--port", "0", "--anchor-every", "1h", "--anchor-to", "git:x"], "names no git tag or note"),
    ],
)
def test_wrong_options_are_refused_with_a_remedy(fidelio: Fidelio, home: Path, arguments: list[str], words: str) -> None:
    home.mkdir(mode=0o700)
    refused = fidelio(*arguments)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert words in refused.stderr


@proves("anchors.schedule")
async def test_a_server_writes_anchors_and_one_that_cannot_does_not_start(
    environ: dict[str, str], fidelio: Fidelio, session: str, tmp_path: Path
) -> None:
    directory = tmp_path / "anchors"
    directory.mkdir()
    refused = fidelio("up", "--port", "0", "--anchor-every", "1h", "--anchor-to", str(tmp_path / "missing" / "x"))
    schedule = ("--anchor-every", "10s", "--anchor-to", str(directory))
    async with up(environ, *schedule, "--demo") as (process, output):
        # The anchor is written while the server starts; the demo prints this line later.
        await line_with(output, "The agent has stopped at a question")
        process.send_signal(signal.SIGTERM)
        await process.wait()
    verified = fidelio("verify", "--anchor", str(directory))

    assert refused.returncode == 1
    assert "There is no directory" in refused.stderr
    assert (directory / "anchor-000001.json").exists()
    assert verified.returncode == 0, verified.stderr
