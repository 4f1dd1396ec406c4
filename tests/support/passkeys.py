"""A passkey in software: makes keys and signs challenges as an authenticator does, without a browser."""

from __future__ import annotations

import hashlib
import secrets

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

from fidelio.app.passkeys import (
    PersonKey,
    Signature,
    compute_challenge,
    compute_key_challenge,
    compute_registration_challenge,
    read_new_key,
)
from fidelio.app.person_keys import PersonKeys
from fidelio.ledger.model import Request
from fidelio.runtime.tools.model import RuntimeContext

_FLAGS = AuthenticatorData.FLAG.USER_PRESENT | AuthenticatorData.FLAG.USER_VERIFIED


class SoftwareKey:
    """A key of a person, for the pages of `host`."""

    def __init__(self, name: str = "laptop", host: str = "localhost") -> None:
        self.name, self._host = name, host
        # The page on which it is used.
        self.origin = f"http://{host}:7333"
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._id = secrets.token_bytes(16)

    def create(self, *, at: str = "") -> PersonKey:
        """The key as the page `at`, or the one where it is used, reads it from the reply of the authenticator."""
        point = self._private.public_key().public_numbers()
        public = ES256({1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")})
        credential = AttestedCredentialData.create(b"\0" * 16, self._id, public)
        data = AuthenticatorData.create(self._hash_host(), _FLAGS | AuthenticatorData.FLAG.ATTESTED, 0, credential)
        nonce = secrets.token_hex(8)
        challenge = compute_registration_challenge(nonce)
        client = CollectedClientData.create("webauthn.create", challenge, self.origin)
        attestation = AttestationObject.create("none", data, {})
        return read_new_key(self.name, websafe_encode(client), websafe_encode(attestation), challenge, origin=at or self.origin)

    def sign(self, challenge: bytes, nonce: str) -> Signature:
        client = CollectedClientData.create("webauthn.get", challenge, self.origin)
        data = AuthenticatorData.create(self._hash_host(), _FLAGS, 1)
        signed = self._private.sign(bytes(data) + client.hash, ec.ECDSA(hashes.SHA256()))
        return Signature(websafe_encode(self._id), nonce, *(websafe_encode(part) for part in (client, data, signed)))

    def sign_answer(self, request: Request, option: str, text: str = "", *, nonce: str = "") -> dict[str, str]:
        """The proof of an answer."""
        nonce = nonce or secrets.token_hex(8)
        return msgspec.structs.asdict(self.sign(compute_challenge(request, option, text, nonce), nonce))

    def sign_key(self, key: PersonKey) -> Signature:
        """The confirmation of another key."""
        nonce = secrets.token_hex(8)
        return self.sign(compute_key_challenge(key, nonce), nonce)

    def _hash_host(self) -> bytes:
        return hashlib.sha256(self._host.encode()).digest()


async def register_key(context: RuntimeContext, key: SoftwareKey) -> PersonKey:
    """Register a key as a person does, with its code in a terminal."""
    keys = PersonKeys(context)
    return await keys.confirm_by_code(await keys.request(key.create(), by="person:ada"), by="person:ada")
