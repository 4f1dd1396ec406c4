"""Tests whose external requirements are missing are skipped, or fail where everything is required."""

from __future__ import annotations

import pytest

from tests.support import proves
from tests.support.parts import require_part


@proves("tests.missing-parts")
def test_a_missing_part_skips_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIDELIO_REQUIRE_ALL", raising=False)

    with pytest.raises(pytest.skip.Exception, match=r"A dungeon is missing\. Dig one\."):
        require_part("A dungeon", "Dig one.")


@proves("tests.missing-parts")
def test_a_missing_part_fails_where_everything_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIDELIO_REQUIRE_ALL", "1")

    with pytest.raises(pytest.fail.Exception, match=r"A dungeon is missing\. Dig one\."):
        require_part("A dungeon", "Dig one.")
