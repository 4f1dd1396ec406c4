#!/usr/bin/env bash
# Runs all checks side by side, also after one has failed, so that one run reports all problems.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

names=()
jobs=()
failed=()

check() {
  names+=("$1")
  shift
  quietly "$@" &
  jobs+=($!)
}

bin=.venv/bin
check "ruff check" $bin/ruff check --quiet
check "ruff format" $bin/ruff format --check --quiet
check "mypy" $bin/mypy --no-error-summary
check "import-linter" $bin/lint-imports --no-logo
check "line budget" $bin/python -m scripts.line_budget
check "vocabulary" $bin/python -m scripts.check_vocabulary
check "changelog" $bin/python -m scripts.changelog check
check "docs" $bin/python -m scripts.check_docs

for number in "${!jobs[@]}"; do
  wait "${jobs[$number]}" || failed+=("${names[$number]}")
done

if [ ${#failed[@]} -gt 0 ]; then
  list=$(printf ', %s' "${failed[@]}")
  stop "lint: failed: ${list:2}"
fi
echo "lint: all checks passed"
