"""Questions without options at the command line."""

from __future__ import annotations

import json
from pathlib import Path

from fidelio.home import Home
from fidelio.inbox import open_request
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewSession
from tests.support import proves
from tests.surfaces.conftest import Fidelio


async def store_request(home: Path) -> str:
    Home(home).ensure()
    request = open_request("question", "k", "Which port shall it be?", (), {})
    async with await open_ledger(home / "ledger.db") as ledger:
        await ledger.commit(Change(session="s_000000000001", create=NewSession(kind="agent"), requests=(request,)))
    return request.id


@proves("inbox.text-cli")
async def test_the_inbox_says_how_to_answer_a_question_without_options(home: Path, fidelio: Fidelio) -> None:
    request = await store_request(home)

    shown = fidelio("inbox").stdout

    assert "Which port shall it be?" in shown
    assert f'Answer with: fidelio answer {request} --text "..."' in shown


@proves("inbox.text-cli", "inbox.text-once")
async def test_a_text_is_given_and_shown_and_not_replaced(home: Path, fidelio: Fidelio) -> None:
    request = await store_request(home)

    first = fidelio("answer", request, "--text", "8080, please")
    same = fidelio("answer", request, "--text", "8080, please", "--json")
    other = fidelio("answer", request, "--text", "9090")

    assert (first.returncode, same.returncode, other.returncode) == (0, 0, 1)
    assert "is answered with a text" in first.stdout
    given = json.loads(same.stdout)
    assert (given["answer"]["text"], given["repeated"], given["channel"]) == ("8080, please", True, "cli")
    assert "    Answer:\n    │ 8080, please\n" in fidelio("inbox", "--all").stdout


@proves("inbox.text-cli")
async def test_an_answer_without_option_and_text_says_what_is_missing(home: Path, fidelio: Fidelio) -> None:
    request = await store_request(home)

    empty = fidelio("answer", request)

    assert empty.returncode == 2
    assert "asks for a text" in empty.stderr
