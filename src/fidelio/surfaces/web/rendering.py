"""Templates of the page: jinja2 with automatic escaping, and the filters that show times and foreign text."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fidelio.clock import format_iso, now_ms
from fidelio.definitions.drawing.svg import render_stylesheet
from fidelio.surfaces.text import escape_json, escape_text
from fidelio.surfaces.web.charts import describe_duration

# Words, and what is between them.
_WORDS = re.compile(r"([^\W_]+)")
_STARRED = re.compile(r"([^\W_]+)(\*?)")
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))


class Renderer:
    """Renders templates. What is not marked as safe is escaped."""

    def __init__(self) -> None:
        self._templates = _open_templates()

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        return self._templates.get_template(template).render(values)


@cache
def _open_templates() -> Environment:
    """The templates, compiled once for a process: a shared file would spend half of its time on that."""
    templates = Environment(
        loader=PackageLoader("fidelio.surfaces.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(when=show_time, times=show_both_times, moment=show_moment, csp_hash=compute_policy_hash)
    templates.filters.update(foreign=show_foreign, marked=mark_words, json=show_json, duration=describe_duration)
    templates.filters.update(commands=show_commands, lasting=show_lasting)
    templates.globals.update(static=static_address, now=now_ms)
    return templates


def show_time(ms: int | None) -> Markup:
    """A moment, relative, for lists; the script keeps it current and adds the absolute time in the zone of the person."""
    return Markup("") if ms is None else _show(ms, "relative", describe_distance(ms, now_ms()))


def show_both_times(ms: int | None) -> Markup:
    """A moment, relative and absolute: where it matters, also on a phone, which shows no tooltips."""
    return Markup("") if ms is None else _show(ms, "both", f"{describe_distance(ms, now_ms())} · {_format_moment(ms)}")


def show_moment(ms: int) -> Markup:
    """A moment, absolute: for pages that are read later."""
    return _show(ms, "absolute", _format_moment(ms))


def show_lasting(ms: int) -> Markup:
    """How long something has lasted that began at a moment and goes on; the script keeps it current."""
    return _show(ms, "lasting", describe_duration(max(0, now_ms() - ms)))


def _show(ms: int, style: str, text: str) -> Markup:
    """An element that the script shows in the zone of the person; without JavaScript it is in UTC."""
    iso = format_iso(ms)
    return Markup('<time datetime="{}" data-time="{}" title="{}">{}</time>').format(iso, style, _format_moment(ms), text)


def _format_moment(ms: int) -> str:
    return f"{format_iso(ms)[:16].replace('T', ' ')} UTC"


def describe_distance(ms: int, now: int) -> str:
    """How long ago a moment was, or how far away it is, in the largest whole unit."""
    seconds = abs(now - ms) // 1000
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), ("second", 1))
    count = seconds // size
    if not count:
        return "now"
    words = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"in {words}" if ms > now else f"{words} ago"


def show_foreign(text: object) -> Markup:
    """Text of an agent, a client or a file: escaped, with invisible characters made visible, with its lines."""
    return escape("\n".join(escape_text(line) for line in str(text).split("\n")))


def show_commands(text: object) -> Markup:
    """A sentence with its commands, which are in backticks, as code."""
    pieces = str(text).split("`")
    # Without its partner a backtick begins nothing.
    paired = len(pieces) % 2 == 1
    shown = (
        Markup("<code>{}</code>").format(show_foreign(piece)) if paired and number % 2 else show_foreign(piece)
        for number, piece in enumerate(pieces)
    )
    return escape("" if paired else "`").join(shown)


def mark_words(text: object, terms: Iterable[str]) -> Markup:
    """Foreign text with the words of a search marked; a term that ends with a star marks every word that begins so."""
    wanted = _read_terms(terms)

    def mark(part: str) -> Markup:
        is_hit = any(_is_match(_fold(part), *word) for word in wanted)
        return Markup("<mark>{}</mark>").format(show_foreign(part)) if is_hit else show_foreign(part)

    return Markup("").join(mark(part) for part in _WORDS.split(str(text)))


def contains_words(text: str, terms: Iterable[str]) -> bool:
    """Whether a text contains all words of a search."""
    folded, wanted = [_fold(word) for word in _WORDS.findall(text)], _read_terms(terms)
    return bool(wanted) and all(any(_is_match(found, *word) for found in folded) for word in wanted)


def _read_terms(terms: Iterable[str]) -> list[tuple[str, bool]]:
    """The words of the terms of a search, and whether each stands for all words that begin so."""
    return [(_fold(word), star == "*") for term in terms for word, star in _STARRED.findall(term)]


def _is_match(folded: str, word: str, is_prefix: bool) -> bool:
    return folded.startswith(word) if is_prefix else folded == word


def _fold(word: str) -> str:
    """A word without case and accents, as the search compares it."""
    plain = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char))


def show_json(value: object) -> Markup:
    """A value as JSON, for reading. It can be parsed, so that a shared file can compare it with its chain."""
    return escape(escape_json(format_json(value)))


def format_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def compute_policy_hash(text: str) -> Markup:
    """The source of a content security policy that lets exactly this inline script or style through."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup("'sha256-{}'").format(digest)


@cache
def static_address(name: str) -> str:
    """The address of a static file. It changes with the content, so browsers may keep it for ever."""
    digest = hashlib.sha256(read_static(name) or b"").hexdigest()[:12]
    return f"/static/{name}?v={digest}"


@cache
def read_static(name: str) -> bytes | None:
    """A file of the package, None if there is none. Only names that are listed in the package can be read."""
    if name not in STATIC_FILES:
        return None
    if name == DRAWING_STYLE:
        return render_stylesheet().encode()
    return files("fidelio.surfaces.web").joinpath("static", *name.split("/")).read_bytes()


# Made from the code of the drawings, so that a drawing in a page looks as it does in a file.
DRAWING_STYLE = "drawing.css"
STATIC_FILES: Mapping[str, str] = {
    DRAWING_STYLE: "text/css",
    "style.css": "text/css",
    "app.js": "text/javascript",
    "passkeys.js": "text/javascript",
    "verify.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "vendor/htmx.min.js": "text/javascript",
    "vendor/hx-sse.min.js": "text/javascript",
}
