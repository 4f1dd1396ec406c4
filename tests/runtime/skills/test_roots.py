"""Where skills are looked for, and whose are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.runtime.skills.roots import list_default_roots
from fidelio.trust import Trust, TrustedDirectory
from tests.support import proves


def sources(project: Path, home: Path, trust: Trust) -> list[tuple[str, str]]:
    """Source and directory of each root, without the bundled one and the user's."""
    roots = list_default_roots(Home(home), str(project), lambda: trust)
    shown = [(root.source, str(root.path)) for root in roots]
    assert shown[-1][0] == "bundled"
    return [each for each in shown if each[1].startswith((str(project), str(home)))]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    for name in (".fidelio", ".claude"):
        (directory / name / "skills").mkdir(parents=True)
    return directory


@proves("runtime.skill-roots")
def test_an_untrusted_project_brings_no_skills(project: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert sources(project, home, Trust()) == [("user", str(home / "skills"))]
    elsewhere = Trust(directories=(TrustedDirectory(str(tmp_path / "other")),))
    assert sources(project, home, elsewhere) == [("user", str(home / "skills"))]


@proves("runtime.skill-roots")
@pytest.mark.parametrize("entry", ["", ".fidelio"])
def test_a_trusted_project_comes_first(project: Path, tmp_path: Path, entry: str) -> None:
    trust = Trust(directories=(TrustedDirectory(str(project / entry) if entry else str(project)),))
    assert sources(project, tmp_path / "home", trust) == [
        ("project", str(project / ".fidelio" / "skills")),
        ("project", str(project / ".claude" / "skills")),
        ("user", str(tmp_path / "home" / "skills")),
    ]


@proves("runtime.skill-roots")
def test_a_home_that_only_holds_a_ledger_is_not_trusted(project: Path, tmp_path: Path) -> None:
    entry = TrustedDirectory(str(project / ".fidelio"), is_home_only=True)
    assert len(sources(project, tmp_path / "home", Trust(directories=(entry,)))) == 1


@proves("runtime.skill-roots")
def test_a_directory_that_every_user_can_write_is_passed_over(project: Path, tmp_path: Path) -> None:
    (project / ".claude" / "skills").chmod(0o777)
    trust = Trust(directories=(TrustedDirectory(str(project)),))
    found = [path for source, path in sources(project, tmp_path / "home", trust) if source == "project"]
    assert found == [str(project / ".fidelio" / "skills")]


@proves("runtime.skill-roots")
def test_an_untrusted_home_brings_no_skills(project: Path) -> None:
    roots = list_default_roots(Home(project / ".fidelio", is_trusted=False), str(project), Trust)
    assert not [root for root in roots if str(root.path).startswith(str(project))]


@proves("runtime.skill-roots")
def test_a_home_inside_of_the_project_is_listed_once(project: Path) -> None:
    trust = Trust(directories=(TrustedDirectory(str(project)),))
    roots = list_default_roots(Home(project / ".fidelio"), str(project), lambda: trust)
    assert len({root.path for root in roots}) == len(roots)
    assert (roots[0].path, roots[0].source) == (project / ".fidelio" / "skills", "project")
