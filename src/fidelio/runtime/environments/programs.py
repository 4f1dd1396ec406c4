"""Environments that programs create: their content, and the environment of our sandboxes that it means. Pure.

The system of a sandbox is that of the machine, read-only, so packages cannot become part of it. The setup of the environment
installs them once below /environment, each with the package manager of the machine, and variables let every command find them.
Packages of apt have to be installed on the machine: a sandbox has no system of its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fidelio.errors import EnvironmentProblem
from fidelio.runtime.environments.versions import Environment, parse_environment

Package = Annotated[str, Meta(min_length=1, max_length=200)]
PackageList = Annotated[tuple[Package, ...], Meta(max_length=100)]
# Nothing that a package manager takes for an option.
_PACKAGE = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@._+/\[\],=<>!~:^*-]*")
_APT = re.compile(r"([a-z0-9][a-z0-9.+-]*)(?:=(\S+))?")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REGISTRIES = {
    "pip": ("pypi.org", "files.pythonhosted.org"),
    "npm": ("registry.npmjs.org",),
    "cargo": ("crates.io", "index.crates.io", "static.crates.io"),
    "gem": ("rubygems.org", "index.rubygems.org"),
    "go": ("proxy.golang.org", "sum.golang.org", "storage.googleapis.com"),
}


class Packages(msgspec.Struct, frozen=True, omit_defaults=True):
    """Packages by package manager, each with its version as that package manager writes it."""

    apt: PackageList = ()
    cargo: PackageList = ()
    gem: PackageList = ()
    go: PackageList = ()
    npm: PackageList = ()
    pip: PackageList = ()

    @property
    def is_empty(self) -> bool:
        return self == Packages()


class HostedEnvironment(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The content of an environment that a program has created."""

    name: str
    description: str | None = None
    metadata: dict[str, str] = {}
    kind: Literal["cloud", "self_hosted"] = "cloud"
    network: Literal["unrestricted", "limited"] = "unrestricted"
    allowed_hosts: tuple[str, ...] = ()
    allow_mcp_servers: bool = False
    allow_package_managers: bool = False
    packages: Packages = Packages()


class _Manager(msgspec.Struct, frozen=True):
    """A package manager: its program, how it installs a package, and what lets commands find the packages."""

    program: str
    install: str
    binaries: str
    variables: Mapping[str, str] = {}
    suffix: str = ""


# `cd` is where the setup runs: /environment.
_MANAGERS: Mapping[str, _Manager] = {
    "cargo": _Manager("cargo", "CARGO_HOME=/tmp/cargo cargo install --root /environment/cargo", "/environment/cargo/bin"),
    "gem": _Manager(
        "gem",
        "gem install --no-document --install-dir /environment/gem --bindir /environment/gem/bin",
        "/environment/gem/bin",
        {"GEM_PATH": "/environment/gem:"},
    ),
    "go": _Manager(
        "go",
        "GOBIN=/environment/go/bin GOPATH=/tmp/go GOCACHE=/tmp/go-cache GOFLAGS=-modcacherw go install",
        "/environment/go/bin",
        suffix="@latest",
    ),
    "npm": _Manager(
        "npm",
        "npm_config_cache=/tmp/npm npm install --global --no-fund --no-audit --prefix /environment/npm",
        "/environment/npm/bin",
        {"NODE_PATH": "/environment/npm/lib/node_modules"},
    ),
    "pip": _Manager(
        "python3",
        "python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --target /environment/python",
        "/environment/python/bin",
        {"PYTHONPATH": "/environment/python"},
    ),
}


def build_environment(content: HostedEnvironment) -> Environment:
    """What the sandboxes of a session get. Raises `EnvironmentProblem`, which names what cannot be had."""
    if content.kind == "self_hosted":
        return Environment(self_hosted=True, description=content.description or "")
    _check_packages(content)
    used = {name: getattr(content.packages, name) for name in _MANAGERS if getattr(content.packages, name)}
    hosts = _list_hosts(content)
    network = "unrestricted" if content.network == "unrestricted" else "limited" if hosts else "none"
    environment = Environment(
        network=network,  # type: ignore[arg-type]  # all three are networks; mypy widens the conditional to str
        hosts=hosts,
        packages=tuple(_MANAGERS[name].program for name in used),
        setup="".join(_build_setup(used)),
        variables=_build_variables(used),
        description=content.description or "",
        mcp_servers=content.network == "unrestricted" or content.allow_mcp_servers,
    )
    return parse_environment(msgspec.to_builtins(environment), "The environment")


def find_apt_problem(packages: Iterable[str], status: str) -> str:
    """The first package of apt that the machine does not have. `status`: what its package database says."""
    installed = dict(_read_status(status))
    for package in packages:
        match = _APT.fullmatch(package)
        name, version = (match[1], match[2]) if match else (package, None)
        if name not in installed:
            return f"the package {package!r:.100} of apt is not installed on the machine of the server. Install it there."
        if version not in (None, installed[name]):
            return (
                f"the package {name} of apt has the version {installed[name]} on the machine of the server, not {version:.100}."
            )
    return ""


def _check_packages(content: HostedEnvironment) -> None:
    if content.network == "limited" and not content.packages.is_empty and not content.allow_package_managers:
        raise EnvironmentProblem(
            "Packages need the package registries, which the limited network does not allow.",
            remedy="Set networking.allow_package_managers to true.",
        )
    for manager, names in msgspec.structs.asdict(content.packages).items():
        for name in names:
            if not _PACKAGE.fullmatch(name):
                raise EnvironmentProblem(f"{name!r:.100} is not the name of a package of {manager}.")


def _list_hosts(content: HostedEnvironment) -> tuple[str, ...]:
    if content.network != "limited":
        return ()
    registries = (host for hosts in _REGISTRIES.values() for host in hosts) if content.allow_package_managers else ()
    return tuple(dict.fromkeys((*content.allowed_hosts, *registries)))


def _build_setup(used: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for name, packages in used.items():
        manager = _MANAGERS[name]
        for package in packages:
            wanted = package if "@" in package[1:] else package + manager.suffix
            failed = shlex.quote(f"The package {package} of {name} cannot be installed.")
            yield f"{manager.install} {shlex.quote(wanted)} || {{ echo {failed} >&2; exit 1; }}\n"


def _build_variables(used: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    if not used:
        return {}
    variables = {key: value for name in used for key, value in _MANAGERS[name].variables.items()}
    return {**variables, "PATH": ":".join((*(_MANAGERS[name].binaries for name in used), _PATH))}


def _read_status(status: str) -> Iterator[tuple[str, str]]:
    """The installed packages with their versions."""
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.split("\n") if ": " in line and not line.startswith(" "))
        if fields.get("Status", "").endswith(" installed"):
            yield fields.get("Package", ""), fields.get("Version", "")
