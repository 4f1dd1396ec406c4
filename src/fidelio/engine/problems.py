"""Problems that the rules find, and the warnings or refusals that follow from them.

The same problem is a warning at the level `advise` and a refusal at the level `enforce`. A doubt, a problem that depends on
unknown values, is not reported at `advise`; `enforce` refuses the call and names the missing values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fidelio.engine.state import Fidelity


class Refusal(msgspec.Struct, frozen=True):
    """Why a call is refused, and what to do instead. `code` is stable."""

    code: str
    sentence: str
    remedy: str = ""


class Problem(msgspec.Struct, frozen=True):
    """A deviation from the definition.

    `doubt`: the record cannot tell whether it is one. `advisory`: it is a warning at every level.
    """

    code: str
    sentence: str
    remedy: str = ""
    doubt: bool = False
    advisory: bool = False


def list_warnings(problems: Iterable[Problem]) -> list[str]:
    """The warnings of a call at the level `advise`: each problem once, without doubts."""
    return list(dict.fromkeys(problem.sentence for problem in problems if not problem.doubt))


def build_refusal(problems: Sequence[Problem], fidelity: Fidelity) -> Refusal | None:
    """The refusal that follows from these problems, or None. The level `advise` never refuses."""
    distinct = list({problem.sentence: problem for problem in problems if not problem.advisory}.values())
    if fidelity == "advise" or not distinct:
        return None
    sentence = " ".join(problem.sentence for problem in distinct)
    remedy = " ".join(dict.fromkeys(problem.remedy for problem in distinct if problem.remedy))
    return Refusal(distinct[0].code, sentence, remedy)
