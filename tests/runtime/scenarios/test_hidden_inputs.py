"""Values that no event may hold, in the calls of a model: hidden on record, and still carried out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fidelio.runtime import events as e
from fidelio.runtime.secrets import open_sealed
from fidelio.runtime.tools.model import HIDDEN
from fidelio.runtime.wakes import tool_inputs
from fidelio.tokens.keyring import FixedKeys
from tests.runtime.wakes.support import Runtime, open_runtime, replies, results_of, use
from tests.support import proves

VALUE = "zebra-1f2e3d4c-umbrella"
SET = ("shell_set_env", {"key": "TOKEN", "value": VALUE})
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "by-name": SET,
    "by-tool-call": ("tool_call", {"name": SET[0], "arguments": SET[1]}),
    "planned": ("permissions_check", {"toolName": SET[0], "toolArgs": SET[1]}),
    "misspelt": ("shell_set_envv", SET[1]),
}


async def read_everything(runtime: Runtime, session: str) -> str:
    """The log of the session, and all that the model was told."""
    log = "\n".join(event.raw or "" for event in await runtime.events(session))
    return log + msgspec.json.encode(runtime.requests).decode()


@proves("runtime.hidden-input")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_secret_value_of_a_call_is_in_no_event_and_in_no_later_request(
    tmp_path: Path, call: tuple[str, dict[str, Any]]
) -> None:
    async with open_runtime(tmp_path, replies(use(call))) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Set the token.")
        await runtime.work()

        assert len(results_of(runtime.requests[-1])) == 1
        assert VALUE not in await read_everything(runtime, session)
        assert HIDDEN in await read_everything(runtime, session)


@proves("runtime.hidden-input")
@pytest.mark.parametrize("value", [VALUE, VALUE * 1_000], ids=["short", "long"])
async def test_a_hidden_value_is_set_after_a_person_has_allowed_it(tmp_path: Path, value: str) -> None:
    call = ("shell_set_env", {"key": "TOKEN", "value": value})
    async with open_runtime(tmp_path, replies(use(call))) as runtime:
        session = await runtime.begin(tools={"policies": {"shell_set_env": "always_ask"}})
        await runtime.tell(session, "Set the token.")
        await runtime.work()
        (waiting,) = (await runtime.record(session)).wakes.blocking
        await runtime.send(session, {"type": e.USER_CONFIRMATION, "tool_use_id": waiting.id, "result": "allow"})
        await runtime.work()

        assert [result.is_error for result in results_of(runtime.requests[-1])] == [False]
        assert list((await runtime.record(session)).shell.variables) == ["TOKEN"]
        assert VALUE not in await read_everything(runtime, session)


@proves("runtime.hidden-input")
async def test_a_hidden_value_without_its_key_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_runtime(tmp_path, replies(use(SET))) as runtime:
        session = await runtime.begin()
        lost = FixedKeys(b"n" * 32)
        monkeypatch.setattr(tool_inputs, "open_sealed", lambda _, *rest, original=open_sealed: original(lost, *rest))
        await runtime.tell(session, "Set the token.")
        await runtime.work()

        (result,) = results_of(runtime.requests[-1])
        assert result.is_error
        assert "key" in result.content[0].text  # type: ignore[union-attr]  # it is a text
        assert (await runtime.record(session)).shell.variables == {}
