from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.processes.table import find_marked
from fidelio.providers.model import FREE, ImageBlock, ModelInfo, ModelProblem, ModelReply, ModelRequest, TextBlock
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import ServerDefinition
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.servers import connection, servers
from fidelio.runtime.servers.tools import find_server_policy
from tests.runtime.servers import program
from tests.runtime.servers.program import PIXEL
from tests.runtime.wakes.support import Runtime, open_runtime, replies, results_of, say, texts_of, use
from tests.support import proves

PROGRAM = Path(program.__file__)
ECHO = ("mcp__test__echo", {"text": "hello"})
ECHO_NEAR = ("mcp__near__echo", {"text": "hello"})
IMAGE = ("mcp__test__image", {"text": "x"})
ALLOWED = dict.fromkeys(("echo", "fail", "image", "long", "slow", "other"), "always_allow")


def describe_server(mode: str = "plain", notes: Path | None = None, **more: Any) -> dict[str, Any]:
    """The definition of a server whose tools need no person."""
    args = [str(PROGRAM), mode, *([str(notes)] if notes else [])]
    return {"command": sys.executable, "args": args, "policies": ALLOWED, **more}


async def begin(runtime: Runtime, **mcp_servers: dict[str, Any]) -> str:
    return await runtime.begin(tools={"mcp_servers": mcp_servers})


async def talk(runtime: Runtime, session: str, *answers: ModelReply) -> None:
    runtime.script(replies(*answers))
    await runtime.tell(session, "Work.")
    await runtime.work()


def result_text(request: ModelRequest, number: int = -1) -> str:
    block = results_of(request)[number].content[0]
    assert isinstance(block, TextBlock)
    return block.text


def images_of(request: ModelRequest) -> int:
    return sum(isinstance(inner, ImageBlock) for block in results_of(request) for inner in block.content)


def declared(request: ModelRequest) -> list[str]:
    return [tool.name for tool in request.tools if tool.name.startswith("mcp__")]


@proves("runtime.mcp-call")
async def test_the_model_calls_a_tool_of_a_server_of_the_user(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server(notes=notes))
        await talk(runtime, session, use(ECHO), say("Done."))

        assert result_text(runtime.requests[1]) == '{"ok":true,"content":"echo: hello"}'
        assert declared(runtime.requests[0]) == [f"mcp__test__{name}" for name in ("echo", "fail", "image", "long", "slow")]
        (called,) = await runtime.events(session, e.TOOL_USE)
        assert called.body["ownership"] == "mcp"
        assert f"marker {session}.1" in notes.read_text()
        assert "ended" in notes.read_text()
        assert find_marked(f"{session}.1") == []


@proves("runtime.mcp-results", "runtime.mcp-images")
async def test_errors_images_and_long_texts_become_bounded_results(tmp_path: Path) -> None:
    text = {"text": "x"}
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server())
        calls = [(f"mcp__test__{name}", text) for name in ("fail", "image", "long")]
        await talk(runtime, session, use(*calls), say("Done."))
        failed, image, long = results_of(runtime.requests[1])

        assert failed.is_error
        assert "It does not work." in result_text(runtime.requests[1], 0)
        assert "[image image/png, " in result_text(runtime.requests[1], 0)
        assert len(failed.content) == 1
        # The first four of five; what is no image, or of no kind that models take, is only named.
        assert image.content[1:] == (ImageBlock("image/png", PIXEL),) * 4
        named = result_text(runtime.requests[1], 1)
        assert named.count(", below]") == 4
        assert named.count(", not shown]") == 5
        assert "[image image/png, 6 bytes, not shown]" in named
        assert not image.is_error
        assert len(result_text(runtime.requests[1], 2)) < 40_200
        assert '"truncated":true' in result_text(runtime.requests[1], 2)
        assert not long.is_error


@proves("runtime.mcp-images")
async def test_a_model_that_takes_no_images_gets_their_names(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, info=ModelInfo(price=FREE, images=False)) as runtime:
        session = await begin(runtime, test=describe_server())
        await talk(runtime, session, use(IMAGE), say("Done."))

        assert images_of(runtime.requests[1]) == 0
        assert "(image/png, which this model does not take)" in str(results_of(runtime.requests[1]))


@proves("runtime.mcp-images")
@pytest.mark.parametrize("status", [400, 413])
async def test_images_that_the_vendor_refuses_do_not_end_the_session(tmp_path: Path, status: int) -> None:
    def refuse(request: ModelRequest) -> ModelReply:
        if images_of(request):
            raise ModelProblem("Could not process images.", status=status)
        return say("I cannot see it.")

    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server())
        answers = iter([use(IMAGE)])
        runtime.script(lambda request: next(answers, None) or refuse(request))
        await runtime.tell(session, "Look.")
        await runtime.work()

        assert [images_of(request) for request in runtime.requests] == [0, 4, 0]
        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"


@proves("runtime.mcp-asks")
async def test_a_tool_asks_a_person_unless_the_definition_allows_it(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server(notes=notes, policies={"echo": "auto"}))
        await talk(runtime, session, use(ECHO), say("Done."))
        (waiting,) = (await runtime.record(session)).wakes.blocking
        request = await runtime.ledger.request(waiting.request)

        assert "call" not in notes.read_text()
        assert "May the agent call mcp__test__echo?" in request.question
        assert "'echo' of the MCP server test, which runs on this machine with your rights" in request.question
        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": waiting.id, "result": "allow"})
        await runtime.work()
        assert notes.read_text().count("call echo") == 1
        assert "echo: hello" in result_text(runtime.requests[-1])


@proves("runtime.mcp-asks")
def test_a_policy_for_all_tools_of_a_server_gives_way_to_that_of_a_tool() -> None:
    server = ServerDefinition(command="x", policies={"*": "always_allow", "delete": "always_ask"})

    assert find_server_policy(server, "read") == "always_allow"
    assert find_server_policy(server, "delete") == "always_ask"
    assert find_server_policy(ServerDefinition(command="x"), "read") == "always_ask"


@proves("runtime.mcp-validated")
async def test_arguments_are_validated_before_anybody_is_asked(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server(notes=notes, policies={}))
        wrong: list[dict[str, Any]] = [{}, {"text": 7}, {"text": "x" * 101}, {"text": "x", "more": "y" * 50_000}]
        await talk(runtime, session, use(*(("mcp__test__echo", given) for given in wrong)), say("Done."))

        found = results_of(runtime.requests[1])
        assert all(result.is_error for result in found)
        assert all("invalid_arguments" in result_text(runtime.requests[1], number) for number in range(4))
        assert (await runtime.record(session)).approvals == {}
        assert "call" not in notes.read_text()


@proves("runtime.mcp-fixed")
async def test_the_declared_tools_stay_and_one_that_has_vanished_is_refused_by_name(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server("changing", tmp_path / "notes"))
        await talk(runtime, session, say("Hello."))
        await talk(runtime, session, use(ECHO, ("mcp__test__other", {"text": "x"})), say("Done."))

        assert "mcp__test__echo" in declared(runtime.requests[0])
        assert all(request.tools == runtime.requests[0].tools for request in runtime.requests)
        assert "The MCP server test has no tool 'echo' any more." in result_text(runtime.requests[-1], 0)
        assert "There is no tool 'mcp__test__other'" in result_text(runtime.requests[-1], 1)


@proves("runtime.mcp-lazy")
async def test_later_wakes_start_a_server_only_when_its_tool_is_called(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server(notes=notes))
        await talk(runtime, session, say("Hello."))
        await talk(runtime, session, say("Hello again."))
        assert notes.read_text().count("started") == 1
        await talk(runtime, session, use(ECHO), use(ECHO), say("Done."))

        assert notes.read_text().count("started") == 2
        assert notes.read_text().count("ended") == 2
        assert all(request.tools == runtime.requests[0].tools for request in runtime.requests)


@proves("runtime.mcp-group")
async def test_many_tools_are_a_group_that_tools_open_shows(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server("many", policies={"tool-7": "always_allow"}))
        opened = ("tools_open", {"group": "mcp"})
        single = ("tools_open", {"group": "mcp__test__tool-255"})
        called = ("tool_call", {"name": "mcp__test__tool-7", "arguments": {"text": "x"}})
        await talk(runtime, session, use(opened, single, ("tools_open", {"group": "files"})), use(called), say("Done."))

        assert declared(runtime.requests[0]) == []
        (tools_open,) = (tool for tool in runtime.requests[0].tools if tool.name == "tools_open")
        assert "mcp__test (256 tools" in tools_open.description
        assert len(tools_open.description) < 5_000
        shown = result_text(runtime.requests[1], 0)
        assert '"name":"mcp__test__tool-0"' in shown
        assert len(shown) < 60_000
        assert '"name":"mcp__test__tool-255"' in result_text(runtime.requests[1], 1)
        assert '"group":"files"' in result_text(runtime.requests[1], 2)
        assert "echo: x" in result_text(runtime.requests[2])
        (listed,) = await runtime.events(session, e.SERVER_TOOLS_LISTED)
        assert listed.body["servers"]["test"] == {"tools": 256, "left_out": 10_000 - 256}


@proves("runtime.mcp-hostile")
async def test_odd_tools_are_left_out_or_not_declared(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server("odd"))
        await talk(runtime, session, use(("mcp__test__union", {}), ("mcp__test__invalid", {})), say("Hello."))

        names = declared(runtime.requests[0])
        assert names[0] == "mcp__test__a_b"
        assert len(set(names)) == len(names) == 4
        assert all(len(name) <= 64 for name in names)
        assert "mcp__test__union" in next(t.description for t in runtime.requests[0].tools if t.name == "tools_open")
        assert (await runtime.record(session)).wakes.blocking[0].name == "mcp__test__union"


@proves("runtime.mcp-unavailable")
@pytest.mark.parametrize("mode", ["hangs", "dies", "floods", "endless-line", "missing"])
async def test_a_server_that_cannot_be_used_is_one_error_and_the_others_work(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 3.0)
    broken = describe_server(mode) if mode != "missing" else {"command": "no-such-program"}
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, broken=broken, test=describe_server())
        async with asyncio.timeout(40):
            await talk(runtime, session, use(ECHO), say("Done."))
        await talk(runtime, session, say("Again."))

        (error,) = await runtime.events(session, e.SESSION_ERROR)
        assert error.body["error"]["type"] == "mcp_connection_failed_error"
        assert "MCP server broken" in error.body["error"]["message"]
        assert "The MCP server broken is not available now." in texts_of(runtime.requests[0])
        assert "echo: hello" in result_text(runtime.requests[1])
        assert (await runtime.record(session)).status == "idle"
        assert find_marked(f"{session}.1") == []


@proves("runtime.mcp-hostile")
async def test_lines_that_are_no_messages_are_skipped(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server("junk"))
        await talk(runtime, session, use(ECHO), say("Done."))

        assert "echo: hello" in result_text(runtime.requests[1])


@proves("runtime.mcp-unavailable")
async def test_a_server_that_comes_back_is_told_to_the_model_and_changes_no_declaration(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    async with open_runtime(tmp_path) as runtime:
        late = {"command": sys.executable, "args": [str(script)], "policies": ALLOWED}
        session = await begin(runtime, late=late)
        await talk(runtime, session, say("Hello."))
        await asyncio.to_thread(shutil.copy, PROGRAM, script)
        await talk(runtime, session, say("Hello."))
        runtime.clock.now += servers.RETRY_MS
        await talk(runtime, session, use(("mcp__late__echo", {"text": "x"})), say("Done."))

        assert "The MCP server late is available now" in texts_of(runtime.requests[2])
        assert "echo: x" in result_text(runtime.requests[3])
        assert all(request.tools == runtime.requests[0].tools for request in runtime.requests)
        assert len(await runtime.events(session, e.SESSION_ERROR)) == 1


@proves("runtime.mcp-interrupt")
async def test_an_interrupt_ends_a_call_and_its_server_at_once(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server(notes=notes))
        runtime.script(replies(use(("mcp__test__slow", {"text": "x"}))))
        await runtime.tell(session, "Work.")
        working = asyncio.create_task(runtime.work())
        await wait_for(lambda: "call slow" in notes.read_text())
        await runtime.send(session, {"type": "user.interrupt"})
        async with asyncio.timeout(15):
            await working

        (result,) = await runtime.events(session, e.TOOL_RESULT)
        assert "not known how it ended" in str(result.body)
        assert find_marked(f"{session}.1") == []
        assert (await runtime.record(session)).status == "idle"


@proves("runtime.mcp-interrupt")
async def test_an_interrupt_ends_the_wait_for_a_server_that_hangs(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server("hangs"))
        await runtime.tell(session, "Work.")
        working = asyncio.create_task(runtime.work())
        await wait_for(lambda: bool(find_marked(f"{session}.1")))
        await runtime.send(session, {"type": "user.interrupt"})
        async with asyncio.timeout(15):
            await wait_for(lambda: find_marked(f"{session}.1") == [])
        working.cancel()
        await asyncio.wait({working})


@proves("runtime.mcp-timeout")
async def test_a_call_without_an_answer_is_an_error_and_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CALL_SECONDS", 0.5)
    notes = tmp_path / "notes"
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server(notes=notes))
        await talk(runtime, session, use(("mcp__test__slow", {"text": "x"})), use(ECHO), say("Done."))

        assert "whether the call had an effect is not known" in result_text(runtime.requests[1])
        assert "echo: hello" in result_text(runtime.requests[2])
        assert notes.read_text().count("started") == 2


async def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(20):
        while True:
            try:
                if condition():
                    return
            except FileNotFoundError:
                pass
            await asyncio.to_thread(Path("/proc/self/stat").read_bytes)


@proves("v1.environments-servers")
async def test_a_limited_environment_keeps_the_agent_from_servers_that_it_does_not_allow(tmp_path: Path) -> None:
    limited = Environment(network="limited", hosts=("mcp.example.com",), mcp_servers=False)
    async with open_runtime(tmp_path) as runtime:
        await define(runtime.context, "closed", limited, by="person:anna")
        servers = {"far": {"url": "https://other.example.com/mcp"}, "near": describe_server()}
        session = await runtime.begin(tools={"mcp_servers": servers}, environment="closed")
        await talk(runtime, session, use(ECHO_NEAR), say("Done."))

        (refused,) = await runtime.events(session, e.SESSION_ERROR)
        assert "does not allow MCP servers, and other.example.com is not one of its hosts" in str(refused.body)
        # A server on this machine is not reached over the network.
        assert result_text(runtime.requests[1]) == '{"ok":true,"content":"echo: hello"}'


@proves("v1.agents-toolset")
async def test_the_agent_has_only_the_tools_of_a_server_that_its_definition_names(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await begin(runtime, test=describe_server(only=["echo", "fail"], without=["fail"]))
        await talk(runtime, session, use(("mcp__test__fail", {"text": "x"})), say("Done."))

        assert declared(runtime.requests[0]) == ["mcp__test__echo"]
        assert results_of(runtime.requests[1])[0].is_error
        assert "It does not work." not in result_text(runtime.requests[1], 0)
