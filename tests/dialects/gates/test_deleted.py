"""Sessions that were deleted, and sealed states that nobody can read: every tool says so, and nothing comes back to life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.tokens.keyring import open_keys
from fidelio.tokens.packed import PackedSeal
from tests.dialects.conftest import Player, playing
from tests.support import proves

Dialects = dict[str, Player]
CALLS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("sessions", "get_workflow_status", "session_token", {}),
    ("sessions", "next_activity", "session_token", {"activity_id": "tune"}),
    ("gates", "start_session", "session_token", {"workflow_id": "score"}),
    ("gates", "get_trace", "session_token", {}),
    ("gates", "respond_checkpoint", "session_token", {"checkpoint_id": "how", "option_id": "forte"}),
    ("navigator", "nav_situation", "state", {}),
    ("navigator", "nav_action", "state", {"action": "complete_step", "step_id": "hear"}),
]


@pytest.fixture
async def dialects(settings: Settings, library: Path) -> AsyncIterator[Dialects]:
    async with AsyncExitStack() as open_ones:
        names = ("sessions", "gates", "navigator")
        yield {name: await open_ones.enter_async_context(playing(settings, library, dialect=name)) for name in names}


async def begun(dialects: Dialects) -> tuple[str, str, str]:
    """The state, the session token and the short handle of one session."""
    started = await dialects["navigator"]("nav_start", workflow_id="score")
    handle = (await dialects["gates"]("get_trace", session_token=started.token)).json["traceId"]
    return started.json["state"], started.token, handle


@proves("gates.deleted")
async def test_every_tool_says_that_the_session_was_deleted(dialects: Dialects, settings: Settings) -> None:
    names = await begun(dialects)
    async with await open_ledger(settings.ledger) as ledger:
        await ledger.erase([names[2]], actor="person:test", reason="No longer needed.")
    calls = [*CALLS, ("sessions", "start_session", "session_token", {"workflow_id": "score"})]
    for name in names:
        for dialect, tool, parameter, more in calls:
            refused = await dialects[dialect](tool, **{parameter: name}, **more)
            assert refused.is_error, tool
            assert "was deleted" in refused.text
    async with await open_ledger(settings.ledger) as ledger:
        assert (await ledger.sessions()).items == ()
        assert (await ledger.session(names[2])).status == "deleted"


@proves("gates.unreadable-state")
@pytest.mark.parametrize("content", ["hello", "[]", "{}", "carried"])
async def test_a_genuine_state_with_unexpected_content_is_a_bad_token(
    dialects: Dialects, settings: Settings, content: str
) -> None:
    state, *_ = await begun(dialects)
    seal = PackedSeal(open_keys(settings.home.keys), "state")
    if content == "carried":
        claims = msgspec.json.decode(seal.open(state))
        unknown = {"sid": "s_yyyyyyyyyyyy", "carried": [{"session": "s_yyyyyyyyyyyy", "record": {"status": 5}}]}
        content = msgspec.json.encode({**claims, **unknown}).decode()
    for dialect, tool, parameter, more in CALLS:
        refused = await dialects[dialect](tool, **{parameter: seal.seal(content.encode())}, **more)
        assert refused.is_error, tool
        assert "This server cannot decode the content of this state" in refused.text
