"""Who makes a call: every sign of an agent counts, and none that is malformed makes a person of it."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fidelio.processes.caller import (
    PERSON,
    UNKNOWN_AGENT,
    UNSEEN,
    WORKER,
    Caller,
    ProcessSigns,
    combine_callers,
    decide_caller,
    identify_process,
    is_below,
    read_claim,
)
from fidelio.processes.peer import identify_peer
from fidelio.processes.table import NEUTRAL_MARK, compute_mark, find_identity, neutralize_mark, put_mark, read_mark
from tests.support import proves

RUN, OTHER = "s_000000000001.3", "s_000000000002.1"
MARK, OTHER_MARK = compute_mark(RUN), compute_mark(OTHER)
AGENT = Caller("agent", RUN)
claims = st.sampled_from([None, RUN, OTHER, "", "garbage", "s_000000000001", "s_000000000001.x"])
marks = st.sampled_from([None, MARK, OTHER_MARK, NEUTRAL_MARK])
all_signs = st.lists(st.builds(ProcessSigns, claims, marks), max_size=4)


@proves("processes.caller")
@pytest.mark.parametrize(
    ("signs", "caller"),
    [
        ([], PERSON),
        ([(None, None), (None, None)], PERSON),
        ([(RUN, None)], AGENT),
        ([(None, None), (RUN, None)], AGENT),
        ([(None, MARK), (RUN, MARK)], AGENT),
        # Below a host that an agent has started, which belongs to no run.
        ([(RUN, MARK), (None, NEUTRAL_MARK), (OTHER, OTHER_MARK)], AGENT),
        ([(RUN, NEUTRAL_MARK), (None, NEUTRAL_MARK), (OTHER, OTHER_MARK)], AGENT),
        # Nothing names the run.
        ([(None, MARK)], UNKNOWN_AGENT),
        ([(None, NEUTRAL_MARK)], UNKNOWN_AGENT),
        # Malformed or contradictory.
        ([("garbage", None)], UNKNOWN_AGENT),
        ([("", None)], UNKNOWN_AGENT),
        ([("garbage", MARK), (RUN, MARK)], UNKNOWN_AGENT),
        ([(OTHER, MARK), (RUN, MARK)], UNKNOWN_AGENT),
        ([(OTHER, OTHER_MARK), (RUN, MARK)], UNKNOWN_AGENT),
        ([(OTHER, MARK)], UNKNOWN_AGENT),
    ],
)
def test_the_signs_of_a_process_and_its_ancestors_decide(signs: list[tuple[str | None, int | None]], caller: Caller) -> None:
    assert decide_caller(ProcessSigns(*sign) for sign in signs) == caller


@proves("processes.caller")
@given(all_signs)
def test_one_sign_is_enough_and_no_other_takes_it_away(signs: list[ProcessSigns]) -> None:
    has_sign = any(sign != ProcessSigns() for sign in signs)

    assert decide_caller(signs).is_agent == has_sign


@proves("processes.caller")
@given(st.lists(st.sampled_from([PERSON, UNSEEN, WORKER, UNKNOWN_AGENT, AGENT, Caller("agent", OTHER)]), max_size=4))
def test_a_caller_is_a_person_only_if_every_source_says_so(callers: list[Caller]) -> None:
    combined = combine_callers(*callers)

    assert combined.is_agent == any(caller.is_agent for caller in callers)
    assert (combined == PERSON) == all(caller == PERSON for caller in callers)
    assert combined == combine_callers(*reversed(callers))


@proves("processes.caller")
@pytest.mark.parametrize(
    "claim", ["", "x", "s_000000000001", "s_000000000001.", "s_000000000001.0", "s_000000000001.²", f"{RUN}\n"]
)
def test_a_malformed_claim_is_an_agent_of_unknown_run(claim: str) -> None:
    assert read_claim(claim) == UNKNOWN_AGENT


@proves("processes.caller")
@pytest.mark.parametrize(("value", "caller"), [(RUN, AGENT), ("garbage", UNKNOWN_AGENT), ("", UNKNOWN_AGENT)])
def test_the_environment_of_this_process_counts(monkeypatch: pytest.MonkeyPatch, value: str, caller: Caller) -> None:
    assert identify_process() == PERSON

    monkeypatch.setenv("FIDELIO_AGENT", value)

    assert identify_process() == (replace(caller, processes=(os.getpid(),)) if caller.run else caller)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], env={}) as process:
        yield process
        process.kill()


@proves("processes.mark-kept")
def test_a_mark_can_be_changed_but_not_lost(sleeper: subprocess.Popen[bytes]) -> None:
    put_mark(sleeper.pid, RUN)

    assert resource.prlimit(sleeper.pid, resource.RLIMIT_RTTIME) == (MARK, NEUTRAL_MARK)
    put_mark(sleeper.pid, OTHER)
    assert read_mark(sleeper.pid) == OTHER_MARK


@proves("processes.mark-kept")
@pytest.mark.parametrize("soft", [0, 200_000, NEUTRAL_MARK])
def test_a_soft_limit_outside_the_range_is_still_a_sign(sleeper: subprocess.Popen[bytes], soft: int) -> None:
    put_mark(sleeper.pid, RUN)

    resource.prlimit(sleeper.pid, resource.RLIMIT_RTTIME, (soft, NEUTRAL_MARK))

    assert decide_caller([ProcessSigns(None, read_mark(sleeper.pid))]) == UNKNOWN_AGENT


@proves("processes.mark-kept")
def test_a_host_below_an_agent_has_a_mark_of_no_run(sleeper: subprocess.Popen[bytes]) -> None:
    neutralize_mark(sleeper.pid)
    assert read_mark(sleeper.pid) is None

    put_mark(sleeper.pid, RUN)
    neutralize_mark(sleeper.pid)

    assert read_mark(sleeper.pid) == NEUTRAL_MARK
    assert compute_mark(RUN) != NEUTRAL_MARK


CONNECT = (
    "import ctypes, socket, sys\n"
    "if sys.argv[3:]:\n"
    "    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"  # PR_SET_DUMPABLE: its files belong to root from now on
    "with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:\n"
    "    print(flush=True)\n"
    "    sys.stdin.read()\n"
)
PLAIN_USER = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@contextmanager
def connected(host: str, environ: dict[str, str], *words: str) -> Iterator[tuple[Any, Any]]:
    """A process with a connection to this one: the addresses of its two ends."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        argv = [sys.executable, "-c", CONNECT, host, str(port), *words]
        with subprocess.Popen(argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            client.stdout.readline()
            connection, peer = server.accept()
            with connection:
                yield peer[:2], (host, port)
            client.communicate(timeout=30)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize(
    ("environ", "caller"), [({"FIDELIO_AGENT": RUN}, AGENT), ({"FIDELIO_AGENT": "x"}, UNKNOWN_AGENT), ({}, PERSON)]
)
@proves("processes.peer")
def test_the_process_at_the_other_end_of_a_connection_counts(host: str, environ: dict[str, str], caller: Caller) -> None:
    with connected(host, environ) as (peer, server):
        found = identify_peer(peer, server)

    assert replace(found, processes=()) == caller
    assert len(found.processes) == 1


@proves("processes.peer")
def test_a_process_cannot_hide_behind_another_address_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    # A machine without a network has no other address, so that of loopback stands for it.
    monkeypatch.setattr("ipaddress.IPv4Address.is_loopback", property(lambda _: False))
    with connected("127.0.0.1", {"FIDELIO_AGENT": RUN}) as (peer, server):
        found = identify_peer(peer, server)

    assert (found.kind, found.run) == ("agent", RUN)
    assert identify_peer(peer, server) == UNKNOWN_AGENT


@proves("processes.peer")
def test_a_process_that_hides_its_files_is_not_taken_for_a_person() -> None:
    with connected("127.0.0.1", {}, "hide") as (peer, server):
        # Root without its capabilities, as other users, cannot look at the process.
        program = f"from fidelio.processes.peer import identify_peer; print(identify_peer({peer}, {server}))"
        before = PLAIN_USER if os.geteuid() == 0 else ()
        argv = [*before, sys.executable, "-c", program]
        seen = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    assert seen == str(UNKNOWN_AGENT)


@proves("processes.peer")
def test_a_process_that_has_closed_its_end_is_not_taken_for_a_person() -> None:
    with connected("127.0.0.1", {}) as (peer, server):
        pass

    assert identify_peer(peer, server) == UNKNOWN_AGENT


@proves("processes.peer")
def test_without_a_table_of_connections_a_peer_is_unseen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fidelio.processes.peer._TABLES", (tmp_path / "none",))

    assert identify_peer(("127.0.0.1", 5000), ("127.0.0.1", 7333)) == UNSEEN


@proves("processes.peer")
@pytest.mark.parametrize("peer", [None, ("203.0.113.1", 5000), ("2001:db8::1", 5000), ("testclient", 50000)])
def test_a_peer_elsewhere_is_not_taken_for_a_person(peer: tuple[str, int] | None) -> None:
    assert identify_peer(peer, ("127.0.0.1", 7333)) == UNSEEN


@proves("processes.caller")
def test_a_process_below_a_marked_one_is_an_agent_with_a_cleared_environment() -> None:
    program = (
        "import os, resource, subprocess, sys\n"
        f"resource.setrlimit(resource.RLIMIT_RTTIME, ({MARK}, {NEUTRAL_MARK}))\n"
        "print(subprocess.run([sys.executable, '-c', sys.argv[1]], env={}, capture_output=True, text=True).stdout)\n"
    )
    inner = "from fidelio.processes.caller import identify_process; found = identify_process(); print(found.kind, found.run)"

    def run(**environ: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, inner],
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.strip()

    assert run() == "unknown"
    assert run(FIDELIO_AGENT=RUN) == f"agent {RUN}"


@proves("processes.caller")
def test_a_process_is_below_the_leader_of_a_run_while_it_lives() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as other:
        own, stranger = find_identity(os.getpid()), find_identity(other.pid)
        assert own is not None
        assert stranger is not None
        below = [is_below(other.pid, own), is_below(other.pid, stranger), is_below(os.getpid(), stranger)]
        ended = is_below(other.pid, replace(own, started="another"))
        other.communicate(b"\n")

    assert below == [True, True, False]
    assert not ended
    assert not is_below(os.getpid(), stranger)
