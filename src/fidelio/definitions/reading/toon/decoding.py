"""Import the decoder of `toon-format` without the rest of its package, if possible.

On import the package looks up its own version, which searches all installed distributions: nearly 30 ms, a quarter of the time
to list a library in a new process. The decoder alone needs 3 ms. It is imported from the package's directory under another
module name; if the package has a different layout, it is imported as a whole.

Two functions and one pattern of the decoder process every line character by character, which takes most of the time for long
texts. The imported copy uses `find_unquoted`, `split` and `QUOTED` instead, which skip from quote to quote with the same
result.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PACKAGE = "toon_format"
_ALONE = f"{__name__}_alone"
QUOTED = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# The defaults of the package's own `loads`.
_STRICT_OPTIONS = {
    "indent_size": 2,
    "strict": True,
    "parse_int": None,
    "parse_float": None,
    "object_hook": None,
    "object_pairs_hook": None,
}


def load_decoder() -> tuple[Callable[[str], Any], type[ValueError]]:
    """A function from text to data, and the error it raises, which has `msg`, `line` and `source`."""
    if PACKAGE not in sys.modules:
        try:
            return _load_decoder_alone()
        except (ImportError, AttributeError):
            sys.modules.pop(_ALONE, None)
    package = import_module(PACKAGE)
    return package.loads, package.ToonDecodeError


def _load_decoder_alone() -> tuple[Callable[[str], Any], type[ValueError]]:
    spec = find_spec(PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(PACKAGE)
    shell = sys.modules[_ALONE] = ModuleType(_ALONE)
    shell.__path__ = list(spec.submodule_search_locations)
    module = import_module(f"{_ALONE}._decoder")
    _speed_up(module)
    return partial(module.decode, **_STRICT_OPTIONS), module.ToonDecodeError


def _speed_up(module: ModuleType) -> None:
    for name, quicker in (("_find_unquoted", find_unquoted), ("_split", split), ("_QUOTED", QUOTED)):
        if hasattr(module, name):
            setattr(module, name, quicker)


def find_unquoted(text: str, char: str, start: int = 0) -> int:
    """Index of the first `char` from `start` on that is not between double quotes, or -1."""
    found = text.find(char, start)
    while found >= 0:
        quote = text.find('"', start, found)
        if quote < 0:
            return found
        quoted = QUOTED.match(text, quote)
        if quoted is None:
            return -1
        start = quoted.end()
        found = found if found >= start else text.find(char, start)
    return -1


def split(text: str, delimiter: str) -> list[str]:
    """Split at the delimiters outside of double quotes, and strip the spaces around the tokens."""
    tokens, start = list[str](), 0
    while (found := find_unquoted(text, delimiter, start)) >= 0:
        tokens.append(text[start:found].strip(" "))
        start = found + 1
    tokens.append(text[start:].strip(" "))
    return tokens
