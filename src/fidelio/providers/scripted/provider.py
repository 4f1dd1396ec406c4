"""The provider `scripted`: deterministic replies, without a key and without a network, for demos and tests.

A function replies to every request, or a script: `scripted:NAME` is the file `NAME.yaml` of the bundled scripts. Everything is
derived from the request, so that a session can go on in another process.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from fidelio.providers.model import (
    FREE,
    ModelInfo,
    ModelProblem,
    ModelReply,
    ModelRequest,
    OnText,
    TokenUsage,
    estimate_usage,
)
from fidelio.providers.scripted.forced import answer_forced
from fidelio.providers.scripted.rules import ModelScript, load_script

ReplyFunction: TypeAlias = Callable[[ModelRequest], ModelReply | Awaitable[ModelReply]]

BUNDLED_SCRIPTS = Path(__file__).resolve().parents[2] / "bundled" / "models"
_PIECE = re.compile(r"\s*\S{1,16}|\s+")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class ScriptedProvider:
    """A provider whose replies come from `reply`, or, if there is none, from the scripts in a directory."""

    name = "scripted"

    def __init__(
        self,
        reply: ReplyFunction | None = None,
        *,
        scripts: Path = BUNDLED_SCRIPTS,
        info: ModelInfo = ModelInfo(price=FREE),  # noqa: B008  # immutable
    ) -> None:
        self._reply = reply or self._play
        self._scripts = scripts
        self._info = info
        # A script is parsed once for each provider: parsing takes about 2 ms, a reply from it 0.1 ms.
        self._loaded: dict[str, ModelScript] = {}

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        reply = self._reply(request)
        if inspect.isawaitable(reply):
            reply = await reply
        for piece in _PIECE.findall(reply.text):
            on_text(piece)
            # A model takes time: others get a turn between two pieces, and a cancelled request ends here.
            await asyncio.sleep(0)
        return _with_usage(request, reply)

    def describe(self, model: str) -> ModelInfo:  # noqa: ARG002  # the same for every script
        return self._info

    async def close(self) -> None:
        pass

    def _play(self, request: ModelRequest) -> ModelReply:
        if request.force_tool:
            return answer_forced(request)
        return self._find_script(request.model).reply(request)

    def _find_script(self, name: str) -> ModelScript:
        if name not in self._loaded:
            file = self._scripts / f"{name}.yaml"
            if not _NAME.fullmatch(name) or not file.is_file():
                known = ", ".join(sorted(file.stem for file in self._scripts.glob("*.yaml")))
                raise ModelProblem(
                    f"There is no scripted model {name!r:.80}.", remedy=f"Use scripted:NAME with one of: {known}."
                )
            self._loaded[name] = load_script(file)
        return self._loaded[name]


def _with_usage(request: ModelRequest, reply: ModelReply) -> ModelReply:
    """The reply with its estimated usage and its model, unless the script has set them."""
    usage = estimate_usage(request, reply.content) if reply.usage == TokenUsage() else reply.usage
    return replace(reply, usage=usage, model=reply.model or request.model)
