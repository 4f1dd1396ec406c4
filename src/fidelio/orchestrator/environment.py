"""What an agent gets to see of our environment: little, and by name.

Everything else that lies in the environment of whoever runs us (tokens of other tools, keys of other services) stays out. What
an agent needs on top is written in its blueprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fidelio.home import Home
from fidelio.inbox import AGENT_MARKER
from fidelio.orchestrator.blueprints.model import Blueprint

_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "TERM",
        "TMPDIR",
        "TZ",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
    }
)
_BEGINNINGS = ("LC_", "XDG_")
# How each kind of agent is told its own key and address.
_OWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "claude": ("ANTHROPIC_", "CLAUDE_CODE_", "CLAUDE_CONFIG_DIR", "AWS_", "CLOUD_ML_REGION"),
        "codex": ("OPENAI_", "CODEX_"),
        "gemini": ("GEMINI_", "GOOGLE_"),
        "opencode": ("OPENCODE_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_"),
        "qwen": ("QWEN_", "OPENAI_", "DASHSCOPE_"),
    }
)


def harmless(ours: Mapping[str, str]) -> dict[str, str]:
    """What any program may see."""
    return {name: value for name, value in ours.items() if name in _NAMES or name.startswith(_BEGINNINGS)}


def environment_for(blueprint: Blueprint, executor: str, run: str, ours: Mapping[str, str], home: Home) -> dict[str, str]:
    """The whole environment of an agent's process, with the mark that it is one."""
    beginnings = (*_BEGINNINGS, *_OWN.get(executor, ()))
    names = _NAMES.union(blueprint.inherit)
    passed = {name: value for name, value in ours.items() if name in names or name.startswith(beginnings)}
    return {**passed, **blueprint.environment, "FIDELIO_HOME": str(home.path), AGENT_MARKER: run}
