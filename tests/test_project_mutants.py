"""Mutation sampling finds the changes that no test notices, and leaves the working tree alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.mutants.__main__ import (
    KILLED,
    LISTED,
    MOST_SECONDS,
    SOURCE,
    SURVIVED,
    Recorded,
    Workplace,
    choose_tests,
    read_listed,
)
from scripts.mutants.finder import Finder, Mutant, mutants_of, sample
from tests.support import proves

EXAMPLE = '''
LIMIT: int = 3


@cache(1)
async def ferry(load: int | None = 2, *, name: "1 < 2" = "é") -> bool:
    """Not 1 + 1."""
    assert load > 1
    if name and not load:
        raise ValueError(f"{load + 1}")
    self.load = [item for item in name if free(item, load)]
    close()
    return load < LIMIT
'''
MUTATIONS = {
    "3 -> 4",
    "2 -> 3",
    "name and (not load) -> not (name and (not load))",
    "name and (not load) -> name or not load",
    "not load -> load",
    "raise ValueError(f'{load + 1}') -> pass",
    "self.load = [item for item in name if free(item, load)] -> pass",
    "free(item, load) -> not free(item, load)",
    "free(item, load) -> free(load, item)",
    "close() -> pass",
    "return load < LIMIT -> return None",
    "load < LIMIT -> load <= LIMIT",
    "load < LIMIT -> load >= LIMIT",
}


def find(source: str) -> list[Mutant]:
    return list(Finder("fidelio/ferry.py", source.encode()).found.values())


def apply(mutant: Mutant, source: str) -> str:
    raw = source.encode()
    return (raw[: mutant.start] + mutant.text.encode() + raw[mutant.end :]).decode()


def normalize(source: str) -> str:
    return ast.unparse(ast.parse(source))


@proves("project.mutants")
def test_every_part_that_decides_is_mutated_and_no_text_or_declaration() -> None:
    assert {mutant.mutation for mutant in find(EXAMPLE)} == MUTATIONS


@proves("project.mutants")
def test_a_mutant_is_valid_python_that_differs_in_one_place() -> None:
    for mutant in find(EXAMPLE):
        old, new = mutant.mutation.split(" -> ")

        changed = normalize(apply(mutant, EXAMPLE))

        assert changed == normalize(normalize(EXAMPLE).replace(old, new, 1))
        assert mutant.function == (None if mutant.line == "LIMIT: int = 3" else 5)


@proves("project.mutants")
def test_a_sample_stays_the_same_when_other_lines_change() -> None:
    before = sample(find(EXAMPLE), seed=7, size=4)
    after = sample(find("\n" + EXAMPLE.replace("close()", "pass")), seed=7, size=4)

    assert len({mutant.key for mutant in before} & {mutant.key for mutant in after}) >= 3
    assert before != sample(find(EXAMPLE), seed=8, size=4)


@pytest.fixture
def mutant() -> Mutant:
    return find(EXAMPLE)[-1]


@proves("project.mutants")
def test_the_tests_of_a_mutant_run_its_line_or_enter_its_function(mutant: Mutant) -> None:
    recorded = [
        Recorded("too long together", MOST_SECONDS, ran(5, mutant.number)),
        Recorded("slow", 2, ran(5, mutant.number)),
        Recorded("quick", 1, ran(5, mutant.number)),
        Recorded("enters", 0, ran(5)),
        Recorded("beside", 0, ran(50)),
        Recorded("elsewhere", 0, {}),
    ]

    assert names(choose_tests(mutant, recorded[1:])) == ["quick", "slow", "enters"]
    assert names(choose_tests(mutant, recorded)) == ["quick", "slow"]
    assert names(choose_tests(mutant, recorded[:1])) == ["too long together"]
    assert names(choose_tests(replace(mutant, function=None), recorded[2:])) == ["quick", "enters", "beside"]


def ran(*lines: int) -> dict[str, list[int]]:
    return {"fidelio/ferry.py": [*lines]}


def names(tests: Iterable[Recorded]) -> list[str]:
    return [test.id for test in tests]


@proves("project.mutants")
def test_a_test_runs_against_the_mutant_and_the_source_stays_as_it_is(tmp_path: Path) -> None:
    file = SOURCE / "fidelio" / "tokens" / "seal.py"
    before = file.read_bytes()
    test = Recorded("tests/tokens/test_seal.py::test_a_token_opens_until_its_expiry_and_not_after", 1, {})
    found = {mutant.mutation: mutant for mutant in mutants_of(SOURCE, ["tokens/seal.py"])}
    workplace = Workplace(tmp_path)

    assert workplace.run(found["now >= expires -> now > expires"], [test]) == KILLED
    assert workplace.run(found["4096 -> 4097"], [test]) == SURVIVED
    assert file.read_bytes() == before


@proves("project.mutants")
def test_every_accepted_survivor_is_a_mutant_of_the_source_and_has_a_reason() -> None:
    listed = read_listed()
    found = {mutant.key for mutant in mutants_of(SOURCE, sorted({file.split("/")[1] for file, _, _ in listed}))}

    assert [key for key, reason in listed.items() if key not in found or not reason.strip()] == [], f"Correct {LISTED.name}."
