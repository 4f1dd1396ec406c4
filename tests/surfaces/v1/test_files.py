"""Files: the official SDK uploads, lists, reads and deletes them; what is hostile or too large is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest
from anthropic import APIStatusError, AsyncAnthropic, BadRequestError, ConflictError, NotFoundError
from msgspec.structs import replace

from fidelio.app.application import Application
from fidelio.errors import SessionNotFound
from fidelio.ledger.encoding import hash_blob
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.runtime.uploads.files import CHUNK, EXPIRY_JOB, StoredFiles, find_expiry
from fidelio.surfaces.http.v1 import files as files_api
from tests.support import proves
from tests.surfaces.v1.conftest import KEY, TOKEN


@proves("v1-files.content")
@pytest.mark.parametrize("size", [0, 1, CHUNK, 2 * CHUNK + 17])
async def test_a_file_comes_back_byte_for_byte(sdk: AsyncAnthropic, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    file = await sdk.beta.files.upload(file=("data.csv", content, "text/csv"))
    downloaded = await sdk.beta.files.download(file.id)

    assert (file.filename, file.mime_type, file.size_bytes, file.downloadable) == ("data.csv", "text/csv", size, True)
    assert await downloaded.read() == content
    assert await sdk.beta.files.retrieve_metadata(file.id) == file


@proves("v1-files.list")
async def test_files_are_listed_in_pages_newest_first(sdk: AsyncAnthropic) -> None:
    uploaded = [(await sdk.beta.files.upload(file=(f"{number}.txt", b"x"))).id for number in range(5)]

    first = await sdk.beta.files.list(limit=2)
    everything = [file.id async for file in sdk.beta.files.list(limit=2)]

    assert first.has_next_page()
    assert everything == uploaded[::-1]


@proves("v1-files.list")
async def test_named_files_are_listed_without_those_that_are_unknown(sdk: AsyncAnthropic) -> None:
    first, second = [await sdk.beta.files.upload(file=(name, b"x")) for name in ("a", "b")]

    page = await sdk.beta.files.list(ids=[second.id, "file_000000000000", "nonsense", first.id, second.id])

    assert [file.id for file in page.data] == [second.id, first.id]
    assert page.next_page is None
    with pytest.raises(BadRequestError, match="ids"):
        await sdk.beta.files.list(ids=[first.id], limit=3)


@proves("v1-files.list")
async def test_a_scope_lists_only_the_files_of_that_session(
    sdk: AsyncAnthropic, application: Application, project: Path
) -> None:
    await sdk.beta.files.upload(file=("other.txt", b"x"))
    service = await application.runtime()
    own = await StoredFiles(service.context, str(project)).store("out.txt", "", [b"y"], by="agent", session="s_0123456789ab")

    page = await sdk.beta.files.list(scope_id="sesn_0123456789ab")

    assert [file.filename for file in page.data] == [own.content.filename]
    assert page.data[0].scope is not None
    assert page.data[0].scope.id == "sesn_0123456789ab"


@proves("v1-files.delete")
async def test_a_deleted_file_is_not_found_and_its_content_is_erased(sdk: AsyncAnthropic, application: Application) -> None:
    file = await sdk.beta.files.upload(file=("secret.txt", b"very secret text"))
    kept = await sdk.beta.files.upload(file=("other.txt", b"something else"))

    deleted = await sdk.beta.files.delete(file.id)

    ledger = (await application.runtime()).context.ledger
    assert (deleted.id, deleted.type) == (file.id, "file_deleted")
    for call in (sdk.beta.files.retrieve_metadata, sdk.beta.files.download, sdk.beta.files.delete):
        with pytest.raises(NotFoundError):
            await call(file.id)
    assert await ledger.blob(hash_blob(b"very secret text")) is None
    assert (await sdk.beta.files.retrieve_metadata(kept.id)).id == kept.id


@proves("v1-files.project")
async def test_a_file_of_another_project_is_unknown(sdk: AsyncAnthropic, application: Application) -> None:
    service = await application.runtime()
    other = await StoredFiles(service.context, "/elsewhere").store("name-of-theirs.txt", "", [b"x"], by="api")
    id_ = f"file_{other.id.removeprefix('s_')}"

    for call in (sdk.beta.files.retrieve_metadata, sdk.beta.files.download, sdk.beta.files.delete):
        with pytest.raises(NotFoundError) as raised:
            await call(id_)
        assert "theirs" not in str(raised.value)
    assert [file.id async for file in sdk.beta.files.list()] == []


@proves("v1-files.names")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\notes.txt", "notes.txt"),
        ("..", "unnamed.txt"),
        ("/", "unnamed.txt"),
        ("a:b?.txt", "a_b_.txt"),
        ("große Liste.txt", "große Liste.txt"),
    ],
)
async def test_of_a_name_only_its_harmless_last_component_is_kept(sdk: AsyncAnthropic, name: str, expected: str) -> None:
    file = await sdk.beta.files.upload(file=(name, b"x", "text/plain"))

    assert file.filename == expected


@proves("v1-files.limit")
async def test_an_upload_beyond_the_limit_is_refused_with_the_limit_and_nothing_is_stored(
    sdk: AsyncAnthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_api, "MAX_FILE", 3 << 20)
    with pytest.raises(APIStatusError) as just_above:
        await sdk.beta.files.upload(file=("a.bin", b"x" * ((3 << 20) + 1)))
    with pytest.raises(APIStatusError) as far_above:
        await sdk.beta.files.upload(file=("a.bin", b"x" * (9 << 20)))

    for raised in (just_above, far_above):
        assert raised.value.status_code == 413
        assert str(3 << 20) in str(raised.value)
    assert (await sdk.beta.files.list()).data == []


@proves("v1-files.limit")
async def test_a_body_that_hides_its_length_is_cut_off_at_the_limit(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_api, "MAX_FILE", 1 << 20)

    async def endless() -> object:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(64):
            yield b"x" * (1 << 20)

    headers = {**KEY, "content-type": "multipart/form-data; boundary=b"}
    async with httpx2.AsyncClient() as client:
        response = await client.post(f"{url}/v1/files", headers=headers, content=endless())  # type: ignore[arg-type]  # a generator

    assert (response.status_code, response.json()["error"]["type"]) == (413, "request_too_large")


def _form(*parts: str, boundary: str = "b") -> bytes:
    return "".join(f"--{boundary}\r\n{part}\r\n" for part in parts).encode() + f"--{boundary}--\r\n".encode()


_FILE = 'Content-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nx'


@proves("v1-files.multipart")
@pytest.mark.parametrize(
    ("type_", "body", "words"),
    [
        ("application/json", b"{}", "multipart/form-data"),
        ("multipart/form-data", _form(_FILE), "boundary"),
        ("multipart/form-data; boundary=b", b"no parts at all", "multipart/form-data"),
        ("multipart/form-data; boundary=b", _form(_FILE, _FILE), "exactly one"),
        ("multipart/form-data; boundary=b", _form(_FILE, _FILE, _FILE), "Too many files"),
        ("multipart/form-data; boundary=b", _form(_FILE.replace('"file"', '"other"')), "named file"),
        ("multipart/form-data; boundary=b", _form('Content-Disposition: form-data; name="file"\r\n\r\nx'), "file"),
        ("multipart/form-data; boundary=b", _form(_FILE, 'Content-Disposition: form-data; name="extra"\r\n\r\nx'), "extra"),
        ("multipart/form-data; boundary=b", _form("Content-Disposition: form-data\r\n\r\nx"), "name"),
        (
            "multipart/form-data; boundary=b",
            _form(_FILE, *['Content-Disposition: form-data; name="expires_in_seconds"\r\n\r\n3600'] * 2),
            "twice",
        ),
    ],
)
async def test_a_wrong_body_is_refused_with_what_is_wrong(url: str, type_: str, body: bytes, words: str) -> None:
    async with httpx2.AsyncClient() as client:
        response = await client.post(f"{url}/v1/files", headers={**KEY, "content-type": type_}, content=body)
        listed = await client.get(f"{url}/v1/files", headers=KEY)

    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert words in response.json()["error"]["message"]
    assert listed.json() == {"data": [], "next_page": None}


@proves("v1-files.expiry")
async def test_an_expired_file_cannot_be_read_and_is_erased_by_its_job(
    sdk: AsyncAnthropic, application: Application, project: Path
) -> None:
    file = await sdk.beta.files.upload(file=("a.txt", b"for an hour"), expires_in_seconds=3600)
    context = (await application.runtime()).context
    session = f"s_{file.id.removeprefix('file_')}"

    assert file.expires_at is not None
    assert (file.expires_at - file.created_at).total_seconds() == 3600
    (job,) = await context.ledger.jobs(kind=EXPIRY_JOB)
    assert job.session == session
    # The object has its time from the commit, a moment later.
    assert -1 <= file.expires_at.timestamp() * 1000 - job.due < 10_000
    loaded = await StoredFiles(context, str(project)).load(session)
    later = StoredFiles(_at(context, find_expiry(loaded) or 0), str(project))
    with pytest.raises(SessionNotFound, match="expired"):
        later.require_unexpired(loaded)
    with pytest.raises(BadRequestError, match="expires_in_seconds"):
        await sdk.beta.files.upload(file=("a.txt", b"x"), expires_in_seconds=10)


def _at(context: RuntimeContext, now: int) -> RuntimeContext:
    return replace(context, clock=lambda: now)


@proves("v1-files.idempotency")
async def test_a_repeated_upload_with_the_same_key_stores_one_file(sdk: AsyncAnthropic) -> None:
    headers = {"Idempotency-Key": "upload-1"}
    uploads = await asyncio.gather(*(sdk.beta.files.upload(file=("a.txt", b"same"), extra_headers=headers) for _ in range(3)))

    assert len({file.id for file in uploads}) == 1
    with pytest.raises(ConflictError):
        await sdk.beta.files.upload(file=("a.txt", b"different"), extra_headers=headers)


@proves("v1-files.agents")
async def test_an_agent_reads_files_but_neither_uploads_nor_deletes_them(sdk: AsyncAnthropic, url: str) -> None:
    file = await sdk.beta.files.upload(file=("a.txt", b"x"))

    async with AsyncAnthropic(
        base_url=url, api_key=TOKEN, max_retries=0, default_headers={"Fidelio-Agent": "s_0123456789ab.1"}
    ) as agent:
        assert (await agent.beta.files.retrieve_metadata(file.id)).id == file.id
        for call in (lambda: agent.beta.files.upload(file=("b", b"x")), lambda: agent.beta.files.delete(file.id)):
            with pytest.raises(APIStatusError) as raised:
                await call()
            assert raised.value.status_code == 403
