"""Create anchors and verify the ledger against them.

The private keys and the state of the series are in the home. An anchor belongs to the series only after it was written: a
target that fails leaves no gap.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fidelio.anchors.model import Anchor, Head, Statement, fingerprint, is_fingerprint, public_key, sign_statement
from fidelio.anchors.targets import Target, parse_target, read_anchors, read_limited, split_lines
from fidelio.anchors.time_stamps import check_server_url, load_library, request_time_stamp
from fidelio.anchors.verification import AnchorTrust, AnchorVerdict, AnchorVerifier, first_event_hash
from fidelio.clock import Clock, now_ms
from fidelio.errors import AnchorProblem, Command, Hint, UsageProblem
from fidelio.home import Home
from fidelio.ids import new_id
from fidelio.ledger import Ledger
from fidelio.ledger.paging import all_pages
from fidelio.locks import FileLock
from fidelio.tokens.keyring import FileKeys

_MAX_KEY_FILE = 1 << 20


class SeriesState(msgspec.Struct, frozen=True):
    """The last anchor of a series. From `position` and `time` the schedule knows whether it is due."""

    series: str
    number: int = 0
    digest: str = ""
    position: int = 0
    time: int = 0


class CreatedAnchor(msgspec.Struct, frozen=True):
    """An anchor and its location."""

    anchor: Anchor
    location: str


class AnchorVerdicts(msgspec.Struct, frozen=True):
    """Results of all anchors, and what is missing between them."""

    anchors: tuple[AnchorVerdict, ...]
    gaps: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.gaps and all(verdict.holds for verdict in self.anchors)


class AnchorService:
    """Creates and verifies the anchors of a ledger."""

    def __init__(self, ledger: Ledger, home: Home, *, clock: Clock = now_ms) -> None:
        self._ledger, self._home, self._clock = ledger, home, clock
        self._keys = FileKeys(home.anchor_keys, clock=clock)

    async def create(self, target: str, *, tsa: str = "") -> CreatedAnchor:
        """Sign the heads of all sessions and write them to `target`, optionally stamped by the server `tsa`."""
        # Fail before the work: reading a large ledger takes seconds.
        location = await self.check_target(target, tsa=tsa)
        with self._hold_lock():
            return await self._create(location, tsa)

    async def check_target(self, target: str, *, tsa: str = "") -> Target:
        """Parse a target; raise `UsageProblem` or `AnchorProblem` if it cannot be used."""
        if tsa:
            check_server_url(tsa)
            load_library()
        location = parse_target(target)
        await location.prepare()
        return location

    def state(self, target: str) -> SeriesState:
        """The last anchor of the series of this target."""
        key = parse_target(target).series_key
        return self._load_states().get(key) or SeriesState(new_id(""))

    async def newest_position(self) -> int:
        return await self._ledger.wait(after=0, timeout=0)

    def active_fingerprint(self) -> str:
        """The fingerprint of the key that signs; the key is created when it is first needed."""
        return fingerprint(public_key(self._keys.active().secret))

    def rotate_key(self) -> str:
        """Create a new key; the old ones stay in the home, so anchors that they have signed still verify there."""
        return fingerprint(public_key(self._keys.rotate().secret))

    def trust(self, pins: Sequence[str] = (), roots: str = "") -> AnchorTrust:
        """The keys to accept: `pins` are fingerprints or files of fingerprints. `roots` is a PEM file, for time stamps."""
        pem = read_limited(Path(roots), _MAX_KEY_FILE) if roots else b""
        if pins:
            return AnchorTrust(pinned=frozenset(each for pin in pins for each in _read_pin(pin)), roots=pem)
        return AnchorTrust(home=self._home_fingerprints(), roots=pem)

    async def verify(self, sources: Sequence[str], trust: AnchorTrust, *, session: str | None = None) -> AnchorVerdicts:
        """Compare the ledger with anchors. `session` limits the comparison to a session."""
        verifier = AnchorVerifier(self._ledger, trust, session=session)
        verdicts = [await verifier.check(anchor, source) async for source, anchor in _read_all(sources)]
        return AnchorVerdicts(tuple(verdicts), tuple(verifier.find_gaps()))

    def _home_fingerprints(self) -> frozenset[str]:
        # Verifying must not create a key: the home may be on a read-only file system.
        if not self._home.anchor_keys.exists():
            return frozenset()
        return frozenset(fingerprint(public_key(key.secret)) for key in self._keys.all())

    async def _create(self, target: Target, tsa: str) -> CreatedAnchor:
        states = self._load_states()
        last = states.get(target.series_key) or SeriesState(new_id(""))
        anchor = sign_statement(await self._state_heads(last), self._keys.active().secret)
        if tsa:
            stamp = await asyncio.to_thread(request_time_stamp, tsa, anchor.digest)
            anchor = msgspec.structs.replace(anchor, time_stamp=stamp)
        location = await target.write(anchor)
        statement = anchor.statement
        state = SeriesState(last.series, statement.number, anchor.digest.hex(), statement.position, statement.time)
        self._save({**states, target.series_key: state})
        return CreatedAnchor(anchor, location)

    async def _state_heads(self, last: SeriesState) -> Statement:
        # The position is read first: a session that begins meanwhile may be missing in the list, and lies after it.
        position, time = await self.newest_position(), self._clock()
        heads: dict[str, Head] = {}
        # Not from the rows: a row that names an earlier event would leave the rest of its chain unsigned.
        async for head in all_pages(self._ledger.heads):
            heads[head.session] = (head.session, head.seq, head.hash.hex())
        key = public_key(self._keys.active().secret).hex()
        ledger = await first_event_hash(self._ledger)
        return Statement(
            len(heads),
            tuple(sorted(heads.values())),
            key,
            ledger,
            last.number + 1,
            position,
            last.digest,
            last.series,
            time,
        )

    def _load_states(self) -> dict[str, SeriesState]:
        try:
            return msgspec.json.decode(self._home.anchor_state.read_bytes(), type=dict[str, SeriesState])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise AnchorProblem(
                f"{self._home.anchor_state} cannot be read: {error}.",
                remedy="Restore it from a backup, or delete it: the next anchors begin new series.",
            ) from error

    def _save(self, states: dict[str, SeriesState]) -> None:
        path = self._home.anchor_state
        draft = path.with_name(f".{path.name}.{new_id('')}")
        try:
            draft.write_bytes(msgspec.json.encode(states))
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise AnchorProblem(f"{path} cannot be written: {error.strerror}.", remedy="Free some space there.") from error

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        home = self._home.ensure()
        try:
            lock = FileLock(home.lock_path("anchor"))
            is_held = lock.acquire()
        except OSError as error:
            raise AnchorProblem(
                f"{self._home.path} cannot be written: {error.strerror}.",
                remedy="An anchor belongs to a series whose state is in the home. Make the home writable.",
            ) from error
        if not is_held:
            raise AnchorProblem("Another process writes an anchor of this home.", remedy="Try again when it has ended.")
        try:
            yield
        finally:
            lock.release()


async def _read_all(sources: Sequence[str]) -> AsyncIterator[tuple[str, Anchor]]:
    for source in sources:
        async for found in read_anchors(source):
            yield found


def _read_pin(text: str) -> list[str]:
    """The fingerprints of `--key`: a fingerprint, or a file with a fingerprint in each line."""
    if is_fingerprint(text):
        return [text]
    if not os.path.lexists(text):
        raise UsageProblem(
            f"--key {text!r:.80} is neither a fingerprint of 64 hexadecimal digits nor a file.",
            remedy=Hint(Command("anchor", "--fingerprint"), " prints the fingerprint of this home."),
        )
    found = list(split_lines(read_limited(Path(text), _MAX_KEY_FILE).decode(errors="replace")))
    if not found or not all(map(is_fingerprint, found)):
        raise UsageProblem(
            f"{text} does not consist of fingerprints.", remedy="Write one of 64 hexadecimal digits in each line."
        )
    return found
