"""Environments: versions, validation, files and the trust in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import EnvironmentProblem, UntrustedProject
from fidelio.home import user_home
from fidelio.runtime.environments import Environment, Environments, parse_environment
from fidelio.runtime.environments.versions import BUILT_IN, BUILT_IN_DEFAULT, KIND, describe_effect
from fidelio.runtime.named_definitions import DefinitionFiles, read_directory
from fidelio.runtime.vaults import Vaults
from fidelio.trust import Trust, TrustedBlueprint, TrustedDirectory, update_trust
from tests.runtime.resources.support import Bench
from tests.support import proves
from tests.support.users import NOBODY, needs_root


@pytest.fixture(autouse=True)
def own_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test trusts is in the directory of the test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def environments(bench: Bench) -> Environments:
    return Environments(bench.context)


def write_file(project: Path, name: str, text: str) -> Path:
    directory = project / ".fidelio" / "environments"
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{name}.yaml"
    file.write_text(text)
    return file


def trust(project: Path) -> None:
    """Trust the project and its environments as they are now, as `fidelio trust` does."""
    files = read_directory(KIND, project / ".fidelio" / "environments")
    seen = tuple(TrustedBlueprint(file.hash, os.path.realpath(file.source)) for file in files if file.hash)
    directory = TrustedDirectory(os.path.realpath(project))

    def add(before: Trust) -> Trust:
        return Trust((*before.directories, directory), (*before.blueprints, *seen))

    update_trust(user_home().path, add)


@proves("runtime.environments")
async def test_without_a_name_a_session_gets_the_built_in_environment(bench: Bench, environments: Environments) -> None:
    assert await environments.resolve(None, str(bench.home.path)) == BUILT_IN_DEFAULT
    assert await environments.resolve("default", "/nowhere") == BUILT_IN_DEFAULT
    assert (BUILT_IN_DEFAULT.version, BUILT_IN_DEFAULT.environment.network) == (BUILT_IN, "none")
    assert await environments.list() == (BUILT_IN_DEFAULT,)


@proves("runtime.environments", "runtime.vaults")
async def test_who_only_looks_writes_nothing(bench: Bench, environments: Environments) -> None:
    with pytest.raises(EnvironmentProblem, match="Known here: default"):
        await environments.load("web")
    assert (await environments.list(), await Vaults(bench.context).list()) == ((BUILT_IN_DEFAULT,), ())

    assert (await bench.ledger.sessions()).items == ()


@proves("runtime.environments")
async def test_each_different_content_is_a_version_and_a_session_keeps_its_own(
    bench: Bench, environments: Environments
) -> None:
    first = await environments.define("web", Environment(network="limited", hosts=("pypi.org",)), by="anna")
    same = await environments.define("web", Environment(network="limited", hosts=("pypi.org",)), by="bea")
    session = await bench.start(environment="web", environment_version=first.version)
    second = await environments.define("web", Environment(variables={"CI": "1"}), by="anna")

    assert (first.version, same.version, second.version) == (1, 1, 2)
    spec = await bench.spec(session)
    assert (spec.network, spec.hosts, spec.environment) == ("limited", ("pypi.org",), {})
    assert (await environments.resolve("web", "/nowhere")).version == 2
    assert [entry.label for entry in await environments.list()] == ["default (built in)", "web, version 2"]


@proves("runtime.environments")
async def test_an_own_default_replaces_the_built_in_one_for_new_sessions(bench: Bench, environments: Environments) -> None:
    old = await bench.start("old", environment="default", environment_version=BUILT_IN)
    defined = await environments.define("default", Environment(variables={"A": "1"}), by="anna")
    assert await environments.resolve(None, "/nowhere") == defined
    assert (await bench.spec(old)).environment == {}
    assert len(await environments.list()) == 1


@proves("runtime.environments")
async def test_everything_of_an_environment_reaches_the_sandbox(bench: Bench, environments: Environments) -> None:
    data = {
        "network": "unrestricted",
        "read_only": ["/opt/toolchain"],
        "limits": {"processes": 64, "disk_bytes": 1 << 30},
        "variables": {"LANG": "C.UTF-8"},
    }
    defined = await environments.define("build", parse_environment(data, "test"), by="anna")
    session = await bench.start(environment="build", environment_version=defined.version)
    spec = await bench.spec(session)
    assert (spec.network, spec.toolchains, spec.environment) == ("unrestricted", ("/opt/toolchain",), {"LANG": "C.UTF-8"})
    assert (spec.limits.processes, spec.limits.disk_bytes, spec.limits.open_files) == (64, 1 << 30, 1024)


@proves("runtime.environments")
@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"netwrk": "none"}, "netwrk"),
        ({"network": "internet"}, "network"),
        ({"network": "limited"}, "no hosts"),
        ({"hosts": ["pypi.org"]}, "network is none"),
        ({"network": "limited", "hosts": ["10.0.0.1"]}, "10.0.0.1"),
        ({"network": "limited", "hosts": ["https://pypi.org"]}, "https"),
        ({"network": "limited", "hosts": ["*"]}, "'*'"),
        ({"network": "limited", "hosts": ["localhost"]}, "localhost"),
        ({"read_only": ["/"]}, "read_only"),
        ({"read_only": ["opt"]}, "opt"),
        ({"read_only": ["/opt/../root"]}, "/opt/../root"),
        ({"packages": ["node; rm -rf /"]}, "node; rm"),
        ({"packages": ["-v"]}, "-v"),
        ({"variables": {"LD_PRELOAD": "/x"}}, "LD_PRELOAD"),
        ({"variables": {"BASH_ENV": "/x"}}, "BASH_ENV"),
        ({"variables": {"FIDELIO_HOME": "/x"}}, "FIDELIO_HOME"),
        ({"variables": {"A B": "x"}}, "A B"),
        ({"variables": {"A": 1}}, "variables"),
        ({"limits": {"processes": 100_000}}, "processes"),
        ({"limits": {"processes": "many"}}, "processes"),
        ({"setup": ["a"]}, "setup"),
        ([], "object"),
        ("text", "object"),
    ],
)
def test_a_wrong_value_is_refused_with_the_key(data: Any, named: str) -> None:
    with pytest.raises(EnvironmentProblem) as refused:
        parse_environment(data, "The file x")
    assert named in str(refused.value)
    assert str(refused.value).startswith("The file x")


@proves("runtime.environments")
@pytest.mark.parametrize("name", ["missing", "", "../x", "a b", "x" * 61])
async def test_an_unknown_environment_is_refused_with_the_known_ones(environments: Environments, name: str) -> None:
    if not name:
        name = "nothing"
    with pytest.raises(EnvironmentProblem) as refused:
        await environments.resolve(name, "/nowhere")
    assert "default" in str(refused.value) or "60 letters" in str(refused.value)


@proves("runtime.environment-files")
async def test_a_file_of_a_project_is_used_only_as_a_person_has_trusted_it(
    bench: Bench, environments: Environments, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    file = write_file(project, "web", "network: limited\nhosts: [pypi.org]\n")
    with pytest.raises(UntrustedProject, match="Nobody has trusted"):
        await environments.resolve("web", str(project))

    trust(project)
    used = await environments.resolve("web", str(project))
    assert (used.version, used.environment.hosts) == (1, ("pypi.org",))
    assert (await environments.resolve("web", str(project))).version == 1

    file.write_text("network: host\n")
    with pytest.raises(UntrustedProject, match=r"has changed since a person trusted it. It would allow: network host"):
        await environments.resolve("web", str(project))
    trust(project)
    assert (await environments.resolve("web", str(project))).version == 2
    assert (await environments.load("web", 1)).environment.network == "limited"


@proves("runtime.environment-files")
async def test_a_default_of_a_project_that_nobody_has_trusted_is_not_used(environments: Environments, tmp_path: Path) -> None:
    write_file(tmp_path / "project", "default", "network: host\n")
    assert await environments.resolve(None, str(tmp_path / "project")) == BUILT_IN_DEFAULT


@proves("runtime.environment-files")
async def test_files_of_the_home_are_used(bench: Bench, environments: Environments) -> None:
    directory = bench.home.path / "environments"
    directory.mkdir()
    (directory / "build.yaml").write_text("packages: [make]\n")
    assert (await environments.resolve("build", "/nowhere")).environment.packages == ("make",)
    untrusted = DefinitionFiles(KIND, bench.home._replace(is_trusted=False))
    assert untrusted.find("build", "/nowhere") is None


@proves("runtime.environment-files")
async def test_a_broken_file_hides_no_other(bench: Bench, environments: Environments) -> None:
    directory = bench.home.path / "environments"
    directory.mkdir()
    (directory / "good.yaml").write_text("network: none\n")
    (directory / "broken.yaml").write_text("network: [\n")
    (directory / "wrong.yaml").write_text("network: maybe\n")
    (directory / "empty.yaml").write_text("")
    (directory / "bad name.yaml").write_text("")
    (directory / "notes.txt").write_text("")
    (directory / "out.yaml").symlink_to("/etc/passwd")

    listed = {file.name: bool(file.problem) for file in await environments.list_files("/nowhere")}

    assert listed == {"good": False, "broken": True, "wrong": True, "empty": False, "bad name": True, "out": True}
    for name in ("broken", "wrong", "out"):
        with pytest.raises(Exception, match=name):
            await environments.resolve(name, "/nowhere")
    assert (await environments.resolve("good", "/nowhere")).version == 1


@needs_root
@proves("runtime.environment-files")
async def test_a_file_that_another_user_can_write_is_not_used(bench: Bench, environments: Environments, tmp_path: Path) -> None:
    project = tmp_path / "project"
    file = write_file(project, "web", "network: host\n")
    trust(project)
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(Exception, match="belongs to the user"):
        await environments.resolve("web", str(project))
    os.chown(file, 0, 0)
    file.parent.chmod(0o777)
    with pytest.raises(UntrustedProject, match="can be written by every user"):
        await environments.resolve("web", str(project))


@proves("runtime.environment-files")
def test_a_person_reads_what_an_environment_allows() -> None:
    environment = Environment(network="limited", hosts=("a.org",), read_only=("/opt/x",), setup="make deps")
    assert describe_effect(environment) == "network limited (a.org), reads /opt/x, runs once: 'make deps'"
