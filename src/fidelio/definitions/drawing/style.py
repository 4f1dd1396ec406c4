"""Colours of a drawing, for light and dark backgrounds.

The rules use no CSS variables, because some SVG viewers do not support them. Every rule is limited to the drawing, so that
several can be embedded in one page.
"""

from __future__ import annotations

from dataclasses import dataclass

from fidelio.definitions.drawing.graph import Link

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"


@dataclass(frozen=True, slots=True)
class Palette:
    """A set of colours with sufficient contrast to the background."""

    paper: str
    ink: str
    muted: str
    card: str
    rim: str
    solid: str
    on_solid: str
    warning: str
    warning_card: str
    lock: str
    links: dict[Link, str]


LIGHT = Palette(
    paper="#ffffff",
    ink="#1e293b",
    muted="#5b6778",
    card="#f8fafc",
    rim="#b6c2d1",
    solid="#334155",
    on_solid="#ffffff",
    warning="#b42318",
    warning_card="#fef3f2",
    lock="#b54708",
    links={
        Link.NEXT: "#475569",
        Link.CONDITION: "#6b7a90",
        Link.DECISION: "#0f766e",
        Link.ANSWER: "#4f46e5",
        Link.TRIGGER: "#9333ea",
    },
)

DARK = Palette(
    paper="#0f172a",
    ink="#e2e8f0",
    muted="#9fb0c6",
    card="#1e293b",
    rim="#51627b",
    solid="#cbd5e1",
    on_solid="#0f172a",
    warning="#fda29b",
    warning_card="#3b1614",
    lock="#fdb022",
    links={
        Link.NEXT: "#cbd5e1",
        Link.CONDITION: "#94a3b8",
        Link.DECISION: "#5eead4",
        Link.ANSWER: "#a5b4fc",
        Link.TRIGGER: "#d8b4fe",
    },
)

_DASHES = {Link.TRIGGER: "2 4", Link.ANSWER: "6 4"}


def stylesheet() -> str:
    dark = "\n".join(f"  {rule}" for rule in _colours(DARK))
    rules = [*_measures(), *_colours(LIGHT)]
    return "\n".join(rules) + f"\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _measures() -> list[str]:
    dashes = [_rule(f".line.{link}", f"stroke-dasharray: {dash}") for link, dash in _DASHES.items()]
    return [
        _rule("text", f"font-family: {FONT}"),
        _rule(".line", "fill: none; stroke-width: 1.4"),
        _rule(".line.next", "stroke-width: 1.9"),
        _rule(".card", "stroke-width: 1.2"),
        _rule(".missing .card, .flawed .card", "stroke-dasharray: 5 4"),
        *dashes,
    ]


def _colours(palette: Palette) -> list[str]:
    links = [rule for link, colour in palette.links.items() for rule in _link_colours(link, colour)]
    return [
        _rule(".paper, .chip", f"fill: {palette.paper}"),
        _rule("text", f"fill: {palette.ink}"),
        _rule(".muted", f"fill: {palette.muted}"),
        _rule(".card", f"fill: {palette.card}; stroke: {palette.rim}"),
        _rule(".start .card", f"fill: {palette.solid}; stroke: {palette.solid}"),
        _rule(".start text", f"fill: {palette.on_solid}"),
        _rule(".end .card", f"fill: {palette.paper}; stroke: {palette.solid}; stroke-width: 2"),
        _rule(".workflow .card", f"stroke: {palette.links[Link.TRIGGER]}"),
        _rule(".missing .card, .flawed .card", f"fill: {palette.warning_card}; stroke: {palette.warning}"),
        _rule(".missing text, .flawed .muted", f"fill: {palette.warning}"),
        _rule(".lock", f"fill: {palette.lock}"),
        _rule(".lock-bow", f"fill: none; stroke: {palette.lock}; stroke-width: 1.6"),
        *links,
    ]


def _link_colours(link: Link, colour: str) -> list[str]:
    return [
        _rule(f".line.{link}", f"stroke: {colour}"),
        _rule(f".tip.{link}, text.{link}", f"fill: {colour}"),
    ]


def _rule(selectors: str, body: str) -> str:
    confined = ", ".join(f".fidelio-drawing {selector.strip()}" for selector in selectors.split(","))
    return f"{confined} {{ {body} }}"
