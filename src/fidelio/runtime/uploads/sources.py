"""Content that refers to uploaded files: replaced by what is in the files when it is sent."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from fidelio.errors import UsageProblem
from fidelio.runtime.uploads.files import StoredFile, StoredFiles
from fidelio.runtime.wakes.content import IMAGES, MAX_IMAGE, MAX_TEXT

# Bytes of files that the events of a request may have together.
MAX_TOGETHER = 32 << 20
_ATTACH = "Attach other files to the session as resources."
# Finds the file that an id names.
FindFile: TypeAlias = Callable[[str], Awaitable[StoredFile]]


async def resolve_files(files: StoredFiles, find: FindFile, events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Events in which images, documents and rubrics that name a file have its content.

    Raises `UsageProblem` for a file that fits into no message, and for files that are too large together.
    """
    resolver = _Resolver(files, find)
    return [await resolver.resolve(event) for event in events]


class _Resolver:
    """Replaces what names a file. A short request may name large files many times, so what is read in all is bounded."""

    def __init__(self, files: StoredFiles, find: FindFile) -> None:
        self._files, self._find, self._left = files, find, MAX_TOGETHER

    async def resolve(self, event: Mapping[str, Any]) -> dict[str, Any]:
        resolved = dict(event)
        content, rubric = event.get("content"), event.get("rubric")
        if isinstance(content, list):
            resolved["content"] = [await self._resolve_block(block) for block in content]
        if isinstance(rubric, Mapping) and rubric.get("type") == "file":
            resolved["rubric"] = {"type": "text", "content": await self._read_text(await self._find(_read_id(rubric)))}
        return resolved

    async def _resolve_block(self, block: Any) -> Any:
        source = block.get("source") if isinstance(block, Mapping) else None
        if not isinstance(source, Mapping) or block.get("type") not in ("image", "document"):
            return block
        file = await self._find(_read_id(source)) if source.get("type") == "file" else None
        if block["type"] == "image":
            return block if file is None else {"type": "image", "source": await self._read_image(file)}
        if file is not None:
            return _describe(block, file.content.filename, await self._read_text(file))
        if source.get("type") != "text" or not isinstance(source.get("data"), str):
            raise UsageProblem("content: only documents of plain text are read.", remedy=_ATTACH)
        return _describe(block, "", source["data"])

    async def _read_image(self, file: StoredFile) -> dict[str, str]:
        content = file.content
        if content.mime_type not in IMAGES or content.size > MAX_IMAGE:
            raise UsageProblem(
                f"The file {content.filename!r} is no image that a model takes.",
                remedy=f"Use up to {MAX_IMAGE:,} bytes of one of: {', '.join(IMAGES)}.",
            )
        data = base64.b64encode(await self._read(file)).decode()
        return {"type": "base64", "media_type": content.mime_type, "data": data}

    async def _read_text(self, file: StoredFile) -> str:
        problem = f"The file {file.content.filename!r} is no text that fits into a message."
        remedy = f"Use UTF-8 text of up to {MAX_TEXT:,} bytes. {_ATTACH}"
        if file.content.size > MAX_TEXT:
            raise UsageProblem(problem, remedy=remedy)
        try:
            return (await self._read(file)).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageProblem(problem, remedy=remedy) from error

    async def _read(self, file: StoredFile) -> bytes:
        self._left -= file.content.size
        if self._left < 0:
            raise UsageProblem(
                f"The files that the events name have more than {MAX_TOGETHER:,} bytes together.",
                remedy="Send them in several requests.",
            )
        return await self._files.read_whole(file)


def _describe(block: Mapping[str, Any], name: str, text: str) -> dict[str, str]:
    """A document of plain text as a text with its title."""
    title = block.get("title") or name
    texts = (f"Document: {title}" if title else "", block.get("context") or "", text)
    return {"type": "text", "text": "\n\n".join(str(text_) for text_ in texts if text_)}


def _read_id(source: Mapping[str, Any]) -> str:
    if not isinstance(id_ := source.get("file_id"), str):
        raise UsageProblem("file_id: the source names no file.")
    return id_
