"""What can be wrong with sealed tokens and their keys. `fidelio.errors` draws the whole tree."""

from __future__ import annotations

from fidelio.errors.base import FidelioError


class TokenError(FidelioError):
    """Base of what can be wrong with a sealed token or its keys."""

    code = "token"


class BadToken(TokenError):
    """Not a token of this key ring. Deliberately does not say which check failed."""

    code = "token.bad"


class ExpiredToken(TokenError):
    """A genuine token that is past its expiry."""

    code = "token.expired"


class KeyRingProblem(TokenError):
    """The keys cannot be read, written or trusted."""

    code = "token.keys"
