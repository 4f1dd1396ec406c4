from __future__ import annotations

import json

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
