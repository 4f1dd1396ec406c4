"""Random names that people can read out and that never collide.

32 letters and digits without look-alikes, five bits each: twelve of them are the 60 random bits that a session handle promises.
"""

from __future__ import annotations

import re
import secrets

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
SESSION_PREFIX = "s_"
_SHORT_HANDLE = re.compile(rf"s_[{ALPHABET}]{{12}}")


def new_id(prefix: str, characters: int = 12) -> str:
    bits = int.from_bytes(secrets.token_bytes((characters * 5 + 7) // 8))
    return prefix + "".join(ALPHABET[(bits >> (5 * place)) & 31] for place in range(characters))


def new_session_id() -> str:
    return new_id(SESSION_PREFIX)


def is_short_handle(text: str) -> bool:
    return _SHORT_HANDLE.fullmatch(text) is not None
