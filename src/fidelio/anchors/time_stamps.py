"""Time stamps of RFC 3161: a server signs the digest of an anchor together with the time.

The structures and the certificates are checked by the library `rfc3161-client`, which is an optional dependency: CMS is no
format to be parsed by hand where a forged reply would count as a proof.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import urllib.request
from types import ModuleType
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from cryptography import x509

from fidelio.errors import AnchorProblem, UsageProblem

SECONDS = 20.0
MAX_REPLY = 128 << 10
_EXTRA = "fidelio-agents[time-stamps]"


class TimeStampVerdict(msgspec.Struct, frozen=True):
    """Result of a time stamp. Without certificates it is `unverified`: neither a proof nor a contradiction."""

    state: Literal["verified", "unverified", "invalid"]
    time: int = 0
    authority: str = ""
    reason: str = ""


def check_server_url(url: str) -> str:
    """Return the URL of a time-stamping server; raise `UsageProblem` if it is none."""
    try:
        address = urlsplit(url)
        is_valid = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or any(character <= " " for character in url):
        raise UsageProblem(
            f"{url!r:.120} is not the address of a time-stamping server.",
            remedy="Use an address that begins with http:// or https://.",
        )
    return url


def request_time_stamp(url: str, message: bytes) -> str:
    """Let a server stamp the SHA-256 digest of `message`. Blocks; raises `AnchorProblem`."""
    library = load_library()
    request = (
        library.TimestampRequestBuilder().data(message).hash_algorithm(library.HashAlgorithm.SHA256).nonce(nonce=True).build()
    )
    reply = _post(url, request.as_bytes())
    try:
        response = library.decode_timestamp_response(reply)
        imprint, nonce = response.tst_info.message_imprint.message, response.tst_info.nonce
    except ValueError as error:
        raise _failed(url, f"its reply is no time stamp ({error})") from error
    if imprint != hashlib.sha256(message).digest() or nonce != request.nonce:
        raise _failed(url, "its reply belongs to another request")
    return base64.b64encode(reply).decode()


def verify_time_stamp(encoded: str, message: bytes, roots: bytes) -> TimeStampVerdict:
    """Verify a stored time stamp of `message` against the certificates `roots` (PEM)."""
    if not roots:
        return TimeStampVerdict("unverified", reason="no certificate of a time-stamping server was passed (--tsa-ca FILE)")
    library = load_library()
    builder = library.VerifierBuilder()
    for certificate in load_certificates(roots):
        builder = builder.add_root_certificate(certificate)
    try:
        response = library.decode_timestamp_response(base64.b64decode(encoded, validate=True))
        builder.build().verify_message(response, message)
        moment = round(response.tst_info.gen_time.timestamp() * 1000)
    except (library.VerificationError, ValueError, OverflowError) as error:
        return TimeStampVerdict("invalid", reason=str(error))
    return TimeStampVerdict("verified", moment, _name_authority(response))


def load_certificates(pem: bytes) -> list[x509.Certificate]:
    """Read certificates from PEM, each of them once; raises `AnchorProblem`."""
    try:
        return list(dict.fromkeys(x509.load_pem_x509_certificates(pem)))
    except ValueError as error:
        raise AnchorProblem(f"--tsa-ca names no certificates: {error}.", remedy="Pass a file in the PEM format.") from error


def load_library() -> ModuleType:
    """Import the library for time stamps; raise `AnchorProblem` if it is not installed."""
    try:
        import rfc3161_client  # noqa: PLC0415  # an optional dependency
    except ImportError as error:
        raise AnchorProblem(
            "The library for time stamps is not installed.", remedy=f"Install it with `pip install '{_EXTRA}'`."
        ) from error
    return rfc3161_client


def _post(url: str, body: bytes) -> bytes:
    headers = {"Content-Type": "application/timestamp-query", "User-Agent": "fidelio"}
    request = urllib.request.Request(url, body, headers)  # noqa: S310  # the scheme is checked by `check_server_url`
    try:
        with _OPENER.open(request, timeout=SECONDS) as reply:
            content = bytes(reply.read(MAX_REPLY + 1))
    except (OSError, http.client.HTTPException) as error:
        raise _failed(url, str(error) or type(error).__name__) from error
    if len(content) > MAX_REPLY:
        raise _failed(url, f"its reply has more than {MAX_REPLY >> 10} KiB")
    return content


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it could lead to a file or to another scheme."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _name_authority(response: Any) -> str:
    """The subject of the certificate that signed. The name in the reply itself is not covered by the certificate."""
    numbers = {signer.serial_number for signer in response.signed_data.signer_infos}
    certificates = map(x509.load_der_x509_certificate, response.signed_data.certificates)
    return ", ".join(each.subject.rfc4514_string() for each in certificates if each.serial_number in numbers)


def _failed(url: str, reason: str) -> AnchorProblem:
    return AnchorProblem(
        f"The time-stamping server {url} has not stamped the anchor: {reason}.",
        remedy="Check the address, or write the anchor without a time stamp.",
    )
