from __future__ import annotations

import json

import pytest

from tests.support import proves
from tests.surfaces.runtime.conftest import RunFidelio


@proves("runtime.budget-change")
def test_the_limits_of_a_session_are_changed_by_command_and_shown(fidelio: RunFidelio) -> None:
    sent = json.loads(fidelio("runtime", "send", "default", "Hi", "--model", "scripted:demo", "--json").stdout)
    session = sent["sessionId"]

    changed = fidelio("runtime", "budget", session, "--tokens", "2000000", "--wakes-per-day", "3")
    refused = fidelio("runtime", "budget", session)

    assert changed.returncode == 0, changed.stderr
    assert "of 2,000,000 tokens" in changed.stdout
    budget = json.loads(fidelio("runtime", "status", session, "--json").stdout)["budget"]
    assert (budget["tokens"], budget["wakes_per_day"]) == (2_000_000, 3)
    assert refused.returncode != 0
    assert "No limit was named." in refused.stderr


@proves("navigation.widened")
def test_who_may_read_a_log_is_widened_listed_and_taken_back_by_command(fidelio: RunFidelio) -> None:
    session = json.loads(fidelio("runtime", "send", "default", "Hi", "--model", "scripted:demo", "--json").stdout)["sessionId"]

    widened = fidelio("runtime", "readers", session, "--network", "limited")
    of_all = fidelio("runtime", "readers", "--agent", "default", "--network", "host", "--json")
    listed = json.loads(fidelio("runtime", "readers", "--json").stdout)["items"]
    status = fidelio("runtime", "status", session).stdout
    back = [fidelio("runtime", "readers", *named, "--undo") for named in ((session,), ("--agent", "default"))]

    assert f"The log of session {session} may be read" in widened.stdout, widened.stderr
    assert json.loads(of_all.stdout) == {"agent": "default", "session": "", "readers": "host"}
    assert [(each["session"], each["readers"]) for each in listed] == [("", "host"), (session, "limited")]
    assert "its log is read by sessions with a network up to limited" in status
    assert all("only by sessions of the agent" in each.stdout for each in back)
    assert "Nothing is widened" in fidelio("runtime", "readers").stdout


@proves("navigation.widened")
def test_an_agent_cannot_widen_who_reads_a_log(fidelio: RunFidelio) -> None:
    session = json.loads(fidelio("runtime", "send", "default", "Hi", "--model", "scripted:demo", "--json").stdout)["sessionId"]

    for named in ((session,), ("--agent", "default")):
        for agent in ({"FIDELIO_AGENT": "s_000000000001.1"}, {"FIDELIO_AGENT": "forged"}):
            refused = fidelio("runtime", "readers", *named, "--network", "host", **agent)
            assert refused.returncode != 0, agent

    assert json.loads(fidelio("runtime", "readers", "--json").stdout) == {"items": [], "next": None}


@proves("navigation.widened")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--network", "host"],
        ["--undo"],
        ["s_1", "--agent", "default", "--undo"],
        ["--agent", "default"],
        ["--agent", "default", "--undo", "--network", "host"],
        ["--agent", "default", "--network", "none"],
    ],
)
def test_unclear_readers_are_refused(fidelio: RunFidelio, arguments: list[str]) -> None:
    assert fidelio("runtime", "readers", *arguments).returncode == 2
