"""What a press answers in a real browser: only a question that was there to be read, and each only once."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from fidelio.inbox import NewRequest
from tests.support import proves
from tests.surfaces.web.conftest import Site
from tests.surfaces.web.test_inbox import ask, open_session

# Notes whether the page has held back what was sent.
_NOTE = 'window.addEventListener("submit", (event) => { window.isHeldBack = event.defaultPrevented; }, true);'
_PRESS = 'document.querySelector("[data-option=allow]").click()'


@pytest.fixture
async def questions(site: Site, tab: Page) -> list[NewRequest]:
    """Two questions that the tab shows."""
    requests = [ask("first"), ask("second")]
    await open_session(site, "one", *requests)
    await tab.goto(f"{site.url}/inbox")
    # The scripts run once everything is loaded.
    await tab.wait_for_load_state("load")
    return requests


async def list_states(site: Site, questions: list[NewRequest]) -> list[str]:
    inbox = await site.application.inbox()
    return [(await inbox.find(question.id)).state for question in questions]


@proves("web.press-once")
async def test_a_second_press_while_the_first_is_on_its_way_sends_nothing(
    site: Site, tab: Page, questions: list[NewRequest]
) -> None:
    is_held_back = await tab.evaluate(f"() => {{ {_NOTE} {_PRESS}; {_PRESS}; return isHeldBack; }}")

    await expect(tab.get_by_role("status")).to_contain_text("Answered with Allow it once")
    assert is_held_back
    assert await list_states(site, questions) == ["answered", "open"]


@proves("web.press-once")
async def test_a_press_right_after_an_answer_does_not_answer_the_question_that_takes_its_place(
    site: Site, tab: Page, questions: list[NewRequest]
) -> None:
    await tab.add_init_script(f'document.addEventListener("DOMContentLoaded", () => {{ {_NOTE} {_PRESS}; }});')
    await tab.get_by_role("button", name="Allow it once").first.click()
    await expect(tab.get_by_role("status")).to_contain_text("Answered with Allow it once")

    assert await tab.evaluate("isHeldBack")
    assert await list_states(site, questions) == ["answered", "open"]


@proves("web.press-once")
async def test_a_question_that_has_just_moved_under_the_pointer_is_not_answered(
    site: Site, tab: Page, questions: list[NewRequest]
) -> None:
    await tab.evaluate(f'() => {{ {_NOTE} document.addEventListener("htmx:after:swap", () => {_PRESS}, {{ once: true }}); }}')
    await (await site.application.inbox()).answer(questions[0].id, "refuse", by="person:other", channel="cli")
    await expect(tab.locator("[data-question]")).to_have_count(1)

    assert await tab.evaluate("isHeldBack")
    assert await list_states(site, questions) == ["answered", "open"]


@proves("web.press-once")
async def test_an_update_that_moves_nothing_holds_no_answer_back(site: Site, tab: Page, questions: list[NewRequest]) -> None:
    await tab.evaluate(f'() => {{ {_NOTE} document.addEventListener("htmx:after:swap", () => {_PRESS}, {{ once: true }}); }}')
    await open_session(site, "two", ask("third"))

    await expect(tab.get_by_role("status")).to_contain_text("Answered with Allow it once")
    assert await list_states(site, questions) == ["answered", "open"]


@proves("web.press-once", "web.keyboard")
async def test_a_key_that_is_held_answers_nothing_more(site: Site, tab: Page, questions: list[NewRequest]) -> None:
    await tab.keyboard.down("1")
    await tab.keyboard.press("j")
    await tab.keyboard.down("1")
    # The browser has taken the keys in their order.
    await expect(tab.locator("[data-chosen]")).to_have_id(questions[0].id)

    assert await list_states(site, questions) == ["open", "open"]


@proves("web.keyboard")
@pytest.mark.parametrize("role", ["button", "checkbox"])
async def test_keys_answer_the_question_that_has_the_focus(
    site: Site, tab: Page, questions: list[NewRequest], role: str
) -> None:
    await tab.keyboard.press("j")
    second = tab.locator(f"#{questions[1].id}")
    await second.get_by_role(role).first.focus()  # type: ignore[arg-type]  # one of the roles of Playwright
    await expect(tab.locator("[data-chosen]")).to_have_id(questions[1].id)
    await tab.keyboard.press("d")

    await expect(tab.get_by_role("status")).to_contain_text("Answered with Refuse it")
    assert await list_states(site, questions) == ["open", "answered"]
