"""Pages of passkeys: the keys of people, and what a browser signs with them.

The browser asks for a challenge, lets its owner touch the authenticator, and sends the signature with the form. A challenge
holds ten minutes. Which signature proves what is decided by `fidelio.app.passkeys`.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fido2.utils import websafe_encode
from starlette.responses import JSONResponse

from fidelio.app.passkeys import (
    PersonKey,
    Signature,
    compute_challenge,
    compute_key_challenge,
    compute_registration_challenge,
    read_new_key,
    read_origin,
)
from fidelio.app.person_keys import PersonKeys
from fidelio.clock import now_ms
from fidelio.errors import PersonKeyProblem, TokenError, UsageProblem
from fidelio.ids import new_id
from fidelio.surfaces.web.access import choose_target, make_link
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Redirect, Result
from fidelio.tokens.seal import Seal

CHALLENGE_MS = 10 * 60 * 1000
_NONCE = "web-nonce"
# The address in the links of this server, which is no name of a host.
_ADDRESS, AT_LOCALHOST = "127.0.0.1", "/passkeys/at-localhost"


async def open_keys(request: PageRequest) -> PersonKeys:
    return PersonKeys((await request.services.application.runtime()).context)


async def has_registered_key(request: PageRequest) -> bool:
    return any(key.state == "registered" for key in await (await open_keys(request)).list())


def read_signature(request: PageRequest) -> Signature:
    """The signature of a form. Raises `PersonKeyProblem` for a challenge that is old or not of this server."""
    fields = request.fields
    nonce = fields.get("nonce", "")
    try:
        Seal(request.services.application.keys(), _NONCE).open(nonce, now=now_ms())
    except TokenError as error:
        raise PersonKeyProblem("The signature is for a challenge that is too old.", remedy="Sign again.") from error
    # A page at another port may have signed where the key was registered: only a form of this very page is taken.
    if fields.get("client_data") and read_origin(fields["client_data"]) != read_page_origin(request):
        raise PersonKeyProblem("It was signed on another page.", remedy="Load the question again and answer it there.")
    names = ("client_data", "authenticator_data", "signature")
    return Signature(fields.get("key", ""), nonce, *(fields.get(name, "") for name in names))


def read_page_origin(request: PageRequest) -> str:
    """The page that a form came from. The browser names it, also behind a proxy; that it has our Host was checked."""
    return request.raw.headers.get("origin") or f"{request.raw.url.scheme}://{request.raw.url.netloc}"


def _make_nonce(request: PageRequest) -> str:
    return Seal(request.services.application.keys(), _NONCE).seal({"id": new_id("", 20)}, expires=now_ms() + CHALLENGE_MS)


def find_other_address(request: PageRequest, target: str) -> str:
    """Where `target` can be signed, if it cannot be here: browsers use passkeys only under the name of a host. Else empty."""
    return f"{AT_LOCALHOST}?{urlencode({'next': target})}" if request.raw.url.hostname == _ADDRESS else ""


async def _go_to_localhost(request: PageRequest) -> Result:
    """The same server under its name, through a sign-in there: cookies are those of a host."""
    url, target = request.raw.url, choose_target(request.query("next", "/passkeys"))
    if url.hostname != _ADDRESS:
        return Redirect(target)
    port = f":{url.port}" if url.port else ""
    return Redirect(make_link(request.services.application.keys(), f"{url.scheme}://localhost{port}", target))


async def _list_keys(request: PageRequest) -> Result:
    keys = await (await open_keys(request)).list()
    other = find_other_address(request, "/passkeys")
    return PageContent("passkeys.html", {"keys": keys, "code": "", "new": None, "other_address": other})


async def _register(request: PageRequest) -> Result:
    """Note a key that the authenticator has made, on a phone too. It counts once it is confirmed."""
    person, fields = await request.require_person(), request.fields
    nonce, page = read_signature(request).nonce, read_page_origin(request)
    challenge = compute_registration_challenge(nonce)
    new = read_new_key(
        fields.get("name", ""), fields.get("client_data", ""), fields.get("attestation", ""), challenge, origin=page
    )
    keys = await open_keys(request)
    code = await keys.request(new, by=person)
    return PageContent("passkeys.html", {"keys": await keys.list(), "code": code, "new": new, "other_address": ""})


async def _confirm(request: PageRequest) -> Result:
    """Confirm a new key with a registered key, whose signature is the proof."""
    person = await request.require_person()
    await (await open_keys(request)).confirm_by_key(request.fields.get("id", ""), read_signature(request), by=person)
    return Redirect("/passkeys")


async def _describe_registration(request: PageRequest) -> Result:
    nonce = _make_nonce(request)
    return JSONResponse({"nonce": nonce, "challenge": websafe_encode(compute_registration_challenge(nonce))})


async def _describe_confirmation(request: PageRequest) -> Result:
    keys = await (await open_keys(request)).list()
    new = next((key for key in keys if key.id == request.query("id") and key.state == "requested"), None)
    if new is None:
        raise PersonKeyProblem("No such key waits for its confirmation.", remedy="Register it again.")
    nonce = _make_nonce(request)
    return _describe_challenge(nonce, compute_key_challenge(new, nonce), keys)


async def _describe_answer(request: PageRequest) -> Result:
    """What the browser lets its owner sign for an answer. Sent as a form, because a comment may be longer than an address."""
    # A signature counts whatever program brings it, so every program may ask what is to be signed.
    await request.require_person(is_signed=True)
    found = await (await request.services.inbox()).find(request.path("request"))
    nonce, option = _make_nonce(request), request.fields.get("option", "")
    if option not in {known["id"] for known in found.options or ({"id": ""},)}:
        raise UsageProblem(f"Request {found.id} has no option {option!r:.80}.", remedy="Load the page again.")
    challenge = compute_challenge(found, option, request.fields.get("text", "").strip(), nonce)
    return _describe_challenge(nonce, challenge, await (await open_keys(request)).list())


def _describe_challenge(nonce: str, challenge: bytes, keys: list[PersonKey]) -> JSONResponse:
    registered: list[Any] = [key.id for key in keys if key.state == "registered"]
    return JSONResponse({"nonce": nonce, "challenge": websafe_encode(challenge), "keys": registered})


ROUTES = (
    PageRoute(path=AT_LOCALHOST, show=_go_to_localhost),
    PageRoute(path="/passkeys", show=_list_keys, change=_register),
    PageRoute(path="/passkeys/registration", show=_describe_registration),
    PageRoute(path="/passkeys/confirmation", show=_describe_confirmation, change=_confirm),
    PageRoute(path="/inbox/{request}/challenge", change=_describe_answer),
)
