"""Drawings in a real browser: what a person has moved and made larger stays so, and a click leads to what can be seen."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent
from tests.surfaces.web.test_inbox import ask, open_session

_PAN = "area => [area.scrollLeft, area.scrollTop]"
# Where the centre of the area is in the picture, as fractions of it.
_MIDDLE = """area => {
  const box = area.getBoundingClientRect(), picture = area.querySelector("svg").getBoundingClientRect();
  return [(box.left + box.width / 2 - picture.left) / picture.width, (box.top + box.height / 2 - picture.top) / picture.height];
}"""


@proves("web.drawing", "web.live")
async def test_a_change_elsewhere_does_not_move_a_drawing(site: Site, agent: WaitingAgent, tab: Page) -> None:
    await tab.goto(f"{site.url}/sessions/{agent.session}")
    await tab.wait_for_load_state("load")
    for _ in range(5):
        await tab.get_by_role("button", name="Larger").click()
    area = tab.locator(".drawing")
    await area.evaluate("area => area.scrollTo(37, 53)")
    before = await area.evaluate(_PAN)
    await open_session(site, "one", ask("something"))
    await expect(tab.locator("#menu .count")).to_have_text("2")

    assert before == [37, 53]
    assert await area.evaluate(_PAN) == before


@proves("web.drawing")
async def test_a_drawing_becomes_larger_about_its_middle(site: Site, tab: Page) -> None:
    await tab.goto(f"{site.url}/workflows/work-package")
    await tab.wait_for_load_state("load")
    area, larger = tab.locator(".drawing"), tab.get_by_role("button", name="Larger")
    for _ in range(3):
        await larger.click()
    await area.evaluate("area => area.scrollTo(area.scrollWidth / 3, area.scrollHeight / 2)")
    before = await area.evaluate(_MIDDLE)
    await larger.click()

    assert await area.evaluate(_MIDDLE) == pytest.approx(before, abs=0.01)


@proves("web.drawing")
async def test_without_scripts_a_drawing_has_no_buttons_that_do_nothing(site: Site, browser: Browser) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(site.link("/workflows/hello"))

    await expect(page.locator(".drawing")).to_be_visible()
    await expect(page.locator("[data-zoom]")).to_be_hidden()
    await context.close()


@proves("web.drawing", "web.layout")
async def test_the_name_of_an_activity_is_seen_after_a_click_on_it(site: Site, tab: Page) -> None:
    await tab.goto(f"{site.url}/workflows/work-package")
    await tab.wait_for_load_state("load")
    link = tab.locator(".drawing a").nth(3)
    name = str(await link.get_attribute("href")).partition("#activity-")[2]
    await link.click()
    summary = tab.locator(f'[data-definition="{name}"] summary')

    await expect(tab.locator(f'[data-definition="{name}"] pre')).to_be_visible()
    bar = await tab.locator(".bar").bounding_box()
    found = await summary.bounding_box()
    assert bar is not None
    assert found is not None
    assert found["y"] >= bar["y"] + bar["height"]
