"""Session tokens, which open a record, and trace tokens, which commit to a range of its events.

A session token says where a session stood when it was made and opens the record of where it stands. The same string serves as
the checkpoint handle: then it names its checkpoint by the request that waits. The short handle (`s_…`) names a session and
proves nothing; whoever accepts it decides whether naming is enough.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fidelio.clock import Clock
from fidelio.engine.record import Record
from fidelio.errors import BadToken
from fidelio.ids import is_short_handle
from fidelio.tokens.keyring import KeyRing
from fidelio.tokens.packed import MAX_BYTES, PackedSeal, is_packed
from fidelio.tokens.seal import Seal, read_unverified

T = TypeVar("T")
# What a definition or a caller chose is carried as its digest when it takes more bytes than this.
LONGEST_TEXT = 48
# A token that would still be longer gives up what it says for information only, so these hold whatever anybody says.
LONGEST_FRESH = 319
LONGEST_TOKEN = 700
LONGEST_TRACE = 300
# The least important first. No rule goes by any of it.
_INFORMATION = ("cond", "skill", "pv", "pact", "pwf", "pcp", "v", "wf", "aid")
# The ids of other servers that we can go on with: those of a UUID's length, of letters that every ledger takes.
_KEEPABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:~-]{0,35}")
MOST_REMEMBERED = 64
LARGEST_REMEMBERED = 16_384


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a session token says. Optional keys are left out of the token where they do not apply."""

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
    # The questions that wait since the activity was entered, and when that was.
    pcp: list[str] | None = None
    pcpt: int | None = None


class CarriedSession(msgspec.Struct, frozen=True):
    """A session as a state token carries it, so that a server whose ledger does not know it can go on with it."""

    session: str
    record: Record


class StateClaims(Claims, frozen=True, kw_only=True):
    """What a state token says: the same, and the records of the session and of the parents that wait for it, these first."""

    carried: msgspec.Raw

    def carried_sessions(self) -> tuple[CarriedSession, ...]:
        return _decoded(self.carried, tuple[CarriedSession, ...])


class About(msgspec.Struct, frozen=True):
    """The question that a handle stands for."""

    checkpoint: str
    request: str


class Segment(msgspec.Struct, frozen=True):
    """A stretch of a session that a trace token commits to: `head` is the hash of its last event."""

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
        self._made: dict[str, Claims] = {}

    def make(self, session: str, record: Record, *, agent: str, about: About | None = None) -> str:
        """`about` is the question that the token is to stand for, where that is not the one that waits.

        `bcp` is said of a question that waits; once it has its answer, `req` alone tells which one the handle stands for.
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
        if about is None and (waiting := record.waiting) is not None:
            about = About(waiting.checkpoint, waiting.request)
        if about is not None:
            claims["req"] = about.request
            if any(one.request == about.request for one in record.pending):
                claims["bcp"] = shorten_claim(about.checkpoint)
        if (parent := record.parent) is not None:
            place = {
                "pwf": shorten_claim(parent.workflow),
                "pact": shorten_claim(parent.activity),
                "pv": shorten_claim(parent.version),
            }
            claims |= {"psid": parent.session, **place}
        if record.armed:
            claims["pcp"] = [one.checkpoint for one in record.pending]
            claims["pcpt"] = record.armed[0].yielded_at // 1000
        token = _sealed(self._sessions, claims, LONGEST_TOKEN if record.visits or record.parent else LONGEST_FRESH)
        self._remember(token, Claims(**claims))
        return token

    def _remember(self, token: str, claims: Claims) -> None:
        if len(self._made) >= MOST_REMEMBERED:
            del self._made[next(iter(self._made))]
        self._made[token] = claims

    def make_state(self, carried: Sequence[CarriedSession], *, agent: str) -> str:
        """A token that opens the last of these sessions, and holds all of them for a server that knows none."""
        session, record = carried[-1].session, carried[-1].record
        place = {"wf": shorten_claim(record.workflow), "act": shorten_claim(record.activity), "seq": record.seq}
        claims: dict[str, Any] = {
            "sid": session,
            **place,
            **_visit(record),
            "ts": self._clock() // 1000,
            "aid": shorten_claim(agent),
            "carried": msgspec.Raw(msgspec.json.encode([_as_carried(one) for one in carried])),
        }
        if (waiting := record.waiting) is not None:
            claims |= {"bcp": shorten_claim(waiting.checkpoint), "req": waiting.request}
        content = msgspec.json.encode(claims)
        if len(content) > MAX_BYTES:
            # What is too large to carry still opens the session where the ledger knows it.
            return self._states.seal(msgspec.json.encode({**claims, "carried": ()}))
        token = self._states.seal(content)
        if len(content) <= LARGEST_REMEMBERED:
            self._remember(token, StateClaims(**claims))
        return token

    def open(self, token: str) -> Claims:
        """What a genuine token or a short handle says; raises `BadToken`."""
        # The token of a call is nearly always the one that the call before it returned.
        known = self._made.get(token)
        if known is not None:
            return known
        if is_short_handle(token):
            return Claims(sid=token)
        if is_packed(token):
            return _decoded(self._states.open(token), StateClaims)
        return _claims(self._sessions.open(token, now=self._clock()))

    def claimed(self, token: str) -> Claims | None:
        """What a token says that does not verify, when a session could go on from it. It proves nothing."""
        payload = read_unverified(token) or _of_another_server(token)
        try:
            claims = _claims(payload) if payload else None
        except BadToken:
            return None
        return claims if claims is not None and claims.wf and _KEEPABLE.fullmatch(claims.sid) else None

    def make_trace(self, segment: Segment) -> str:
        head = base64.urlsafe_b64encode(segment.head).rstrip(b"=").decode()
        span = [segment.first, segment.last, segment.ts]
        claims = {"sid": segment.sid, "act": shorten_claim(segment.act), "span": span, "head": head}
        return _sealed(self._traces, claims, LONGEST_TRACE, spare=("act",))

    def open_trace(self, token: str) -> Segment:
        payload = self._traces.open(token, now=self._clock())
        first, last, ts = payload["span"]
        head = base64.urlsafe_b64decode(payload["head"] + "=")
        return Segment(payload["sid"], payload["act"], first, last, head, ts)


def _as_carried(kept: CarriedSession) -> CarriedSession:
    """Whoever has a state can read it, and where a server keeps its files is no business of theirs."""
    return replace(kept, record=replace(kept.record, found_in=""))


def _visit(record: Record) -> dict[str, int]:
    """Which visit of its activity the token is of, so that a late call is not taken for one about a later visit."""
    return {"vis": record.visit} if record.visit else {}


def _sealed(seal: Seal, claims: dict[str, Any], longest: int, *, spare: Sequence[str] = _INFORMATION) -> str:
    """The token, of which as many of the spare texts are digests as it takes to stay within its length."""
    token = seal.seal(claims)
    for key in spare:
        if len(token) <= longest:
            break
        if text := claims.get(key):
            claims[key] = _brief(text) if isinstance(text, str) else [_brief(" ".join(text))]
            token = seal.seal(claims)
    return token


@lru_cache(maxsize=1024)
def shorten_claim(text: str) -> str:
    # As JSON, because that is what takes room: a letter may have four bytes, or six when it is escaped.
    return text if len(msgspec.json.encode(text)) <= LONGEST_TEXT + 2 else _digest(text)


def matches_claim(claimed: str, text: str) -> bool:
    """Whether a token that says the one may mean the other."""
    return claimed in (text, shorten_claim(text), _brief(text), _brief(shorten_claim(text)))


def alias(session: str) -> str:
    """A name that tells sessions apart and opens none."""
    return _digest(session)


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:32]


def _brief(text: str) -> str:
    short = "#" + hashlib.sha256(text.encode()).hexdigest()[:10]
    return short if len(msgspec.json.encode(text)) > len(short) + 2 else text


def _of_another_server(token: str) -> dict[str, Any] | None:
    """A token of another implementation: a payload in base64, a dot, a signature that we cannot check."""
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


def _decoded(content: bytes | msgspec.Raw, kind: type[T]) -> T:
    """What a genuine state holds. A server of another version may have sealed one that this server cannot read."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise BadToken("This state holds nothing that this server can read.", remedy="Begin again with nav_start.") from error


def _claims(payload: dict[str, Any]) -> Claims:
    try:
        return msgspec.convert(payload, Claims)
    except msgspec.ValidationError as error:
        raise BadToken("This token does not name a session.", remedy="Call start_session for a new one.") from error
