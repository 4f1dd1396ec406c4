"""HTML as readable text: headings, paragraphs, lists, links and code; no scripts, styles or navigation. Pure.

It makes a page shorter for a model and is no defence: the text of a page is data from a stranger, whatever it says. Each
character is looked at once: the parser of the standard library takes quadratic time for tags that never end, and a page of a
stranger has many of them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple
from urllib.parse import urljoin, urlsplit

# Their content is no HTML, and ends only with their own end tag.
_RAW = frozenset({"script", "style", "title", "textarea", "iframe", "noscript", "xmp", "noembed", "noframes"})
_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "nav", "footer", "form"})
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "main", "aside", "header", "ul", "ol", "table", "tr", "blockquote"}
    | {"dl", "dt", "dd", "figure", "figcaption", "details", "summary"}
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_NAME = re.compile(r"[a-zA-Z][^\s/>]*")
# An attribute up to its value, and a value without quotes.
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>=][^\s/>=]*)?(\s*=\s*)?""")
_BARE = re.compile(r"[^\s>]*")
# Python refuses to read a number of thousands of digits.
_LONG_NUMBER = re.compile(r"&#[0-9]{8,};?")
_MAX_TITLE, _MAX_NAME = 1_000, 30


class _Token(NamedTuple):
    """A piece of a page. `value` is a text, or the name of a tag; `address` and `alt` are attributes of a tag."""

    kind: Literal["text", "start", "end", "raw"]
    value: str
    link: str = ""
    alt: str = ""


def _tokenize(page: str) -> Iterator[_Token]:
    """The texts and tags of a page. A comment, a tag or a script without an end ends the page."""
    position = 0
    while (start := page.find("<", position)) >= 0:
        if start > position:
            yield _Token("text", page[position:start])
        following = page[start + 1 : start + 2]
        is_end = following == "/"
        if (name := _NAME.match(page, start + 1 + is_end)) is not None:
            tag, attributes, position = name[0][:_MAX_NAME].lower(), *_read_attributes(page, name.end())
            if position < 0:
                return
            yield _Token("end" if is_end else "start", tag, attributes.get("href", ""), attributes.get("alt", ""))
            if page[position - 2] == "/" and tag not in _RAW:
                yield _Token("end", tag)
            elif tag in _RAW and not is_end:
                end = _find_end(page, tag, position)
                yield _Token("raw", page[position:end])
                position = end
        elif following and following in "!?/":
            position = _skip_comment(page, start)
        else:
            yield _Token("text", "<")
            position = start + 1
    yield _Token("text", page[position:])


def _read_attributes(page: str, position: int) -> tuple[dict[str, str], int]:
    """The attributes of a tag, and the position behind it; negative if the tag has no end."""
    found: dict[str, str] = {}
    while position < len(page) and page[position] != ">":
        match = _ATTRIBUTE.match(page, position)
        assert match is not None  # everything in it is optional
        name, position, value = (match[1] or "").lower(), match.end(), ""
        if match[2] is not None:
            value, position = _read_value(page, position)
        if position < 0:
            break
        found.setdefault(name, value)
    return found, position + 1 if 0 <= position < len(page) else -1


def _read_value(page: str, position: int) -> tuple[str, int]:
    quote = page[position : position + 1]
    if quote and quote in "\"'":
        end = page.find(quote, position + 1)
        return page[position + 1 : end], end + 1 if end >= 0 else -1
    bare = _BARE.match(page, position)
    return (bare[0], bare.end()) if bare else ("", position)


def _find_end(page: str, tag: str, position: int) -> int:
    found = re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE).search(page, position)
    return found.start() if found else len(page)


def _skip_comment(page: str, start: int) -> int:
    mark = "-->" if page.startswith("<!--", start) else ">"
    end = page.find(mark, start + 2)
    return end + len(mark) if end >= 0 else len(page)


def _decode(text: str) -> str:
    return html.unescape(_LONG_NUMBER.sub("\N{REPLACEMENT CHARACTER}", text)) if "&" in text else text


class _Reader:
    """Collects the text of a page."""

    def __init__(self, address: str) -> None:
        self.title, self.pieces = "", list[str]()
        self._address, self._links = address, list[str]()
        # The element whose content is hidden, and how many of its kind are open.
        self._hidden, self._depth = "", 0
        self._is_title = False
        self._code = 0

    def read(self, token: _Token) -> None:
        if token.kind == "start":
            self._is_title = token.value == "title"
            self._start(token)
        elif token.kind == "end":
            self._end(token.value)
        elif self._is_title and token.kind == "raw":
            self.title, self._is_title = self.title or _decode(token.value[:_MAX_TITLE]), False
        elif not self._hidden:
            self._add(_decode(token.value))

    def _start(self, token: _Token) -> None:
        tag = token.value
        if self._hidden or tag in _HIDDEN:
            self._hidden = self._hidden or tag
            self._depth += tag == self._hidden
        elif tag == "a":
            self._links.append(self._resolve(_decode(token.link)))
        elif tag == "pre":
            self._code += 1
            self.pieces.append("\n\n```\n")
        elif tag == "img" and token.alt:
            self.pieces.append(f"[image: {_decode(token.alt)}]")
        else:
            self.pieces.append(_begin(tag))

    def _end(self, tag: str) -> None:
        if self._hidden:
            self._depth -= tag == self._hidden
            self._hidden = self._hidden if self._depth else ""
        elif tag == "a" and self._links:
            self.pieces.append(f" ({address})" if (address := self._links.pop()) else "")
        elif tag == "pre" and self._code:
            self._code -= 1
            self.pieces.append("\n```\n\n")
        elif tag in _BLOCKS or tag in _HEADINGS:
            self.pieces.append("\n\n")

    def _add(self, text: str) -> None:
        # Spaces of the source mean nothing, except in code, whose lines are kept apart with a mark.
        self.pieces.append(text.replace("\n", "\x01").replace(" ", "\x02") if self._code else re.sub(r"\s+", " ", text))

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
    for token in _tokenize(text):
        reader.read(token)
    lines = [re.sub(r" +", " ", line).strip() for line in "".join(reader.pieces).replace("\r", "").split("\n")]
    whole = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return " ".join(reader.title.split()), whole.replace("\x01", "\n").replace("\x02", " ")
