"""The check of the vocabulary finds replaced words and double class names, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import check_vocabulary
from tests.support import proves

GLOSSARY = """
| term | meaning | not |
|---|---|---|
| agent host | the process that runs agents | house, duty |
| lock | waits for others | |

| use | instead of |
|---|---|
| `policy` | house rules |
| `release` | give |
"""


def problems(root: Path, **modules: str) -> list[str]:
    """What the check says about a tree of these modules, each `package__module`."""
    for name, text in modules.items():
        file = root / "src" / "fidelio" / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return [problem.sentence for problem in check_vocabulary.check(root, GLOSSARY)]


@proves("project.vocabulary")
def test_the_replaced_words_are_those_of_the_last_columns() -> None:
    assert check_vocabulary.replaced_words(GLOSSARY) == {("house",), ("duty",), ("house", "rules"), ("give",)}


@proves("project.vocabulary")
@pytest.mark.parametrize(
    "text",
    [
        "class House: ...",
        "def give() -> None: ...",
        "def lend(house: int) -> None: ...",
        "on_duty = 1",
        "class Host:\n    def __init__(self) -> None:\n        self._house = 1",
        "import os as house",
        '"""The house of agents."""',
        'def lend() -> None:\n    """Give it back."""',
    ],
)
def test_a_replaced_word_is_found_where_it_is_chosen(tmp_path: Path, text: str) -> None:
    (found,) = problems(tmp_path, ledger__example=text)

    assert "glossary" in found


@proves("project.vocabulary")
def test_the_name_of_a_module_counts(tmp_path: Path) -> None:
    assert problems(tmp_path, ledger__house="") == [
        "the name 'house' uses 'house'; docs/concepts/glossary.md says what to use instead"
    ]


@proves("project.vocabulary")
@pytest.mark.parametrize(
    "text",
    [
        "household = 1",
        "import house\nhouse.give()",
        '"""The stored key `house` of a session."""',
        '"""One line.\n\nThe house stands further below."""',
        "label = 'house'",
    ],
)
def test_words_that_are_only_used_or_quoted_are_left_alone(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, ledger__example=text) == []


@proves("project.vocabulary")
def test_one_class_name_in_two_packages_is_found(tmp_path: Path) -> None:
    found = problems(tmp_path, ledger__a="class Page: ...", inbox__page="class Page: ...", inbox__b="class Page: ...")

    assert [sentence.partition(" is also")[0] for sentence in found] == ["the public class Page"]


@proves("project.vocabulary")
def test_one_class_name_in_one_package_is_left_alone(tmp_path: Path) -> None:
    assert problems(tmp_path, inbox__page="class Page: ...", inbox__b="class Page: ...", ledger__own="class _Page: ...") == []


def defined_names(file: Path) -> Iterator[tuple[str, bool]]:
    """The classes and aliases that a module defines, and whether each is a class."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name, isinstance(node, ast.ClassDef)


@proves("project.vocabulary")
def test_no_helper_of_the_tests_has_the_name_of_a_class_of_the_product() -> None:
    root = Path(__file__).resolve().parents[1]
    product = {name for file in (root / "src").rglob("*.py") for name, is_class in defined_names(file) if is_class}
    helpers = [file for file in (root / "tests").rglob("*.py") if not file.name.startswith("test_")]

    assert {(file.name, name) for file in helpers for name, _ in defined_names(file) if name in product} == set()
