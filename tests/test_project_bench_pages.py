"""The benchmark of the web page measures every page."""

from __future__ import annotations

from pathlib import Path

from starlette.routing import Route

from benchmarks import web
from fidelio.app.application import open_bundled
from fidelio.settings import load_settings
from fidelio.surfaces.web.application import create_pages
from fidelio.surfaces.web.pages import PageServices
from tests.support import proves


@proves("project.bench-pages")
async def test_every_page_is_measured_or_named_with_a_reason(tmp_path: Path) -> None:
    settings = load_settings(str(tmp_path), environ={})
    async with open_bundled(settings) as application:
        routes = create_pages(PageServices(application, str(tmp_path))).routes
    shown = {route.path for route in routes if isinstance(route, Route) and "GET" in (route.methods or ())}

    assert shown == {*web.PAGES, *web.NOT_PAGES}


@proves("project.bench-pages")
async def test_the_cost_of_every_page_is_measured_with_its_bound(tmp_path: Path) -> None:
    async with web.serve(str(tmp_path), events=300) as server:
        costs = await web.time_pages(server, rounds=1)
        figures = list(web.list_figures(costs))

    bounds = {figure.name.partition(":")[0]: figure.at_most for figure in figures}
    assert {bounds[path] for paths in web.PAGES.values() for path in paths} == {web.MOST_MS}
    assert bounds["heaviest page with all its files, compressed"] == 150
    assert all(figure.value > 0 for figure in figures)
