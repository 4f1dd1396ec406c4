"""Questions without options: a person answers in words of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.errors import RequestClosed, UsageProblem
from fidelio.inbox import LONGEST_TEXT, Inbox, open_request
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Change, Json, NewSession
from tests.support import proves

SESSION = "s_000000000001"
OPTIONS = ({"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"})


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with await open_ledger(tmp_path / "ledger.db") as opened:
        yield opened


async def ask(ledger: Ledger, options: tuple[Json, ...] = ()) -> str:
    request = open_request("question", "k", "Which port?", options, {})
    await ledger.commit(Change(session=SESSION, create=NewSession(kind="agent"), requests=(request,)))
    return request.id


async def recorded(ledger: Ledger) -> list[Json]:
    return [event.body for event in await ledger.events(SESSION, types=["request.answered"])]


@proves("inbox.text")
async def test_a_text_answers_a_question_without_options(ledger: Ledger) -> None:
    request = await ask(ledger)

    answered = await Inbox(ledger).answer(request, text="8080, for now", by="person:a", channel="cli")

    assert (answered.request.state, answered.repeated) == ("answered", False)
    assert answered.request.answer == {"option": "", "text": "8080, for now"}
    (body,) = await recorded(ledger)
    assert (body["option"], body["text"], body["by"]) == ("", "8080, for now", "person:a")


@proves("inbox.text")
async def test_an_option_can_carry_a_comment(ledger: Ledger) -> None:
    request = await ask(ledger, OPTIONS)

    answered = await Inbox(ledger).answer(request, "yes", text="but not today", by="person:a", channel="page")

    assert answered.request.answer == {"option": "yes", "text": "but not today"}
    (body,) = await recorded(ledger)
    assert (body["option"], body["text"]) == ("yes", "but not today")


@proves("inbox.text")
@pytest.mark.parametrize(
    ("options", "option", "text", "words"),
    [
        ((), "", " \n", "The text is empty"),
        ((), "yes", "", "has no options"),
        ((), "", "x" * (LONGEST_TEXT + 1), f"Use up to {LONGEST_TEXT}"),
        (OPTIONS, "", "yes", "The options are: yes, no"),
        (OPTIONS, "yes", "x" * (LONGEST_TEXT + 1), f"Use up to {LONGEST_TEXT}"),
    ],
)
async def test_an_answer_that_does_not_fit_the_question_is_refused(
    ledger: Ledger, options: tuple[Json, ...], option: str, text: str, words: str
) -> None:
    request = await ask(ledger, options)

    with pytest.raises(UsageProblem, match=words):
        await Inbox(ledger).answer(request, option, text=text, by="person:a", channel="cli")
    assert (await ledger.request(request)).state == "open"


@proves("inbox.text-once")
async def test_the_same_text_again_is_confirmed_and_another_is_refused(ledger: Ledger) -> None:
    inbox, request = Inbox(ledger), await ask(ledger)
    await inbox.answer(request, text="8080", by="person:a", channel="cli")

    assert (await inbox.answer(request, text="8080", by="person:b", channel="cli")).repeated
    for text in ("9090", ""):
        with pytest.raises(RequestClosed):
            await inbox.answer(request, text=text, by="person:b", channel="cli")
    assert len(await recorded(ledger)) == 1


@proves("inbox.text-once")
async def test_an_option_is_repeated_without_its_comment_but_not_with_another(ledger: Ledger) -> None:
    inbox, request = Inbox(ledger), await ask(ledger, OPTIONS)
    await inbox.answer(request, "yes", text="gladly", by="person:a", channel="cli")

    assert (await inbox.answer(request, "yes", by="person:b", channel="cli")).repeated
    assert (await inbox.answer(request, "yes", text="gladly", by="person:b", channel="cli")).repeated
    with pytest.raises(RequestClosed):
        await inbox.answer(request, "yes", text="grudgingly", by="person:b", channel="cli")


@proves("inbox.text-once")
async def test_of_several_texts_at_once_exactly_one_is_taken(ledger: Ledger) -> None:
    inbox, request = Inbox(ledger), await ask(ledger)
    texts = ("a", "b", "a", "b")

    results = await asyncio.gather(
        *(inbox.answer(request, text=text, by="person:a", channel="cli") for text in texts), return_exceptions=True
    )

    taken = (await ledger.request(request)).answer["text"]
    assert [isinstance(result, RequestClosed) for result in results] == [text != taken for text in texts]
    assert len(await recorded(ledger)) == 1


@proves("inbox.api")
async def test_an_answer_of_the_holder_of_the_key_counts_as_local(ledger: Ledger) -> None:
    request = await ask(ledger, OPTIONS)

    answered = await Inbox(ledger).answer(request, "yes", by="client", channel="api")

    assert (answered.request.channel, answered.request.assurance) == ("api", "local")
