"""After an answer, and when one comes too late: where the person is, what is said, and what is kept."""

from __future__ import annotations

from tests.support import proves
from tests.surfaces.web.conftest import Site, read_form_token
from tests.surfaces.web.test_inbox import ask, open_session


@proves("web.answer")
async def test_the_lines_of_a_text_end_as_in_every_other_channel(site: Site) -> None:
    question = ask("q", "question", "Which port?")
    await open_session(site, "one", question)
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "text": "8080\r\nor 9090\r\n\r\nI think"}
        page = (await client.post(f"/inbox/{question.id}", data=fields)).text

    assert (await (await site.application.inbox()).find(question.id)).answer["text"] == "8080\nor 9090\n\nI think"
    assert "\\r" not in page
