"""What people do in a scenario, and what is expected afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.runtime import events as e
from tests.runtime.scenarios.stage import Stage, StageAction, StageCheck, StageReply, list_texts


def tell(text: str) -> StageAction:
    """Send a message."""

    async def act(stage: Stage) -> None:
        await stage.send({"type": e.USER_MESSAGE, "content": text})

    return act


def confirm(*results: str, message: str = "") -> StageAction:
    """Answer the calls that wait, in their order."""

    async def act(stage: Stage) -> None:
        waiting = await stage.blocking()
        assert len(waiting) == len(results), waiting
        for call, result in zip(waiting, results, strict=True):
            reason = {"deny_message": message} if result == "deny" else {}
            await stage.send({"type": e.USER_CONFIRMATION, "tool_use_id": call.id, "result": result, **reason})

    return act


def define_outcome(title: str, *criteria: Mapping[str, Any] | str) -> StageAction:
    """Define an outcome as a person."""

    async def act(stage: Stage) -> None:
        await stage.send({"type": e.USER_OUTCOME, "title": title, "successCriteria": list(criteria)})

    return act


def pass_time(seconds: float) -> StageAction:
    async def act(stage: Stage) -> None:
        stage.clock.move(seconds)

    return act


def give_result(text: str) -> StageAction:
    """Send the result of the custom tool that waits."""

    async def act(stage: Stage) -> None:
        (call,) = await stage.blocking()
        await stage.send({"type": e.USER_TOOL_RESULT, "custom_tool_use_id": call.id, "content": text})

    return act


def begin_session(*script: StageReply) -> StageAction:
    """Begin another session of the agent; the scenario goes on in it."""

    async def act(stage: Stage) -> None:
        await stage.begin(script)

    return act


async def stop_sandbox(stage: Stage) -> None:
    """End the sandbox of the session, with everything that runs in it."""
    assert await stage.context.sandboxes.stop(stage.session)


async def change_process(stage: Stage) -> None:
    """Go on in what is another process for the runtime: nothing but the ledger and the files is the same."""
    await stage.open()


async def update_index(stage: Stage) -> None:
    """Let the search know what was stored so far; it follows the ledger at a distance."""
    await stage.context.ledger.update_index()


def says(text: str) -> StageCheck:
    """The last message of the agent is exactly this."""

    async def check(stage: Stage) -> None:
        assert (await stage.messages())[-1] == text

    return check


def tells_model(text: str) -> StageCheck:
    """The last request of the session has the text on the side of the user."""

    async def check(stage: Stage) -> None:
        assert text in list_texts(stage.own_requests[-1])

    return check


def returns(number: int, tool: str, **fields: Any) -> StageCheck:
    """Call `number` of the session is one of this tool, and its result has these fields."""

    async def check(stage: Stage) -> None:
        made = (await stage.calls())[number]
        assert (made.name, made.is_error) == (tool, False), made
        assert {name: made.output.get(name) for name in fields} == fields

    return check


def refuses(number: int, tool: str, code: str, words: str = "") -> StageCheck:
    """Call `number` is refused with this code, and the model reads these words."""

    async def check(stage: Stage) -> None:
        made = (await stage.calls())[number]
        assert (made.name, made.is_error) == (tool, True), made
        assert made.output["error"]["code"] == code, made.output
        assert words in made.output["error"]["message"]

    return check


def records(*types: str) -> StageCheck:
    """Events of these types are on record in this order; others may be between them."""

    async def check(stage: Stage) -> None:
        found = iter([event.type for event in await stage.events()])
        missing = [type_ for type_ in types if type_ not in found]
        assert not missing, missing

    return check


def has_file(path: str, content: str) -> StageCheck:
    async def check(stage: Stage) -> None:
        assert await stage.read_file(path) == content

    return check


def lacks_file(path: str) -> StageCheck:
    async def check(stage: Stage) -> None:
        assert await stage.read_file(path) is None

    return check


def has_wakes(count: int) -> StageCheck:
    """The session has had this many wakes."""

    async def check(stage: Stage) -> None:
        assert (await stage.record()).wakes.count == count

    return check
