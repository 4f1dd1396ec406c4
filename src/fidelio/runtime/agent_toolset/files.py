"""File tools of `agent_toolset_20260401`. What they return is text as models know it from such tools, within bounds.

Every byte goes through the sandbox, where the kernel holds the boundary. A result that is cut says how to get the rest.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from fidelio.errors import ToolRefused
from fidelio.runtime.agent_toolset.definitions import EditInput, GlobInput, GrepInput, ReadInput, WriteInput
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult
from fidelio.sandbox.actions import MAX_CHARS
from fidelio.sandbox.model import WORKSPACE

MAX_READ = 100_000
MAX_HITS = 500
MAX_PATHS = 200
MAX_LINE = 2_000
# Base64 of an image, as the vendors limit it.
MAX_IMAGE = 5_000_000
_MAX_IMAGE_BYTES = MAX_IMAGE * 3 // 4
# A multiple of three, so that the base64 of the chunks is that of the whole.
_CHUNK = 3 << 18
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


def text_result(text: str, **more: Any) -> ToolResult:
    """A result that the model gets as plain text."""
    return ToolResult(output={"text": text}, text=text, **more)


def resolve_path(path: str | None) -> str:
    """The absolute path inside of the sandbox. A relative path begins in the workspace, wherever the shell is."""
    return posixpath.normpath(posixpath.join(WORKSPACE, path or "")).replace("//", "/")


async def _read(call: ToolCall, arguments: ReadInput, _: Preparation) -> ToolResult:
    path, window = resolve_path(arguments.file_path), _read_window(arguments.view_range)
    if media_type := _IMAGES.get(posixpath.splitext(path)[1].lower()):
        if window:
            raise ToolRefused(
                "view_range selects lines, and an image has none.", remedy="Leave it out.", reason="invalid_range"
            )
        return await _read_image(call, path, media_type)
    output = await call.act("read_text", {"path": path, "maxChars": MAX_CHARS, **window})
    return text_result(render_lines(path, output))


def _read_window(view_range: tuple[int, ...] | None) -> dict[str, int]:
    """The window of lines. A last line of 0 or below is the end of the file."""
    if view_range is None:
        return {}
    first, last = view_range
    if first < 1 or 0 < last < first:
        raise ToolRefused(
            f"view_range [{first}, {last}] is no range of lines.",
            remedy="Pass [first, last] with 1 <= first <= last, or last 0 for the end of the file.",
            reason="invalid_range",
        )
    return {"startLine": first} | ({"lineCount": last - first + 1} if last > 0 else {})


def render_lines(path: str, output: Mapping[str, Any]) -> str:
    """The lines with their numbers, as far as they fit; then how to read the rest."""
    if output.get("binary"):
        raise ToolRefused(
            f"{path} is binary, {output.get('size')} bytes.", remedy="Look at it with bash.", reason="binary_file"
        )
    content, total = str(output.get("content", "")), output.get("totalLineCount")
    window = output.get("lineWindow")
    first = window["startLine"] if isinstance(window, Mapping) and isinstance(window.get("startLine"), int) else 1
    lines = content.removesuffix("\n").split("\n") if content else []
    shown, left = list[str](), MAX_READ
    for number, line in enumerate(lines, first):
        text = f"{number:6d}\t{line if len(line) <= MAX_LINE else f'{line[:MAX_LINE]} [line cut, {len(line):,} characters]'}"
        left -= len(text) + 1
        if left < 0:
            break
        shown.append(text)
    is_cut = len(shown) < len(lines) or bool(output.get("truncated"))
    return "\n".join([*shown, *_describe_rest(path, output, first + len(shown), total, is_cut=is_cut)])


def _describe_rest(path: str, output: Mapping[str, Any], following: int, total: Any, *, is_cut: bool) -> Iterable[str]:
    if output.get("lossy"):
        yield "[The file is not valid UTF-8: some characters are replaced.]"
    if is_cut:
        yield f"[Cut before line {following}{f' of {total}' if total else ''}. Go on with view_range [{following}, 0].]"
    elif following == 1:
        yield f"[{path} is empty.]" if not total else f"[{path} has {total} lines; none is in this range.]"


async def _read_image(call: ToolCall, path: str, media_type: str) -> ToolResult:
    encoded = list[str]()
    offset = 0
    while True:
        output = await call.act("read_bytes", {"path": path, "offset": offset, "length": _CHUNK})
        data, size = output.get("data"), output.get("size")
        if not isinstance(data, str) or not isinstance(size, int):
            raise ToolRefused("The sandbox replied with an unexpected value.", reason="bad_reply")
        if size > _MAX_IMAGE_BYTES or offset > _MAX_IMAGE_BYTES:
            raise ToolRefused(
                f"{path} has {size:,} bytes; an image may have {_MAX_IMAGE_BYTES:,}.",
                remedy="Make a smaller copy of it with bash.",
                reason="image_too_large",
            )
        encoded.append(data)
        offset += _CHUNK
        if output.get("eof") is not False or not data:
            break
    source = {"type": "base64", "media_type": media_type, "data": "".join(encoded)}
    return text_result(f"{path}: {media_type}, {size:,} bytes", images=({"type": "image", "source": source},))


async def _write(call: ToolCall, arguments: WriteInput, _: Preparation) -> ToolResult:
    path = resolve_path(arguments.file_path)
    await call.act("write_text", {"path": path, "content": arguments.content})
    return text_result(f"Wrote {len(arguments.content.encode(errors='replace')):,} bytes to {path}.")


async def _edit(call: ToolCall, arguments: EditInput, _: Preparation) -> ToolResult:
    path = resolve_path(arguments.file_path)
    sent = {"oldText": arguments.old_string, "newText": arguments.new_string, "replaceAll": bool(arguments.replace_all)}
    output = await call.act("replace_text", {"path": path, **sent})
    count = output.get("replacements", output.get("count", 1))
    return text_result(f"Edited {path}: {count} {'replacement' if count == 1 else 'replacements'}.")


async def _glob(call: ToolCall, arguments: GlobInput, _: Preparation) -> ToolResult:
    path, pattern = resolve_path(arguments.path), arguments.pattern
    if pattern.startswith("/"):
        raise ToolRefused(
            f"The pattern {pattern!r:.80} is absolute.", remedy="Put the directory into path.", reason="invalid_pattern"
        )
    output = await call.act("glob_entries", {"path": path, "pattern": pattern, "limit": MAX_PATHS, "newest": True})
    return text_result(render_paths(output))


def render_paths(output: Mapping[str, Any]) -> str:
    paths = [str(entry["path"]) for entry in _list_of(output, "entries")]
    more = ["[There are more. Use a narrower pattern or path.]"] if output.get("truncated") else []
    return "\n".join([*paths, *more]) or "No files match."


async def _grep(call: ToolCall, arguments: GrepInput, _: Preparation) -> ToolResult:
    sent = {"query": arguments.pattern, "regex": True, "caseSensitive": True, "limit": MAX_HITS, "ignoreFiles": True}
    output = await call.act("grep_text", {"path": resolve_path(arguments.path), **sent})
    return text_result(render_hits(output))


def render_hits(output: Mapping[str, Any]) -> str:
    """Lines as `path:line:text`, as far as they fit."""
    shown, left = list[str](), MAX_READ
    for hit in _list_of(output, "matches"):
        text = f"{hit['path']}:{hit.get('line', '')}:{str(hit.get('text', ''))[:MAX_LINE]}"
        left -= len(text) + 1
        if left < 0:
            break
        shown.append(text)
    is_cut = left < 0 or bool(output.get("truncated"))
    return "\n".join([*shown, *(["[There are more hits. Use a narrower pattern or path.]"] if is_cut else [])]) or "No matches."


def _list_of(output: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The entries of a reply, which is as hostile as what runs inside."""
    entries = output.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) and "path" in entry for entry in entries):
        raise ToolRefused(f"The sandbox replied with {key} that are not a list of paths.", reason="bad_reply")
    return entries


FILE_IMPLEMENTATIONS = {
    "read": Implementation(_read),
    "write": Implementation(_write),
    "edit": Implementation(_edit),
    "glob": Implementation(_glob),
    "grep": Implementation(_grep),
}
