"""A tree for the file actions, opened in both ways: by plain paths, and beneath a descriptor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fidelio.sandbox.inside.beneath import BeneathTree
from fidelio.sandbox.inside.failures import Failure
from fidelio.sandbox.inside.files import ACTIONS, SCANS
from fidelio.sandbox.inside.tree import PlainTree, Tree


class Actions:
    """Runs file actions in a tree whose workspace is `top`."""

    def __init__(self, tree: Tree, top: Path) -> None:
        self.tree, self.top = tree, top

    def __call__(self, action: str, /, **arguments: Any) -> dict[str, Any]:
        return {**ACTIONS, **SCANS}[action](self.tree, arguments)

    def fail(self, action: str, /, **arguments: Any) -> Failure:
        """The failure of an action that must fail."""
        with pytest.raises(Failure) as caught:
            self(action, **arguments)
        return caught.value

    def names(self, output: dict[str, Any], key: str = "entries") -> list[str]:
        """The paths of a result, relative to the workspace."""
        return [entry["path"].removeprefix(f"{self.tree.base}/") for entry in output[key]]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture(params=["plain", "beneath"])
def act(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Actions]:
    top = tmp_path.resolve() / "workspace"
    top.mkdir()
    if request.param == "plain":
        yield Actions(PlainTree(str(top)), top)
        return
    descriptor = os.open(top, os.O_PATH | os.O_DIRECTORY)
    yield Actions(BeneathTree([("/workspace", descriptor, True)]), top)
    os.close(descriptor)
