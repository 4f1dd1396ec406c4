#!/usr/bin/env bash
# Installs into .venv what a command needs: scripts/setup.sh run|test|lint
#
# Each set contains the one before it: run, test, lint. A stamp file holds a hash of everything that a set depends on, so that a
# second run installs nothing. A marker file exists in .venv during an installation. A run that finds it knows that the last
# installation was interrupted, and creates .venv again.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

PYTHON=${PYTHON:-python3}
WANTED=${1:?run, test or lint}
VENV=.venv
MARKER=$VENV/.fidelio-installing

# What .venv depends on: the interpreter, and the directory, because a virtual environment breaks when it is moved.
IDENTITY='import os, sys; print(sys.version.replace("\n", " "), sys.base_prefix, os.getcwd())'
HASH='import hashlib, sys; print(hashlib.sha256(b"\0".join(open(name, "rb").read() for name in sys.argv[1:])).hexdigest())'

check_python() {
  command -v "$PYTHON" >/dev/null || stop "There is no $PYTHON. Fidelio needs Python 3.11 or newer; choose it with: make PYTHON=/path/to/python3"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    stop "Fidelio needs Python 3.11 or newer, but $PYTHON is $("$PYTHON" -V 2>&1). Choose another with: make PYTHON=/path/to/python3"
}

has_venv_module() { "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; }

ensure_venv_module() {
  has_venv_module && return
  local package
  package=$("$PYTHON" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if is_root && command -v apt-get >/dev/null; then
    say "installing $package, which $PYTHON needs to create .venv"
    apt_install "$package" || true
  fi
  has_venv_module || stop "The venv module of $PYTHON is missing. Install it with: sudo apt-get install $package"
}

is_usable() {
  [ ! -e "$MARKER" ] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || return 1
  local made_for
  made_for=$(cat "$VENV/.fidelio-identity" 2>/dev/null || "$VENV/bin/python" -c "$IDENTITY")
  [ "$made_for" = "$identity" ]
}

make_venv() {
  ensure_venv_module
  # Use the base interpreter of an activated environment: the environment itself may be the one that is replaced.
  quietly "$("$PYTHON" -c 'import sys; print(sys._base_executable)')" -m venv --clear "$VENV" ||
    stop ".venv cannot be created; the reason is printed above."
}

pip_install() {
  PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    quietly "$VENV/bin/python" -m pip install --progress-bar off --no-compile --constraint constraints.txt "$@" ||
    stop "The installation failed; the reason is printed above. The next run starts from the beginning."
}

install_set() {
  say "installing the packages for \`make $WANTED\` into .venv (only after a change)"
  local what=(--editable .)
  [ "$WANTED" = run ] || what=(--editable '.[postgres]' --group test)
  [ "$WANTED" != lint ] || what+=(--group lint)
  # Dependency groups and build constraints need a newer pip than the one of Debian's Python.
  pip_install pip
  pip_install --build-constraint constraints.txt "${what[@]}"
  # The environment may forbid Python to write bytecode; then every start would compile everything again. Errors are ignored
  # because a package may contain .py files that are templates and not valid Python.
  "$VENV/bin/python" -m compileall -qq -j 0 "$VENV/lib" || true
}

write_stamps() {
  printf '%s\n' "$identity" >"$VENV/.fidelio-identity"
  local smaller
  for smaller in run test lint; do
    printf '%s\n' "$key" >"$VENV/.fidelio-$smaller"
    [ "$smaller" != "$WANTED" ] || break
  done
}

check_python
mkdir -p .build
# Two commands that run at the same time must not install at the same time.
exec 9>.build/setup.lock
! command -v flock >/dev/null || flock 9

identity=$("$PYTHON" -c "$IDENTITY")
key="$("$PYTHON" -c "$HASH" pyproject.toml constraints.txt scripts/setup.sh) $identity"
if [ -e "$MARKER" ] || [ ! -x "$VENV/bin/python" ] || [ "$(cat "$VENV/.fidelio-$WANTED" 2>/dev/null)" != "$key" ]; then
  is_usable || make_venv
  touch "$MARKER"
  install_set
  write_stamps
  rm "$MARKER"
fi
"$VENV/bin/python" -m compileall -q src
