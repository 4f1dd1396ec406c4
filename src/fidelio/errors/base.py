"""Base of all errors, and errors of settings, homes and tokens. `fidelio.errors` shows the whole tree."""

from __future__ import annotations

from typing import ClassVar

from fidelio.errors.hints import Hint, Text


class FidelioError(Exception):
    """Base of all errors of Fidelio. `exit_code` is the exit code of the command line.

    `text` is the sentence and the remedy with their commands as values, for a surface to render. `reason` is a stable code
    that is more precise than the class, if it is known.
    """

    code: ClassVar[str] = "fidelio"
    exit_code: ClassVar[int] = 1

    def __init__(self, sentence: Text, *, remedy: Text = "") -> None:
        self.sentence = str(sentence)
        super().__init__(self.sentence)
        self.remedy = remedy
        self.text = Hint(sentence, " ", remedy) if remedy else Hint(sentence)
        self.reason = ""

    def __str__(self) -> str:
        return str(self.text)


class UsageProblem(FidelioError):
    """The call itself is wrong, and nothing was executed."""

    code = "usage"
    exit_code = 2


class HomeProblem(FidelioError):
    """The home directory cannot be used."""

    code = "home"


class HomeNotFound(HomeProblem):
    """The home directory of a command that only reads does not exist."""

    code = "home.not-found"
    exit_code = 4


class ForeignHome(HomeProblem):
    """Another user of this machine controls the home, or could replace files in it."""

    code = "home.foreign"


class TrustProblem(FidelioError):
    """The list of what is trusted cannot be read, stored or believed."""

    code = "trust"


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
    """The keys cannot be read, stored or trusted."""

    code = "token.keys"


class AnchorProblem(FidelioError):
    """An anchor cannot be read, stored or time-stamped. That it contradicts the ledger is a result and no error."""

    code = "anchor"
