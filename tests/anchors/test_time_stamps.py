"""Time stamps of RFC 3161, by a real authority: openssl behind a small HTTP server on loopback."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from fidelio.anchors import time_stamps
from fidelio.anchors.model import encode_anchor, parse_anchor
from fidelio.anchors.service import AnchorService, AnchorVerdicts
from fidelio.errors import AnchorProblem, UsageProblem
from fidelio.ledger import Ledger
from tests.anchors.conftest import list_names, read
from tests.support import proves
from tests.support.ledgers import say, start
from tests.support.parts import require_part

CONFIG = """
[tsa]
default_tsa = authority
[authority]
serial = serial
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
ess_cert_id_alg = sha256
"""
USAGE = "extendedKeyUsage=critical,timeStamping\nkeyUsage=critical,digitalSignature\n"


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=60)


def make_authority(directory: Path, name: str) -> Path:
    """A certificate authority and a time-stamping server that it certifies."""
    if shutil.which("openssl") is None:
        require_part("openssl", "Install openssl.")
    path = directory / name
    path.mkdir()
    (path / "serial").write_text("01\n")
    (path / "tsa.cnf").write_text(CONFIG)
    (path / "usage").write_text(USAGE)
    key = ("-newkey", "rsa:2048", "-nodes")
    openssl(path, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", f"/CN={name} CA", "-days", "2")
    openssl(path, "req", *key, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", f"/CN={name} TSA")
    signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "usage", "-days", "2")
    openssl(path, "x509", "-req", "-in", "tsa.csr", *signer, "-out", "tsa.pem")
    return path


class Replies(ThreadingHTTPServer):
    """A server that stamps with an authority, or gives the fixed reply of a test."""

    daemon_threads = True
    authority: Path
    reply: bytes | None = None
    status = 200

    def stamp(self, query: bytes) -> bytes:
        if self.reply is not None:
            return self.reply
        (self.authority / "query").write_bytes(query)
        signer = ("-signer", "tsa.pem", "-inkey", "tsa.key", "-config", "tsa.cnf")
        openssl(self.authority, "ts", "-reply", "-queryfile", "query", *signer, "-out", "reply")
        return (self.authority / "reply").read_bytes()


class Handler(BaseHTTPRequestHandler):
    server: Replies

    def do_POST(self) -> None:
        query = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/timestamp-query"
        content = self.server.stamp(query)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Location", "file:///etc/passwd")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(authority: Path) -> Iterator[tuple[str, Replies]]:
    with Replies(("127.0.0.1", 0), Handler) as server:
        server.authority = authority
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", server
        finally:
            server.shutdown()
            thread.join(20)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_authority(tmp_path_factory.mktemp("authority"), "First")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_authority(tmp_path_factory.mktemp("stranger"), "Second")


async def verify(service: AnchorService, place: str | Path, roots: Path | None) -> AnchorVerdicts:
    return await service.verify([str(place)], service.trust((), str(roots) if roots else ""))


@proves("anchors.time-stamps")
async def test_a_stamp_of_the_authority_is_verified_and_names_its_time(
    ledger: Ledger, service: AnchorService, directory: Path, authority: Path
) -> None:
    await start(ledger, "a")
    with serving(authority) as (url, _):
        created = await service.create(str(directory), tsa=url)
    verdicts = await verify(service, directory, authority / "ca.pem")
    stamp = verdicts.anchors[0].time_stamp

    assert verdicts.holds
    assert stamp is not None
    assert (stamp.state, stamp.authority) == ("verified", "CN=First TSA")
    assert stamp.time > 1_700_000_000_000
    assert json.loads(read(created.location))["time_stamp"]


@proves("anchors.time-stamps")
async def test_without_a_certificate_the_stamp_is_neither_a_proof_nor_a_contradiction(
    service: AnchorService, directory: Path, authority: Path
) -> None:
    with serving(authority) as (url, _):
        await service.create(str(directory), tsa=url)
    verdicts = await verify(service, directory, None)
    stamp = verdicts.anchors[0].time_stamp

    assert verdicts.holds
    assert stamp is not None
    assert (stamp.state, stamp.time) == ("unverified", 0)


@proves("anchors.time-stamps")
async def test_a_stamp_of_another_authority_or_another_anchor_is_refused(
    ledger: Ledger, service: AnchorService, directory: Path, authority: Path, stranger: Path
) -> None:
    await start(ledger, "a")
    with serving(authority) as (url, _):
        first = await service.create(str(directory), tsa=url)
    with serving(stranger) as (url, _):
        await say(ledger, "a", {})
        second = await service.create(str(directory), tsa=url)
    anchor, other = (parse_anchor(read(created.location), "x") for created in (first, second))
    broken = base64.b64encode(base64.b64decode(anchor.time_stamp)[:-1] + b"\0").decode()
    states = {}
    for name, stamp in {"own": anchor.time_stamp, "other": other.time_stamp, "broken": broken, "text": "AAAA"}.items():
        file = directory / f"{name}.json"
        file.write_bytes(encode_anchor(msgspec.structs.replace(anchor, time_stamp=stamp)))
        verdicts = await verify(service, file, authority / "ca.pem")
        found = verdicts.anchors[0].time_stamp
        states[name] = (found and found.state, verdicts.holds)
    strangers = await verify(service, second.location, authority / "ca.pem")
    moved = directory / "moved.json"
    moved.write_bytes(encode_anchor(msgspec.structs.replace(other, time_stamp=anchor.time_stamp)))
    moved_stamp = await verify(service, moved, authority / "ca.pem")

    assert states.pop("own") == ("verified", True)
    assert set(states.values()) == {("invalid", False)}
    assert (strangers.holds, moved_stamp.holds) == (False, False)


@proves("anchors.time-stamps")
async def test_a_server_that_fails_leaves_no_anchor_behind(service: AnchorService, directory: Path, authority: Path) -> None:
    with serving(authority) as (url, server):
        server.reply, old = b"", server.reply
        for reply, status, words in (
            (b"nonsense", 200, "is no time stamp"),
            (b"", 200, "is no time stamp"),
            (b"x" * (time_stamps.MAX_REPLY + 1), 200, "has more than 128 KiB"),
            (b"", 500, "HTTP Error 500"),
            (b"", 302, "HTTP Error 302"),
        ):
            server.reply, server.status = reply, status
            with pytest.raises(AnchorProblem, match=words):
                await service.create(str(directory), tsa=url)
        server.reply, server.status = old, 200
        await service.create(str(directory), tsa=url)
        # A recorded reply of an earlier request.
        server.reply = (authority / "reply").read_bytes()
        with pytest.raises(AnchorProblem, match="belongs to another request"):
            await service.create(str(directory), tsa=url)
    with pytest.raises(AnchorProblem, match="Connection refused"):
        await service.create(str(directory), tsa=url)

    assert list_names(directory) == ["anchor-000001.json"]


@proves("anchors.time-stamps")
def test_a_recorded_reply_to_the_same_message_is_refused(authority: Path) -> None:
    with serving(authority) as (url, server):
        first = time_stamps.request_time_stamp(url, b"message")
        server.reply = base64.b64decode(first)
        with pytest.raises(AnchorProblem, match="belongs to another request"):
            time_stamps.request_time_stamp(url, b"message")


@proves("anchors.time-stamps")
@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/", "x", "http://", "http://a b/", "http://[::1", "http://x:99999/"]
)
async def test_an_address_that_is_no_server_is_refused(service: AnchorService, directory: Path, url: str) -> None:
    with pytest.raises(UsageProblem, match="is not the address of a time-stamping server"):
        await service.create(str(directory), tsa=url)


@proves("anchors.time-stamps")
async def test_a_missing_library_and_a_bad_certificate_file_are_clear_errors(
    service: AnchorService, directory: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(authority) as (url, _):
        await service.create(str(directory), tsa=url)
        with pytest.raises(AnchorProblem, match="names no certificates"):
            await verify(service, directory, authority / "serial")
        monkeypatch.setitem(sys.modules, "rfc3161_client", None)
        with pytest.raises(AnchorProblem, match="library for time stamps is not installed"):
            await service.create(str(directory), tsa=url)
