"""Multipart bodies of uploads: read within a limit, with their files on disk and not in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import BinaryIO

import msgspec
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from fidelio.surfaces.http.v1.endpoint import ApiRequest
from fidelio.surfaces.http.v1.errors import ApiProblem

# Boundaries and headers of the parts, and fields.
_OVERHEAD = 1 << 20
_MAX_FIELDS = 20
_READ = 1 << 20


class UploadedPart(msgspec.Struct, frozen=True):
    """A part with a file. `filename` is what the client has sent."""

    field: str
    filename: str
    content_type: str
    size: int
    file: BinaryIO

    def read(self) -> Iterator[bytes]:
        self.file.seek(0)
        while chunk := self.file.read(_READ):
            yield chunk


class Form(msgspec.Struct, frozen=True):
    """A multipart body: its files in order, and its fields."""

    files: tuple[UploadedPart, ...]
    fields: dict[str, str]


@asynccontextmanager
async def read_form(request: ApiRequest, *, limit: int, max_files: int, fields: tuple[str, ...]) -> AsyncIterator[Form]:
    """The body of an upload during the block. `limit`: the bytes of its files; `fields`: the names that a field may have.

    Raises 400 for what is no such body, and 413 when the limit is passed, before the rest is read.
    """
    raw = request.raw
    if raw.headers.get("content-type", "").partition(";")[0].strip().lower() != "multipart/form-data":
        raise ApiProblem("The body must be multipart/form-data with a boundary.")
    parser = MultiPartParser(
        raw.headers, _read_bounded(request, limit), max_files=max_files, max_fields=_MAX_FIELDS, max_part_size=64 << 10
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise ApiProblem(f"The body is not valid multipart/form-data: {error.message}") from error
    try:
        yield _collect(form.multi_items(), fields)
    finally:
        await form.close()


def _collect(items: list[tuple[str, UploadFile | str]], fields: tuple[str, ...]) -> Form:
    files, texts = list[UploadedPart](), dict[str, str]()
    for name, item in items:
        if isinstance(item, UploadFile):
            files.append(UploadedPart(name, item.filename or "", item.content_type or "", item.size or 0, item.file))
        elif name not in fields:
            raise ApiProblem(f"{name[:60]}: this field is unknown. Use {', '.join(fields)}.")
        elif name in texts:
            raise ApiProblem(f"{name[:60]}: the field was sent twice.")
        else:
            texts[name] = item
    return Form(tuple(files), texts)


async def _read_bounded(request: ApiRequest, limit: int) -> AsyncGenerator[bytes]:
    size = 0
    declared = request.raw.headers.get("content-length", "")
    if declared.isdigit() and len(declared) < 20 and int(declared) > limit + _OVERHEAD:
        raise _too_large(limit)
    async for chunk in request.raw.stream():
        size += len(chunk)
        if size > limit + _OVERHEAD:
            raise _too_large(limit)
        yield chunk


def _too_large(limit: int) -> ApiProblem:
    return ApiProblem(
        f"The upload has more than {limit} bytes ({limit >> 20} MiB), which is the limit.",
        status=413,
        type_="request_too_large",
    )
