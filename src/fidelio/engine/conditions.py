"""Whether a condition holds in a session.

What conditions mean is said once, beside their models, because lint has to mean the same. The rules of the engine take it from
here, so that only this module knows where it comes from.
"""

from __future__ import annotations

from fidelio.definitions.evaluation import MISSING, Truth, every, holds, look_up, negated, same

__all__ = ["MISSING", "Truth", "every", "holds", "look_up", "negated", "same"]
