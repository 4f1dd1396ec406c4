#!/usr/bin/env bash
# Runs every check, also when one has failed: whoever mends one thing wants to know about the others.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

failed=()

check() {
  local name=$1
  shift
  quietly "$@" || failed+=("$name")
}

bin=.venv/bin
check "ruff check" $bin/ruff check --quiet
check "ruff format" $bin/ruff format --check --quiet
check "mypy" $bin/mypy --no-error-summary
check "import-linter" $bin/lint-imports --no-logo
check "line budget" $bin/python -m scripts.line_budget
check "changelog" $bin/python -m scripts.changelog check
check "docs" $bin/python -m scripts.check_docs

if [ ${#failed[@]} -gt 0 ]; then
  list=$(printf ', %s' "${failed[@]}")
  stop "lint: these do not hold: ${list:2}"
fi
echo "lint: style, types, arrows, sizes, changelog and docs hold"
