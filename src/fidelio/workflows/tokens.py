"""Session tokens, which open a record, and trace tokens, which commit to a range of its events.

A session token contains the position of a session at the time it was made, and opens the current record. The same string serves
as the checkpoint handle: then it contains the id of the request. The short handle (`s_…`) is only the id of a session, and the
short form (`s_….2.3`) names also an agent and a visit. Both prove nothing; the policy of the server decides whether they are
accepted.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fidelio.clock import Clock
from fidelio.engine.record import Record
from fidelio.errors import BadToken
from fidelio.ids import ShortToken, is_short_handle, parse_short_token
from fidelio.tokens.keyring import KeyRing
from fidelio.tokens.packed import MAX_BYTES, PREFIX, PackedSeal
from fidelio.tokens.seal import Seal, read_unverified

T = TypeVar("T")
# A text that a definition or a caller chose is replaced by its digest if its JSON is longer than this.
LONGEST_TEXT = 48
# Upper bounds for tokens: a longer token has its informational claims replaced by digests until it fits.
LONGEST_FRESH = 319
LONGEST_TOKEN = 700
LONGEST_TRACE = 300
# Informational claims, the least important first. No rule depends on them.
_INFORMATION = ("cond", "skill", "pv", "pact", "pwf", "pcp", "v", "wf", "aid")
# Session ids of other servers that can be adopted: at most as long as a UUID, in characters that every ledger accepts.
_ADOPTABLE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:~-]{0,35}")


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a session token. Optional claims are omitted from the token if they do not apply."""

    sid: str
    wf: str = ""
    act: str | None = None
    vis: int | None = None
    skill: str = ""
    cond: str = ""
    v: str = ""
    seq: int = 0
    ts: int = 0
    aid: str = "orchestrator"
    bcp: str | None = None
    req: str | None = None
    psid: str | None = None
    pwf: str | None = None
    pact: str | None = None
    pv: str | None = None
    # The checkpoints that were armed when the activity was entered, and the time of it.
    pcp: list[str] | None = None
    pcpt: int | None = None


class ShortClaims(Claims, frozen=True, kw_only=True):
    """The claims of the short form of a token. `agent` is the number of an agent; the record of the session has its name."""

    agent: int


class CarriedSession(msgspec.Struct, frozen=True):
    """A session in a state token, from which a server whose ledger does not have the session can restore it."""

    session: str
    record: Record


class StateClaims(Claims, frozen=True, kw_only=True):
    """The claims of a state token: also the records of the parents that wait for the session, and its own record last."""

    carried: msgspec.Raw

    def carried_sessions(self) -> tuple[CarriedSession, ...]:
        return _decode(self.carried, tuple[CarriedSession, ...])


class TokenSubject(msgspec.Struct, frozen=True):
    """The checkpoint and request that a handle refers to."""

    checkpoint: str
    request: str


class Segment(msgspec.Struct, frozen=True):
    """A range of events that a trace token commits to: `head` is the hash of its last event."""

    sid: str
    act: str
    first: int
    last: int
    head: bytes
    ts: int


class SessionTokens:
    """Makes and opens the tokens of workflow sessions."""

    def __init__(self, keys: KeyRing, clock: Clock) -> None:
        self._sessions = Seal(keys, "session")
        self._traces = Seal(keys, "trace")
        self._states = PackedSeal(keys, "state")
        self._clock = clock

    def make(self, session: str, record: Record, *, agent: str, subject: TokenSubject | None = None) -> str:
        """Make a session token. `subject` is the request that it refers to if that is not the pending request.

        The claim `bcp` is only set while the request is open; `req` identifies it afterwards, too.
        """
        claims: dict[str, Any] = {
            "sid": session,
            "wf": shorten_claim(record.workflow),
            "act": shorten_claim(record.activity),
            "skill": shorten_claim(record.skill),
            "cond": shorten_claim(record.condition),
            "v": shorten_claim(record.version),
            "seq": record.seq,
            "ts": self._clock() // 1000,
            "aid": shorten_claim(agent),
            **_visit(record),
        }
        if subject is None and (waiting := record.waiting) is not None:
            subject = TokenSubject(waiting.checkpoint, waiting.request)
        if subject is not None:
            claims["req"] = subject.request
            if any(pending.request == subject.request for pending in record.pending):
                claims["bcp"] = shorten_claim(subject.checkpoint)
        if (parent := record.parent) is not None:
            position = {
                "pwf": shorten_claim(parent.workflow),
                "pact": shorten_claim(parent.activity),
                "pv": shorten_claim(parent.version),
            }
            claims |= {"psid": parent.session, **position}
        if record.armed:
            claims["pcp"] = [pending.checkpoint for pending in record.pending]
            claims["pcpt"] = record.armed[0].yielded_at // 1000
        return _seal_bounded(self._sessions, claims, LONGEST_TOKEN if record.visits or record.parent else LONGEST_FRESH)

    def make_short(self, session: str, record: Record, *, agent: str, subject: TokenSubject | None = None) -> str:
        """Make the short form of a session token; empty for a session or an agent that it cannot name."""
        if not is_short_handle(session) or agent not in record.agents:
            return ""
        refers_to = subject or record.waiting
        request = refers_to.request if refers_to is not None else ""
        short = str(ShortToken(session, record.agents.index(agent) + 1, record.visit, request))
        return short if parse_short_token(short) else ""

    def make_state(self, carried: Sequence[CarriedSession], *, agent: str) -> str:
        """Make a state token, which opens the last of these sessions and carries all of them."""
        session, record = carried[-1].session, carried[-1].record
        position = {"wf": shorten_claim(record.workflow), "act": shorten_claim(record.activity), "seq": record.seq}
        claims: dict[str, Any] = {
            "sid": session,
            **position,
            **_visit(record),
            "ts": self._clock() // 1000,
            "aid": shorten_claim(agent),
            "carried": msgspec.Raw(msgspec.json.encode([_without_root(session) for session in carried])),
        }
        if (waiting := record.waiting) is not None:
            claims |= {"bcp": shorten_claim(waiting.checkpoint), "req": waiting.request}
        content = msgspec.json.encode(claims)
        if len(content) > MAX_BYTES:
            # Too large to carry the records: such a token opens the session only where the ledger has it.
            return self._states.seal(msgspec.json.encode({**claims, "carried": ()}))
        return self._states.seal(content)

    def open(self, token: str) -> Claims:
        """Return the claims of a genuine token, a short form or a short handle; raise `BadToken` for any other."""
        if is_short_handle(token):
            return Claims(sid=token)
        if (short := parse_short_token(token)) is not None:
            return ShortClaims(sid=short.session, agent=short.agent, vis=short.visit, req=short.request or None)
        if token.startswith(PREFIX):
            return _decode(self._states.open(token), StateClaims)
        return _convert_claims(self._sessions.open(token, now=self._clock()))

    def read_unverified(self, token: str) -> Claims | None:
        """Read the claims of a token that does not verify; None if no session can be adopted from it."""
        payload = read_unverified(token) or _read_foreign(token)
        try:
            claims = _convert_claims(payload) if payload else None
        except BadToken:
            return None
        return claims if claims is not None and claims.wf and _ADOPTABLE_ID.fullmatch(claims.sid) else None

    def make_trace(self, segment: Segment) -> str:
        """Make a trace token."""
        head = base64.urlsafe_b64encode(segment.head).rstrip(b"=").decode()
        span = [segment.first, segment.last, segment.ts]
        claims = {"sid": segment.sid, "act": shorten_claim(segment.act), "span": span, "head": head}
        return _seal_bounded(self._traces, claims, LONGEST_TRACE, spare=("act",))

    def open_trace(self, token: str) -> Segment:
        """Open a trace token; raise `BadToken` if it is not genuine."""
        payload = self._traces.open(token, now=self._clock())
        first, last, ts = payload["span"]
        head = base64.urlsafe_b64decode(payload["head"] + "=")
        return Segment(payload["sid"], payload["act"], first, last, head, ts)


def _without_root(carried: CarriedSession) -> CarriedSession:
    """Remove the path of the definition: clients can read a state token, and must not learn paths of the server."""
    return replace(carried, record=replace(carried.record, found_in="", loaded={}))


def _visit(record: Record) -> dict[str, int]:
    """The claim of the current visit, so that a late call is not applied to a later visit."""
    return {"vis": record.visit} if record.visit else {}


def _seal_bounded(seal: Seal, claims: dict[str, Any], longest: int, *, spare: Sequence[str] = _INFORMATION) -> str:
    """Seal the claims; replace as many of the `spare` claims by digests as needed to stay within `longest`."""
    token = seal.seal(claims)
    for key in spare:
        if len(token) <= longest:
            break
        if text := claims.get(key):
            claims[key] = _brief(text) if isinstance(text, str) else [_brief(" ".join(text))]
            token = seal.seal(claims)
    return token


def shorten_claim(text: str) -> str:
    """Return a text as a token contains it: a long text is replaced by its digest."""
    # Measured as JSON: a character takes up to four bytes, or six if it is escaped.
    return text if len(msgspec.json.encode(text)) <= LONGEST_TEXT + 2 else _digest(text)


def matches_claim(claimed: str, text: str) -> bool:
    """Whether a claim is this text or a digest of it."""
    return claimed in (text, shorten_claim(text), _brief(text), _brief(shorten_claim(text)))


def mask_session_id(session: str) -> str:
    """Replace a session id by a digest, which is unique and opens no session."""
    return _digest(session)


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:32]


def _brief(text: str) -> str:
    short = "#" + hashlib.sha256(text.encode()).hexdigest()[:10]
    return short if len(msgspec.json.encode(text)) > len(short) + 2 else text


def _read_foreign(token: str) -> dict[str, Any] | None:
    """Read a token of another implementation: a base64 payload, a dot, and a signature that cannot be verified here."""
    content, dot, _ = token.rpartition(".")
    try:
        payload = msgspec.json.decode(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
    except ValueError:
        return None
    wanted = {"wf", "act", "sid"}
    return (
        {key: value for key, value in payload.items() if key != "bcp"}
        if dot and isinstance(payload, dict) and wanted <= set(payload)
        else None
    )


def _decode(content: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode the content of a genuine state token. Another version of the server may have sealed content of another form."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise BadToken("This server cannot decode the content of this state.", remedy="Begin again with nav_start.") from error


def _convert_claims(payload: dict[str, Any]) -> Claims:
    try:
        return msgspec.convert(payload, Claims)
    except msgspec.ValidationError as error:
        raise BadToken("This token does not name a session.", remedy="Call start_session for a new one.") from error
