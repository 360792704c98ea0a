# SPDX-License-Identifier: Apache-2.0
# For the scripts of this folder (POSIX sh): a folder $work that goes away, and what they expect.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  printf 'FAILED %s\n' "$*"
  failures=$((failures + 1))
}
# expect WHAT WANTED GOT
expect() { [ "$2" = "$3" ] || fail "$1
  wanted: $2
  got:    $3"; }
# expect_text WHAT PART TEXT
expect_text() {
  case "$3" in
    *"$2"*) ;;
    *) fail "$1
  wanted: ... $2 ...
  got:    $3" ;;
  esac
}
skip() {
  echo "skipped: $*"
  exit 77
}
finish() {
  [ "$failures" -eq 0 ] && echo "all passed"
  [ "$failures" -eq 0 ]
  exit $?
}
