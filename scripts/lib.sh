# Functions that the setup scripts share. They are shell scripts because they run before there is a Python environment.

say() { printf 'fidelio: %s\n' "$*" >&2; }

stop() {
  say "$@"
  exit 1
}

is_root() { [ "$(id -u)" -eq 0 ]; }

# Runs a command without output; the output is shown only if the command fails.
quietly() {
  local log
  log=$(mktemp)
  if "$@" </dev/null >"$log" 2>&1; then
    rm -f "$log"
    return 0
  fi
  cat "$log" >&2
  rm -f "$log"
  return 1
}

# Installs Debian packages without asking. The package lists of a fresh machine are empty or old, so they are fetched first.
apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  quietly apt-get update -qq && quietly apt-get install -y -qq --no-install-recommends "$@"
}
