"""What a page of ours consists of: a reader of HTML that names everything else, such as markup that a text has brought."""

from __future__ import annotations

from html.parser import HTMLParser

_SHAPES = "svg g path rect circle line text tspan polyline polygon marker defs title desc style a"
_PAGE = """
html head meta title link script body a header nav main footer section article aside h1 h2 h3 h4 p ul ol li dl dt dd div span
strong em b code pre kbd small blockquote details summary form input label select option textarea button table thead tbody tr
th td time img noscript template hr br dialog fieldset legend output progress datalist search menu figure figcaption mark style
"""
ELEMENTS = frozenset((*_SHAPES.split(), *_PAGE.split()))
# Attributes that lead somewhere, and how their values may begin.
_OWN = ("/", "#", "?")
_LEADING = ("href", "src", "action", "formaction", "xlink:href", "data", "poster", "background", "ping", "srcdoc")


class MarkupReader(HTMLParser):
    """Collects in `problems` what no template of ours writes."""

    def __init__(self, markers: tuple[str, ...] = ()) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.inline: list[str] = []
        self.text: list[str] = []
        self._markers, self._within = markers, ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag
        if tag not in ELEMENTS:
            self.problems.append(f"<{tag}>")
        for name, value in attrs:
            self._check_attribute(tag, name, value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._within = ""

    def handle_endtag(self, _: str, /) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self._within == "script" and data.strip():
            self.inline.append(data)

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"<!--{data}-->")

    def _check_attribute(self, tag: str, name: str, value: str) -> None:
        if name.startswith("on") or name in ("style", "srcdoc"):
            self.problems.append(f"{tag} {name}={value!r}")
        if name in _LEADING and not self._is_own(tag, value):
            self.problems.append(f"{tag} {name}={value!r}")
        if tag == "meta" and name == "http-equiv" and value.lower() == "refresh":
            self.problems.append("a refresh")
        if name.startswith(("hx-", "data-signs", "data-elsewhere")) and any(marker in value for marker in self._markers):
            self.problems.append(f"{tag} {name}={value!r}")

    @staticmethod
    def _is_own(tag: str, value: str) -> bool:
        is_icon = tag in ("img", "link") and value.startswith("data:image/svg+xml")
        return is_icon or value == "" or (value.startswith(_OWN) and not value.startswith(("//", "/\\")))


def read_markup(page: str, *markers: str) -> MarkupReader:
    reader = MarkupReader(markers)
    reader.feed(page)
    reader.close()
    return reader
