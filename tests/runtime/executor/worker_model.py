"""A scripted model that carries out activities of workflows as a worker, through the tools of an MCP server.

What it does is a coroutine that calls tools and returns a text. Each request of the runtime is answered with its next call, and
the results that the request brings are handed back to it.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec

from fidelio.orchestrator.executors.scripted.worker import applies, parse_activity
from fidelio.providers.model import ModelReply, ModelRequest, TextBlock, ToolResultBlock, ToolUseBlock

_TOKEN = re.compile(r"""session_token["']?\s*[:=]\s*["']?([^\s"',}]+)""")
_STEPS = re.compile(r"^steps: (.*)$", re.MULTILINE)
SECONDS = 30.0


class WorkerModel:
    """Answers the requests of every session by the worker that its last message began."""

    def __init__(self) -> None:
        self._workers: dict[str, ActivityWorker] = {}

    async def __call__(self, request: ModelRequest) -> ModelReply:
        last = request.messages[-1].content
        results = [block for block in last if isinstance(block, ToolResultBlock)]
        texts = [block.text for block in last if isinstance(block, TextBlock)]
        if not results or texts:
            self._workers[request.conversation] = ActivityWorker("\n".join(texts))
        worker = self._workers[request.conversation]
        return await worker.go_on(results[-1] if results and not texts else None)


class ActivityWorker:
    """One run: it loads its activity, stops at open checkpoints and ends with a manifest."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._replies: asyncio.Queue[ModelReply] = asyncio.Queue()
        self._results: asyncio.Queue[str] = asyncio.Queue()
        self._task = asyncio.create_task(self._work())
        self._calls = 0

    async def go_on(self, result: ToolResultBlock | None) -> ModelReply:
        if result is not None:
            self._results.put_nowait("".join(block.text for block in result.content if isinstance(block, TextBlock)))
        async with asyncio.timeout(SECONDS):
            reply = asyncio.create_task(self._replies.get())
            await asyncio.wait({reply, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                reply.cancel()
                return self._task.result()
            return reply.result()

    async def _call(self, tool: str, **arguments: Any) -> Any:
        self._calls += 1
        use = ToolUseBlock(f"call_{self._calls}", f"mcp__fidelio__{tool}", {"session_token": self._token, **arguments})
        self._replies.put_nowait(ModelReply(content=(use,), stop_reason="tool_use"))
        return msgspec.json.decode(await self._results.get())

    async def _work(self) -> ModelReply:
        found = _TOKEN.search(self._prompt)
        assert found is not None, self._prompt
        self._token = found[1]
        status = _read_json(await self._call("get_workflow_status"))
        if status["open_checkpoint"]:
            resumed = await self._call("resume_checkpoint")
            if resumed.get("ok") is False or "still" in str(resumed):
                return _say("The question is still open.")
        activity = parse_activity(_read_text(await self._call("get_activity")))
        listed = _STEPS.search(self._prompt)
        wanted = None if listed is None else listed[1].split(", ")
        steps = [step for step in activity.steps if wanted is None or step.id in wanted]
        for step in steps:
            if step.checkpoint and applies(step, status["variables"]):
                reply = _read_json(await self._call("yield_checkpoint", checkpoint_id=step.checkpoint))
                if not reply.get("already_resolved"):
                    return _say("I have asked, and stop here.")
        done = [{"step_id": step.id, "output": f"Done: {step.name}."} for step in steps if applies(step, status["variables"])]
        return _say(msgspec.json.encode({"steps": done, "variables": {}}).decode())


def _say(text: str) -> ModelReply:
    return ModelReply(content=(TextBlock(text),), stop_reason="end_turn")


def _read_text(result: Any) -> str:
    content = result.get("content", result) if isinstance(result, dict) else result
    return "".join(item["text"] for item in content) if isinstance(content, list) else str(content)


def _read_json(result: Any) -> dict[str, Any]:
    return msgspec.json.decode(_read_text(result), type=dict[str, Any])
