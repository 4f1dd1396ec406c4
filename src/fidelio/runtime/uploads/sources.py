"""Content that refers to uploaded files: replaced by what is in the files when it is sent."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from fidelio.errors import UsageProblem
from fidelio.runtime.uploads.files import StoredFile, StoredFiles
from fidelio.runtime.wakes.content import IMAGES, MAX_IMAGE, MAX_TEXT

# Finds the file that an id names.
FindFile: TypeAlias = Callable[[str], Awaitable[StoredFile]]


async def resolve_files(files: StoredFiles, find: FindFile, event: Mapping[str, Any]) -> dict[str, Any]:
    """An event in which images, documents and rubrics that name a file have its content."""
    resolved = dict(event)
    content, rubric = event.get("content"), event.get("rubric")
    if isinstance(content, list):
        resolved["content"] = [await _resolve_block(files, find, block) for block in content]
    if isinstance(rubric, Mapping) and rubric.get("type") == "file":
        resolved["rubric"] = {"type": "text", "content": await _read_text(files, await find(_read_id(rubric)))}
    return resolved


async def _resolve_block(files: StoredFiles, find: FindFile, block: Any) -> Any:
    source = block.get("source") if isinstance(block, Mapping) else None
    if isinstance(source, Mapping) and (block.get("type"), source.get("type")) == ("document", "text"):
        return _describe(block, "", str(source.get("data") or ""))
    if not isinstance(source, Mapping) or source.get("type") != "file":
        return block
    file = await find(_read_id(source))
    if block.get("type") == "image":
        return {"type": "image", "source": await _read_image(files, file)}
    if block.get("type") == "document":
        return _describe(block, file.content.filename, await _read_text(files, file))
    return block


def _describe(block: Mapping[str, Any], name: str, text: str) -> dict[str, str]:
    """A document of plain text as a text with its title."""
    title = block.get("title") or name
    texts = (f"Document: {title}" if title else "", block.get("context") or "", text)
    return {"type": "text", "text": "\n\n".join(str(text_) for text_ in texts if text_)}


def _read_id(source: Mapping[str, Any]) -> str:
    if not isinstance(id_ := source.get("file_id"), str):
        raise UsageProblem("file_id: the source names no file.")
    return id_


async def _read_image(files: StoredFiles, file: StoredFile) -> dict[str, str]:
    content = file.content
    if content.mime_type not in IMAGES or content.size > MAX_IMAGE:
        raise UsageProblem(
            f"The file {content.filename!r} is no image that a model takes.",
            remedy=f"Use up to {MAX_IMAGE:,} bytes of one of: {', '.join(IMAGES)}.",
        )
    data = base64.b64encode(await files.read_whole(file)).decode()
    return {"type": "base64", "media_type": content.mime_type, "data": data}


async def _read_text(files: StoredFiles, file: StoredFile) -> str:
    content = file.content
    problem = f"The file {content.filename!r} is no text that fits into a message."
    remedy = f"Use UTF-8 text of up to {MAX_TEXT:,} bytes, or attach the file to the session as a resource."
    if content.size > MAX_TEXT:
        raise UsageProblem(problem, remedy=remedy)
    try:
        return (await files.read_whole(file)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageProblem(problem, remedy=remedy) from error
