"""HTML as readable text: headings, paragraphs, lists, links and code; no scripts, styles or navigation. Pure.

It makes a page shorter for a model and is no defence: the text of a page is data from a stranger, whatever it says.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "nav", "footer", "form"})
_VOID = frozenset({"br", "hr", "img", "input", "meta", "link", "area", "base", "col", "embed", "source", "track", "wbr"})
_BLOCKS = frozenset(
    [
        "p",
        "div",
        "section",
        "article",
        "main",
        "aside",
        "header",
        "ul",
        "ol",
        "table",
        "tr",
        "blockquote",
        "dl",
        "dt",
        "dd",
        "figure",
        "figcaption",
        "details",
        "summary",
    ]
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
# Deeper nesting than this is no document.
_MAX_DEPTH = 500


class _Reader(HTMLParser):
    """Collects the text of a page."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title, self.pieces = "", list[str]()
        self._address, self._hidden = address, list[str]()
        self._links: list[str] = []
        self._is_title = False
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._is_title = True
        elif self._hidden or tag in _HIDDEN:
            self._hide(tag)
        elif tag == "a":
            self._links.append(self._resolve(dict(attrs).get("href") or ""))
        elif tag == "pre":
            self._code += 1
            self.pieces.append("\n\n```\n")
        elif tag == "img" and (text := dict(attrs).get("alt")):
            self.pieces.append(f"[image: {text}]")
        else:
            self.pieces.append(_begin(tag))

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._is_title = False
        elif self._hidden:
            if tag in self._hidden:
                del self._hidden[self._hidden.index(tag) :]
        elif tag == "a" and self._links:
            self.pieces.append(f" ({address})" if (address := self._links.pop()) else "")
        elif tag == "pre" and self._code:
            self._code -= 1
            self.pieces.append("\n```\n\n")
        elif tag in _BLOCKS or tag in _HEADINGS:
            self.pieces.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._is_title:
            self.title += data
        elif not self._hidden:
            # Spaces of the source mean nothing, except in code, whose lines are kept apart with a mark.
            self.pieces.append(data.replace("\n", "\x01").replace(" ", "\x02") if self._code else re.sub(r"\s+", " ", data))

    def _hide(self, tag: str) -> None:
        if tag not in _VOID and len(self._hidden) < _MAX_DEPTH:
            self._hidden.append(tag)

    def _resolve(self, link: str) -> str:
        """The address of a link, if it leads to another page."""
        try:
            address = urljoin(self._address, link.strip())
            is_page = urlsplit(address).scheme in ("http", "https")
        except ValueError:
            return ""
        return address if is_page and not link.startswith("#") else ""


def _begin(tag: str) -> str:
    if tag in _HEADINGS:
        return f"\n\n{_HEADINGS[tag]} "
    if tag == "li":
        return "\n- "
    if tag in ("td", "th"):
        return " | "
    return "\n\n" if tag in _BLOCKS else "\n" if tag in ("br", "hr") else ""


def read_html(text: str, address: str) -> tuple[str, str]:
    """The title and the text of a page. Broken HTML is read as far as it goes."""
    reader = _Reader(address)
    reader.feed(text)
    reader.close()
    lines = [re.sub(r" +", " ", line).strip() for line in "".join(reader.pieces).replace("\r", "").split("\n")]
    whole = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return " ".join(reader.title.split()), whole.replace("\x01", "\n").replace("\x02", " ")
