"""The rules of the proxy: names, addresses, requests and ClientHellos, without a connection."""

from __future__ import annotations

import ipaddress
import ssl
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.sandbox.host.proxy.addresses import is_listed, is_own, is_public, normalize_name
from fidelio.sandbox.host.proxy.hello import ClientHello, HelloProblem, read_hello
from fidelio.sandbox.host.proxy.requests import RequestProblem, parse_request
from tests.support import proves


@cache
def client_hello(name: str | None) -> bytes:
    """What a real client sends first."""
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=name) if name else _unnamed(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def _unnamed(incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_bio(incoming, outgoing)


@proves("sandbox.proxy-names")
@pytest.mark.parametrize(
    "name",
    ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "1.2.3.4.", "[::1]", "::1", "", ".", "a..b",
     "-a.b", "a-.b", "a b", "ä.example", "a/b", "a@b", "a%00b", "x" * 64, "a." * 127 + "toolong", "0x", "example.0x10",
     "example.123"],
)  # fmt: skip
def test_addresses_in_any_spelling_are_no_names(name: str) -> None:
    assert normalize_name(name) == ""


@proves("sandbox.proxy-names")
def test_names_are_compared_without_case_and_final_dot() -> None:
    assert normalize_name("PyPI.Org.") == "pypi.org"
    assert normalize_name("xn--bcher-kva.example") == "xn--bcher-kva.example"
    assert normalize_name("_dmarc.example") == "_dmarc.example"


@proves("sandbox.proxy-names")
def test_a_wildcard_covers_subdomains_and_nothing_else() -> None:
    hosts = ("pypi.org", "*.Example.org.")

    assert is_listed("pypi.org", hosts)
    assert is_listed("a.example.org", hosts)
    assert is_listed("a.b.example.org", hosts)
    assert not is_listed("example.org", hosts)
    assert not is_listed("badexample.org", hosts)
    assert not is_listed("files.pypi.org", hosts)
    assert not is_listed("pypi.org.evil.example", hosts)
    assert not is_listed("anything", ())


@proves("sandbox.proxy-addresses")
@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.169.254", "172.16.0.1",
     "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1",
     "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1",
     "::ffff:8.8.8.8", "::127.0.0.1",
     "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "fc00::1", "fd00::1", "fe80::1",
     "fec0::1", "ff02::1", "3fff::1"],
)  # fmt: skip
def test_addresses_that_are_not_of_the_public_internet_are_refused(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@proves("sandbox.proxy-addresses")
@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "2606:4700::1111", "2a00::1"]
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@proves("sandbox.proxy-addresses")
@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_what_python_calls_private_is_never_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    special = address.is_private or address.is_loopback or address.is_link_local or address.is_multicast or address.is_reserved

    assert not (special and is_public(address))


@proves("sandbox.proxy-addresses")
def test_an_address_of_this_machine_is_recognized() -> None:
    assert is_own(ipaddress.ip_address("127.0.0.1"))
    assert is_own(ipaddress.ip_address("127.0.0.77"))
    assert not is_own(ipaddress.ip_address("198.51.100.7"))


@proves("sandbox.proxy-requests")
@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("CONNECT example.org:443 HTTP/1.1\nHost: x", "malformed"),
        ("CONNECT example.org:443", "malformed"),
        ("CONNECT  example.org:443 HTTP/1.1", "malformed"),
        ("CONNECT example.org:22 HTTP/1.1", "port"),
        ("CONNECT example.org:80 HTTP/1.1", "port"),
        ("CONNECT example.org HTTP/1.1", "port"),
        ("CONNECT 127.0.0.1:443 HTTP/1.1", "address"),
        ("CONNECT [::1]:443 HTTP/1.1", "address"),
        ("CONNECT 2130706433:443 HTTP/1.1", "address"),
        ("CONNECT user@example.org:443 HTTP/1.1", "address"),
        ("GET / HTTP/1.1\r\nHost: example.org", "malformed"),
        ("GET https://example.org/ HTTP/1.1\r\nHost: example.org", "malformed"),
        ("GET ftp://example.org/ HTTP/1.1\r\nHost: example.org", "malformed"),
        ("GET http://example.org:8080/ HTTP/1.1\r\nHost: example.org:8080", "port"),
        ("GET http://example.org:443/ HTTP/1.1\r\nHost: example.org:443", "port"),
        ("GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1", "address"),
        ("GET http://example.org@127.0.0.1/ HTTP/1.1\r\nHost: example.org", "address"),
        ("GET http://example.org/ HTTP/1.1\r\nHost: other.org", "host_header"),
        ("GET http://example.org/ HTTP/1.1", "host_header"),
        ("GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nHost: other.org", "host_header"),
        ("GET http://example.org/ HTTP/1.1\r\nHost: example.org:8080", "host_header"),
        ("GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n folded", "malformed"),
        ("GET http://example.org/ HTTP/1.1\r\nHost : example.org", "malformed"),
        ("GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nX: a\rb", "malformed"),
        ("GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nX: \x01", "malformed"),
        ("POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked", "length"),
        ("POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 1\r\nContent-Length: 2", "malformed"),
        ("POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: +1", "malformed"),
        ("\x00\x01\x02", "malformed"),
        ("", "malformed"),
    ],
)
def test_a_request_that_is_not_allowed_is_refused_with_its_reason(head: str, reason: str) -> None:
    with pytest.raises(RequestProblem) as caught:
        parse_request(head.encode())

    assert caught.value.reason == reason


@proves("sandbox.proxy-requests")
def test_a_plain_request_is_rewritten_for_the_server_alone() -> None:
    head = (
        "POST http://Example.org/a/b?c=d#e HTTP/1.1\r\nHost: example.org:80\r\nProxy-Authorization: Basic x\r\n"
        "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\nContent-Length: 3\r\nX: y"
    )

    request = parse_request(head.encode())

    assert (request.kind, request.host, request.port, request.length) == ("plain", "example.org", 80, 3)
    assert (
        request.head == b"POST /a/b?c=d HTTP/1.1\r\nhost: example.org\r\ncontent-length: 3\r\nx: y\r\nconnection: close\r\n\r\n"
    )


@proves("sandbox.proxy-requests")
@pytest.mark.parametrize("option", ["content-length", "Content-Length", "close, content-length", "host"])
def test_a_connection_option_cannot_remove_what_frames_the_request(option: str) -> None:
    """Without its length the server takes the body for another request, with a Host that nobody has checked."""
    head = f"POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nConnection: {option}\r\nContent-Length: 9"

    request = parse_request(head.encode())

    assert request.length == 9
    assert b"\r\ncontent-length: 9\r\n" in request.head
    assert request.head.count(b"host: example.org\r\n") == 1


@proves("sandbox.proxy-requests")
@given(st.binary(max_size=400))
def test_no_request_breaks_the_parser(data: bytes) -> None:
    try:
        request = parse_request(data)
    except RequestProblem:
        return
    assert normalize_name(request.host) == request.host
    assert request.port in (80, 443)


@proves("sandbox.proxy-server-name")
def test_the_name_of_a_real_client_is_read() -> None:
    hello = client_hello("Example.org")

    assert read_hello(hello) == ClientHello("example.org", is_encrypted=False)
    assert read_hello(client_hello(None)) == ClientHello("", is_encrypted=False)
    assert [read_hello(hello[:length]) for length in range(len(hello))] == [None] * len(hello)
    # The rest belongs to what follows.
    assert read_hello(hello + b"more") == ClientHello("example.org", is_encrypted=False)


def split_records(hello: bytes, size: int) -> bytes:
    """The same message in records of `size` bytes."""
    message = hello[5:]
    pieces = [message[start : start + size] for start in range(0, len(message), size)]
    return b"".join(hello[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


@proves("sandbox.proxy-server-name")
@pytest.mark.parametrize("size", [1, 3, 50, 200])
def test_a_name_that_is_split_over_records_is_read(size: int) -> None:
    assert read_hello(split_records(client_hello("example.org"), size)) == ClientHello("example.org", is_encrypted=False)


@proves("sandbox.proxy-server-name")
@given(st.binary(max_size=600))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    try:
        read_hello(data)
        read_hello(b"\x16\x03\x01" + len(data).to_bytes(2) + data)
    except HelloProblem:
        return


@proves("sandbox.proxy-server-name")
@given(st.data())
def test_a_changed_hello_gives_a_name_or_an_error(data: st.DataObject) -> None:
    hello = bytearray(client_hello("example.org"))
    for _ in range(data.draw(st.integers(1, 4))):
        hello[data.draw(st.integers(0, len(hello) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_hello(bytes(hello))
    except HelloProblem:
        return
    assert found is None or isinstance(found.name, str)
