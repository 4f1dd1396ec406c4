"""How long tokens can become, whatever definitions, callers and other servers say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fidelio.engine.record import ActivityVisit, OpenCheckpoint, ParentSession, Record
from fidelio.tokens.keyring import FixedKeys
from fidelio.workflows.tokens import LONGEST_TEXT, CarriedSession, Segment, SessionTokens, matches_claim, shorten_claim
from tests.support import proves

NOW = 1_800_000_000_000
TOKENS = SessionTokens(FixedKeys(b"k" * 32), lambda: NOW)
# What takes most room: letters of four bytes, letters that JSON escapes with six, and long runs of anything.
WIDE = st.sampled_from(["😀" * 48, "\x01" * 48, '"' * 48, "a" * 48, "é" * 24, "x" * 5000])
TEXTS = st.one_of(st.text(max_size=60), WIDE, st.just(""))
SESSIONS = st.sampled_from(["s_0123456789ab", "5d0c7a39-8f5e-4d0c-9a54-0f6f7e1f2a11"])
NUMBERS = st.sampled_from([1, 7, 10**6, 10**9])


@st.composite
def questions(draw: st.DrawFn) -> OpenCheckpoint:
    return OpenCheckpoint(draw(TEXTS), draw(TEXTS), draw(NUMBERS), "r_0123456789ab", NOW)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A record anywhere in a workflow, with a parent or without one."""
    parent = ParentSession(draw(SESSIONS), draw(TEXTS), draw(TEXTS), draw(TEXTS))
    visit = draw(NUMBERS)
    return Record(
        seq=draw(NUMBERS),
        workflow=draw(TEXTS),
        version=draw(TEXTS),
        here=ActivityVisit(draw(TEXTS), visit),
        visits=visit,
        condition=draw(TEXTS),
        skill=draw(TEXTS),
        parent=draw(st.sampled_from([parent, None])),
        open=draw(st.one_of(st.none(), questions())),
        armed=tuple(draw(st.lists(questions(), max_size=4))),
    )


@proves("tokens.length")
@given(session=SESSIONS, record=records(), agent=TEXTS)
def test_no_token_is_longer_than_700_characters(session: str, record: Record, agent: str) -> None:
    token = TOKENS.make(session, record, agent=agent)
    opened = SessionTokens(FixedKeys(b"k" * 32), lambda: NOW).open(token)

    assert len(token) <= 700
    assert opened == TOKENS.open(token)
    assert opened.sid == session
    assert matches_claim(opened.aid, agent)


@proves("tokens.length")
@given(session=SESSIONS, workflow=TEXTS, version=TEXTS, agent=TEXTS)
def test_the_token_of_a_fresh_session_stays_below_320_characters(session: str, workflow: str, version: str, agent: str) -> None:
    token = TOKENS.make(session, Record(seq=999, workflow=workflow, version=version), agent=agent)

    assert len(token) < 320


@proves("tokens.length", "sessions.trace")
@given(session=SESSIONS, activity=TEXTS, first=NUMBERS, last=NUMBERS)
def test_a_trace_token_is_never_longer_than_300_characters(session: str, activity: str, first: int, last: int) -> None:
    segment = Segment(session, activity, first, last, b"h" * 32, NOW // 1000)
    token = TOKENS.make_trace(segment)

    assert len(token) <= 300
    assert TOKENS.open_trace(token).head == segment.head


@proves("tokens.length")
def test_ordinary_texts_are_carried_as_they_are() -> None:
    record = Record(
        workflow="work-package", version="3.4.0", here=ActivityVisit("plan-prepare", 1), visits=1, condition="ready == true"
    )
    opened = TOKENS.open(TOKENS.make("s_0123456789ab", record, agent="orchestrator"))

    assert (opened.wf, opened.v, opened.act) == ("work-package", "3.4.0", "plan-prepare")
    assert (opened.cond, opened.aid) == ("ready == true", "orchestrator")


@proves("tokens.length")
def test_a_text_is_carried_up_to_its_limit_and_a_longer_one_as_a_digest() -> None:
    assert shorten_claim("x" * LONGEST_TEXT) == "x" * LONGEST_TEXT
    assert len(shorten_claim("x" * (LONGEST_TEXT + 1))) < LONGEST_TEXT


@proves("navigator.state")
def test_a_state_names_the_question_that_waits() -> None:
    waiting = Record(workflow="tour", open=OpenCheckpoint("size", "pack", 1, "r_0123456789ab", NOW))
    asked, free = (
        TOKENS.open(TOKENS.make_state([CarriedSession("s_0123456789ab", one)], agent="a")) for one in (waiting, Record())
    )

    assert (asked.bcp, asked.req) == ("size", "r_0123456789ab")
    assert (free.bcp, free.req) == (None, None)
