"""What the rules find, and what becomes of it.

The same finding is a warning in a session that advises and a refusal in one that enforces. Something that is merely not known
never troubles an agent that is being advised; enforcing asks for it by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fidelio.engine.state import Fidelity


class Refusal(msgspec.Struct, frozen=True):
    """Why something is not done, and what to do instead. `code` is stable."""

    code: str
    sentence: str
    remedy: str = ""


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as the definition wants it.

    `doubt`: it may be right, but the record does not know. `advisory`: it is said at every level and refused at none.
    """

    code: str
    sentence: str
    remedy: str = ""
    doubt: bool = False
    advisory: bool = False


def warnings(problems: Iterable[Problem]) -> list[str]:
    """What an agent that is being advised gets to read: each problem once, doubts not at all."""
    return list(dict.fromkeys(problem.sentence for problem in problems if not problem.doubt))


def refusal(problems: Sequence[Problem], fidelity: Fidelity) -> Refusal | None:
    """The refusal that these problems amount to, or None. Advising never refuses."""
    distinct = list({problem.sentence: problem for problem in problems if not problem.advisory}.values())
    if fidelity == "advise" or not distinct:
        return None
    sentence = " ".join(problem.sentence for problem in distinct)
    remedy = " ".join(dict.fromkeys(problem.remedy for problem in distinct if problem.remedy))
    return Refusal(distinct[0].code, sentence, remedy)
