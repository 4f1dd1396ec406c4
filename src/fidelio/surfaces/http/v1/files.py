"""Files of the API: upload, list, metadata, content, deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from fidelio.clock import format_iso
from fidelio.errors import SessionNotFound
from fidelio.runtime.uploads.files import MAX_EXPIRY, MAX_FILE, MIN_EXPIRY, StoredFile, StoredFiles, find_expiry
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem, not_found
from fidelio.surfaces.http.v1.ids import to_session, to_wire
from fidelio.surfaces.http.v1.multipart import Form, UploadedPart, read_form

MAX_LISTED = 1_000
MAX_IDS = 100
_LIST = "files"


async def open_files(request: ApiRequest) -> StoredFiles:
    return StoredFiles((await request.services.runtime()).context, request.services.project)


async def load_file(request: ApiRequest, id_: str) -> StoredFile:
    """The file that an id on the wire names. Raises 404."""
    try:
        return await (await open_files(request)).load(to_session("file", id_))
    except SessionNotFound:
        raise not_found("File", id_) from None


async def _upload(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    async with (
        request.services.uploads,
        read_form(request, limit=MAX_FILE, max_files=2, fields=("expires_in_seconds",)) as form,
    ):
        part, expires_in = _find_part(form), _read_expiry(form)
        if part.size > MAX_FILE:
            raise ApiProblem(
                f"file: {part.size} bytes are more than the limit of {MAX_FILE} bytes.", status=413, type_="request_too_large"
            )
        stored = await (await open_files(request)).store(
            part.filename,
            part.content_type,
            part.read(),
            by=API_ACTOR,
            expires_in=expires_in,
            key=request.idempotency_key,
        )
    return render_file(stored)


def _find_part(form: Form) -> UploadedPart:
    if len(form.files) != 1 or form.files[0].field != "file":
        raise ApiProblem("file: send exactly one part with a filename, named file.")
    return form.files[0]


def _read_expiry(form: Form) -> int:
    text = form.fields.get("expires_in_seconds")
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10 and MIN_EXPIRY <= int(text) <= MAX_EXPIRY):
        raise ApiProblem(f"expires_in_seconds: {text!r:.60} is not a number from {MIN_EXPIRY} to {MAX_EXPIRY}.")
    return int(text)


async def _list(request: ApiRequest) -> dict[str, Any]:
    if ids := _read_ids(request):
        found = [render_file(file) for id_ in ids if (file := await _find(request, id_)) is not None]
        return request.page(_LIST, found, None)
    limit = request.limit(most=MAX_LISTED)
    scope = request.query("scope_id")
    list_ = f"{_LIST}:{scope}"
    session = to_session("sesn", scope) if scope else ""
    page = await (await open_files(request)).list(session=session, cursor=request.cursor(list_), limit=limit)
    return request.page(list_, [render_file(file) for file in page.items], page.next)


def _read_ids(request: ApiRequest) -> tuple[str, ...]:
    ids = tuple(dict.fromkeys((*request.query_values("ids"), *request.query_values("ids[]"))))
    if ids and (request.query("page") or request.query("limit")):
        raise ApiProblem("ids: it cannot be combined with page or limit.")
    if len(ids) > MAX_IDS:
        raise ApiProblem(f"ids: {len(ids)} ids are too many. Use up to {MAX_IDS}.")
    return ids


async def _find(request: ApiRequest, id_: str) -> StoredFile | None:
    try:
        return await load_file(request, id_)
    except ApiProblem:
        return None


async def _retrieve(request: ApiRequest) -> dict[str, Any]:
    return render_file(await load_file(request, request.path("file_id")))


async def _download(request: ApiRequest) -> Response:
    file, files = await load_file(request, request.path("file_id")), await open_files(request)
    files.require_unexpired(file)
    content = file.content
    headers = {
        "content-length": str(content.size),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(content.filename)}",
        # A browser must not run what somebody has uploaded.
        "x-content-type-options": "nosniff",
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return StreamingResponse(_stream(files, file), media_type=content.mime_type, headers=headers)


async def _stream(files: StoredFiles, file: StoredFile) -> AsyncIterator[bytes]:
    async for chunk in files.read(file):
        yield chunk


async def _delete(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    file = await load_file(request, request.path("file_id"))
    await (await open_files(request)).delete(file.id, by=API_ACTOR)
    return {"id": to_wire("file", file.id), "type": "file_deleted"}


def render_file(file: StoredFile) -> dict[str, Any]:
    content, expiry = file.content, find_expiry(file)
    return {
        "id": to_wire("file", file.id),
        "type": "file",
        "filename": content.filename,
        "mime_type": content.mime_type,
        "size_bytes": content.size,
        "created_at": format_iso(file.created_at),
        "downloadable": True,
        "expires_at": None if expiry is None else format_iso(expiry),
        "scope": {"type": "session", "id": to_wire("sesn", content.session)} if content.session else None,
    }


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("/v1/files", {"POST": _upload, "GET": _list}),
    ApiRoute("/v1/files/{file_id}", {"GET": _retrieve, "DELETE": _delete}),
    ApiRoute("/v1/files/{file_id}/content", {"GET": _download}),
)
