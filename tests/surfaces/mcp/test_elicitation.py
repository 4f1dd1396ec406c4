"""A question to a person in the middle of a call: asked by the client where it can, recorded once, never waited for too long.

The same rules hold for every front, so they are shown here without one.
"""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.clock import now_ms
from fidelio.errors import UsageProblem
from fidelio.surfaces.mcp.elicitation import NoAnswer, build_elicitation, read_choice
from fidelio.surfaces.mcp.endpoint import STATE_LIFETIME_MS, Client, ProtocolError, RequestStates, ServedTools
from fidelio.surfaces.mcp.protocol import CallDispatcher, RequestContext
from fidelio.tokens.keyring import FixedKeys
from fidelio.toolkit import AnswerOption, AskPerson, CallContext, Done, Outcome, Tool, ToolTable
from tests.support import proves
from tests.surfaces.mcp.example import OPTIONS, REQUEST, ExampleTools, Nothing, SingleHandler, example_states

OLD = Client("2025-11-25", "wire", can_elicit=True)
NEW = Client("2026-07-28", "wire", can_elicit=True)


class Asking:
    """A client's side of a question: what it was shown, and what it answers."""

    def __init__(self, response: object) -> None:
        self.response = response
        self.shown: list[dict[str, Any]] = []

    async def __call__(self, params: dict[str, Any]) -> object:
        self.shown.append(params)
        if isinstance(self.response, Exception):
            raise self.response
        return self.response


async def never(_: dict[str, Any]) -> object:
    return await asyncio.get_running_loop().create_future()


def accepted(option: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"answer": option}}


async def choose(example: ExampleTools, exchange: RequestContext, *, timeout: float = 50) -> dict[str, Any]:
    return await CallDispatcher(example.tools(), example_states(), timeout=timeout).call("choose", {}, exchange)


def texts(result: Mapping[str, Any]) -> list[str]:
    return [part["text"] for part in result["content"]]


@proves("mcp.elicitation")
async def test_the_client_asks_its_user_and_the_handler_finds_the_answer() -> None:
    example, asking = ExampleTools(), Asking(accepted("warm"))

    result = await choose(example, RequestContext(OLD, asking))

    assert texts(result) == ['["warm", "user of wire"]']
    assert example.asked == 2
    (shown,) = asking.shown
    assert shown["message"] == "How shall it sound?\n\n- Warm: With a joke"
    field = shown["requestedSchema"]["properties"]["answer"]
    assert field["oneOf"] == [{"const": "warm", "title": "Warm"}, {"const": "cool", "title": "Cool"}]


@proves("mcp.elicitation")
async def test_an_older_client_gets_the_labels_in_the_way_it_knows() -> None:
    asking = Asking(accepted("cool"))

    await choose(ExampleTools(), RequestContext(Client("2025-06-18", "wire", can_elicit=True), asking))

    field = asking.shown[0]["requestedSchema"]["properties"]["answer"]
    assert (field["enum"], field["enumNames"]) == (["warm", "cool"], ["Warm", "Cool"])
    assert "mode" not in asking.shown[0]


HOSTILE = "Fine?\n\n- Cool: harmless\x1b[2J\u202e\x9b31m\r\n\u2028" + "\u2800" * 300 + "- Warm: refuse"


async def nothing_to_record(_: str, __: str) -> None:
    """For a question that is only shown."""


@proves("mcp.elicitation-text")
@pytest.mark.parametrize("client", [OLD, Client("2025-06-18", "wire", can_elicit=True), NEW])
@given(st.text(max_size=80) | st.just(HOSTILE), st.text(min_size=1, max_size=40) | st.just(HOSTILE))
def test_no_text_of_a_question_breaks_the_form(client: Client, text: str, option: str) -> None:
    options = (AnswerOption(option, text, text), AnswerOption("wait", "Wait", "Do nothing yet"))
    question = AskPerson("r_1", text, options, nothing_to_record)

    form = build_elicitation(question, client)

    shown = json.dumps(form, ensure_ascii=False)
    assert [sign for sign in shown if unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") or sign in "\u2800\u202e"] == []
    lines = form["message"].split("\n")
    assert len(lines) == (4 if text else 3)
    assert lines[-1] == "- Wait: Do nothing yet"


@proves("mcp.elicitation-text")
@given(st.text(min_size=1, max_size=40).filter(lambda text: text != "wait") | st.just(HOSTILE))
def test_the_chosen_option_is_recorded_by_its_own_id(option: str) -> None:
    options = (AnswerOption(option, "Go"), AnswerOption("wait", "Wait"))
    question = AskPerson("r_1", "Go?", options, nothing_to_record)

    field = build_elicitation(question, OLD)["requestedSchema"]["properties"]["answer"]

    assert read_choice(accepted(field["oneOf"][0]["const"]), question) == option


@proves("mcp.elicitation-text")
def test_options_that_look_the_same_in_a_form_are_not_answered_by_guessing() -> None:
    question = AskPerson("r_1", "Go?", (AnswerOption("a\n", "One"), AnswerOption("a\\n", "Two")), nothing_to_record)

    with pytest.raises(NoAnswer, match="no valid answer"):
        read_choice(accepted("a\\n"), question)


@proves("mcp.declined")
@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        ({"action": "decline"}, "The person declined to answer. No answer was recorded."),
        ({"action": "cancel"}, "The person closed the question without an answer. No answer was recorded."),
        (NoAnswer("The client could not ask its user."), "The client could not ask its user. No answer was recorded."),
        (
            accepted("hot"),
            "The client's response holds no valid answer; the options are: warm, cool. No answer was recorded.",
        ),
        ("rubbish", "The client's response holds no valid answer; the options are: warm, cool. No answer was recorded."),
    ],
)
@pytest.mark.parametrize("client", [OLD, NEW])
async def test_without_an_answer_nothing_is_recorded_and_the_reply_says_so(
    client: Client, response: object, sentence: str
) -> None:
    example = ExampleTools()
    if client is NEW and isinstance(response, Exception):
        return
    state = example_states().write(REQUEST, "choose", {})

    result = await choose(example, RequestContext(client, Asking(response), state=state, responses={"person": response}))

    assert example.answers == []
    assert f"fidelio answer {REQUEST} OPTION" in texts(result)[0]
    assert texts(result)[1] == sentence


@proves("mcp.waits")
@pytest.mark.parametrize("client", [Client("2025-11-25"), Client("2026-07-28"), Client("2024-11-05")])
async def test_when_the_client_cannot_ask_the_reply_says_how_to_answer(client: Client) -> None:
    result = await choose(ExampleTools(), RequestContext(client, Asking(accepted("warm"))))

    assert "This waits for a person: How shall it sound?" in texts(result)[0]
    assert f"`fidelio answer {REQUEST} OPTION`, where OPTION is one of: warm, cool" in texts(result)[0]


@proves("mcp.waits")
async def test_a_call_does_not_stay_open_for_a_slow_person() -> None:
    result = await choose(ExampleTools(), RequestContext(OLD, never), timeout=0.01)

    assert texts(result)[1] == "Nobody answered within 0.01 seconds; the question still waits."


@proves("mcp.elsewhere")
async def test_an_answer_given_elsewhere_ends_the_question() -> None:
    example = ExampleTools()
    closed = asyncio.Event()

    async def until_closed(_: dict[str, Any]) -> object:
        example.answer_elsewhere("cool")
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            closed.set()

    result = await choose(example, RequestContext(OLD, until_closed))

    assert texts(result) == ['["cool", "person:somebody"]']
    assert closed.is_set()


@proves("mcp.input-required")
async def test_a_client_without_handshake_carries_the_question_and_brings_the_answer() -> None:
    example = ExampleTools()

    asked = await choose(example, RequestContext(NEW))
    assert asked["resultType"] == "input_required"
    question = asked["inputRequests"]["person"]
    assert question["method"] == "elicitation/create"
    answered = RequestContext(NEW, state=asked["requestState"], responses={"person": accepted("warm")})

    assert texts(await choose(example, answered)) == ['["warm", "user of wire"]']
    assert example.answers == [("warm", "user of wire")]


@proves("mcp.input-required")
async def test_an_answer_that_was_left_out_is_asked_for_again() -> None:
    example = ExampleTools()
    asked = await choose(example, RequestContext(NEW))

    again = await choose(example, RequestContext(NEW, state=asked["requestState"], responses={"other": accepted("warm")}))

    assert again["resultType"] == "input_required"
    assert example.answers == []


@proves("mcp.request-state")
async def test_an_answer_to_an_earlier_question_is_not_taken_for_the_one_asked_now() -> None:
    example = ExampleTools()
    state = example_states().write("r_000000000000", "choose", {})

    result = await choose(example, RequestContext(NEW, state=state, responses={"person": accepted("warm")}))

    assert result["resultType"] == "input_required"
    assert example.answers == []


def altered(state: str) -> str:
    return state[:-2] + ("AA" if not state.endswith("AA") else "BB")


@proves("mcp.request-state")
@pytest.mark.parametrize("spoil", [altered, lambda _: "", lambda state: state[:-5], lambda _: "x" * 1_000_000])
async def test_a_state_that_is_not_ours_is_refused_and_nothing_is_recorded(spoil: Any) -> None:
    example = ExampleTools()
    state = example_states().write(REQUEST, "choose", {})

    with pytest.raises(ProtocolError, match="nothing was recorded"):
        await choose(example, RequestContext(NEW, state=spoil(state), responses={"person": accepted("warm")}))

    assert example.asked == 0


@proves("mcp.request-state")
async def test_a_state_is_good_for_its_own_call_only_and_not_for_ever() -> None:
    moment = now_ms()
    states = RequestStates(lambda: FixedKeys(b"k" * 32), clock=lambda: moment)
    state = states.write(REQUEST, "choose", {"a": 1, "b": 2})

    moment += 70
    assert states.read(state, "choose", {"b": 2, "a": 1}) == (REQUEST, 70)
    with pytest.raises(UsageProblem, match="belongs to another call"):
        states.read(state, "choose", {"a": 1})
    moment += STATE_LIFETIME_MS
    with pytest.raises(UsageProblem, match="too old"):
        states.read(state, "choose", {"a": 1, "b": 2})


def serve(ask: Callable[[Nothing, CallContext], Awaitable[Outcome]]) -> ServedTools:
    return ServedTools(ToolTable([Tool("ask", "Ask", "Asks.", Nothing)], lambda: SingleHandler("ask", ask)))


@proves("mcp.waits")
async def test_a_tool_may_word_its_own_waiting_reply() -> None:
    async def record(_: str, __: str) -> None:
        raise AssertionError("nobody answered")

    async def ask(_: Nothing, __: CallContext) -> Outcome:
        waiting = Done("mine", {"session_token": "t"}, structured={"status": "yielded"})
        return AskPerson(REQUEST, "Well?", OPTIONS, record, waiting)

    calls = CallDispatcher(serve(ask), example_states())

    result = await calls.call("ask", {}, RequestContext(OLD, Asking({"action": "decline"})))

    assert texts(result) == ["mine", "The person declined to answer. No answer was recorded."]
    assert result["_meta"] == {"session_token": "t"}
    assert result["structuredContent"] == {"status": "yielded"}


@proves("mcp.errors")
async def test_a_refused_answer_is_a_result_that_says_why() -> None:
    async def record(_: str, __: str) -> None:
        raise UsageProblem("It was answered differently.", remedy="See `fidelio inbox --all`.")

    async def ask(_: Nothing, __: CallContext) -> Outcome:
        return AskPerson(REQUEST, "Well?", OPTIONS, record)

    calls = CallDispatcher(serve(ask), example_states())

    result = await calls.call("ask", {}, RequestContext(OLD, Asking(accepted("warm"))))

    assert result["isError"]
    assert texts(result) == ["It was answered differently. See `fidelio inbox --all`."]


@proves("sessions.one-call")
async def test_a_call_that_is_cancelled_while_a_person_thinks_is_on_record() -> None:
    shown, noted = asyncio.Event(), list[str]()

    async def think(_: dict[str, Any]) -> object:
        shown.set()
        return await asyncio.Event().wait()

    async def note() -> None:
        noted.append(REQUEST)

    async def record(_: str, __: str) -> None:
        raise AssertionError("nobody has answered")

    async def ask(_: Nothing, __: CallContext) -> Outcome:
        return AskPerson(REQUEST, "Well?", OPTIONS, record, record_unanswered=note)

    calls = CallDispatcher(serve(ask), example_states())
    call = asyncio.create_task(calls.call("ask", {}, RequestContext(OLD, think)))
    async with asyncio.timeout(10):
        await shown.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    assert noted == [REQUEST]
