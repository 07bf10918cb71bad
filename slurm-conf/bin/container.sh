# Sourced by the entry scripts: what they all say and check. POSIX sh.

readonly EX_SETUP=64

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# Ends the container with a sentence, which Kubernetes shows in the pod's status.
fail() {
  say "$*"
  printf '%s' "$*" >/dev/termination-log 2>/dev/null || true
  exit "$EX_SETUP"
}

need_file() { [ -s "$1" ] || fail "$1 is missing or empty: mount $2"; }

need_value() {
  eval "value=\${$1-}"
  [ -n "$value" ] || fail "the environment variable $1 is not set: see slurm-conf/README.md"
}

# Daemons insist on owning their keys, with a mode that a mounted Secret does not have.
install_key() {
  need_file "/keys/$1" "the Secret with $1 at /keys"
  install -m 600 "/keys/$1" "/etc/slurm/$1"
}
