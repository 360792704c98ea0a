#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ./plan and ./check on a miniature repository with stand-ins for cmake, ninja, ctest and apt.
# usage: launcher_test.sh SOURCE_ROOT
set -u
unset ORRERY_NO_INSTALL ORRERY_JOBS ORRERY_CGROUP CCACHE_DIR
source_root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
repo="$work/a repo"
tools=$work/tools
failures=0

mkdir -p "$repo/model" "$repo/calib" "$tools" "$work/elsewhere"
cp -r "$source_root/plan" "$source_root/check" "$source_root/cmake" "$repo"
touch "$repo/CMakeLists.txt" "$repo/CMakePresets.json"
ln -s "$repo/plan" "$work/link"

# tool NAME: a stand-in whose body comes on stdin; it counts its calls in calls.NAME.
tool() {
  { printf '#!/bin/sh\nwork="%s"\necho "$*" >>"$work/calls.%s"\n' "$work" "$1"; cat; } >"$tools/$1"
  chmod +x "$tools/$1"
}
tool cmake <<'T'
mkdir -p build && touch build/build.ninja
T
tool ninja <<'T'
sleep 0.05
[ ! -e "$work/broken" ] || { echo "error: no such luck"; exit 1; }
mkdir -p "$2/bin"
echo "${CCACHE_DIR:-default}" >"$work/ccache-dir"
printf '#!/bin/sh\nprintf "%%s|" "$PWD" "$@"\nexit 3\n' >"$2/bin/plan"
chmod +x "$2/bin/plan"
T
tool ctest <<'T'
[ ! -e "$work/red" ] || { echo "50% tests passed"; exit 8; }
echo "100% tests passed"
T
tool dpkg-query <<'T'
shift 3
for name; do
  grep -qsx "$name" "$work/not-installed" || echo "$name installed"
done
T
tool apt-get <<'T'
[ ! -e "$work/offline" ] || { echo "E: no network"; exit 100; }
case " $* " in *" libsimgrid-dev "*) ! grep -qsx libsimgrid-dev "$work/unknown" || exit 100 ;; esac
rm -f "$work/not-installed"
[ ! -e "$work/unknown" ] || cp "$work/unknown" "$work/not-installed"
T
tool ccache <<'T'
echo "$work/cache/ccache"
T
tool nproc <<'T'
echo 64
T
tool id <<'T'
cat "$work/uid"
T
tool sudo <<'T'
exit 1
T
echo 0 >"$work/uid"
PATH=$tools:$PATH
export PATH

calls() { if [ -e "$work/calls.$1" ]; then wc -l <"$work/calls.$1"; else echo 0; fi; }
# expect WHAT WANTED GOT
expect() {
  if [ "$2" != "$3" ]; then
    printf 'FAILED %s\n  wanted: %s\n  got:    %s\n' "$1" "$2" "$3"
    failures=$((failures + 1))
  fi
}
# expect_text WHAT PART TEXT
expect_text() {
  case "$3" in
    *"$2"*) ;;
    *) expect "$1" "... $2 ..." "$3" ;;
  esac
}
older() { touch -d '1 hour ago' "$1"; }

cd "$work/elsewhere" || exit 1
out=$("$repo/plan" "two words" --x 2>"$work/err")
expect "the program's exit code" 3 $?
expect "arguments and folder of the first call" "$work/elsewhere|two words|--x|" "$out"
expect_text "what the first call says" "building build/bin/plan" "$(cat "$work/err")"
expect "programs that are built" "-C $repo/build -j N plan plan-simulate plan-validate" \
  "$(sed 's/-j [0-9]*/-j N/' "$work/calls.ninja")"

find "$repo/model" "$repo/cmake" "$repo/calib" "$repo"/*.* | while read -r file; do older "$file"; done
"$work/link" y >"$work/out" 2>"$work/err"
expect "a second call, through a link, builds nothing" 1 "$(calls ninja)"
expect "and says nothing but the result" "$work/elsewhere|y|" "$(cat "$work/out" "$work/err")"

touch -d 'next minute' "$repo/model/new.cc"
for call in 1 2 3; do "$repo/plan" $call >"$work/out.$call" 2>/dev/null & done
wait
older "$repo/model/new.cc"
for call in 1 2 3; do
  expect "concurrent call $call" "$work/elsewhere|$call|" "$(cat "$work/out.$call")"
done

touch "$work/broken" && touch -d 'next minute' "$repo/model/new.cc"
"$repo/plan" >"$work/out" 2>"$work/err"
expect "exit code of a broken build" 1 $?
expect_text "a broken build shows the log" "error: no such luck" "$(cat "$work/err")"
expect_text "and where the log is" "build/setup.log" "$(cat "$work/err")"
"$repo/check" >/dev/null 2>&1
expect "exit code of check on a broken build" 1 $?
rm "$work/broken"

echo libfmt-dev >"$work/not-installed"
"$repo/plan" >/dev/null 2>"$work/err"
expect_text "root installs what is missing" "install --no-install-recommends libfmt-dev" "$(cat "$work/calls.apt-get")"

echo libfmt-dev >"$work/not-installed" && echo 1000 >"$work/uid"
"$repo/plan" >/dev/null 2>"$work/err"
expect "exit code without the right to install" 1 $?
expect_text "the line to run" "sudo apt-get install -y --no-install-recommends libfmt-dev" "$(cat "$work/err")"
echo ccache >"$work/not-installed"
"$repo/plan" z >"$work/out" 2>"$work/err"
expect "an optional package may be missing" "$work/elsewhere|z|" "$(cat "$work/out")"
echo 0 >"$work/uid" && echo libfmt-dev >"$work/not-installed" && touch "$work/offline"
"$repo/plan" >/dev/null 2>"$work/err"
expect "exit code without a network" 1 $?
expect_text "the reason" "E: no network" "$(cat "$work/err")"
rm -f "$work/offline" "$work/not-installed"

printf '%s\n' libfmt-dev libsimgrid-dev >"$work/not-installed" && echo libsimgrid-dev >"$work/unknown"
out=$("$repo/plan" u 2>"$work/err")
expect "one unknown optional package" "$work/elsewhere|u|" "$out"
expect_text "which is missing" "cannot install libsimgrid-dev; going on without" "$(cat "$work/err")"
expect_text "the others are installed" "recommends libfmt-dev" "$(tail -n 1 "$work/calls.apt-get")"
rm -f "$work/unknown" "$work/not-installed"

expect "a cache that can be written is used" default "$(cat "$work/ccache-dir")"
rm -rf "$work/cache" && touch "$work/cache"
"$repo/plan" >/dev/null 2>&1
expect "a cache that cannot is replaced" "$repo/build/.ccache" "$(cat "$work/ccache-dir")"

mkdir "$work/group" && echo max >"$work/group/memory.max" && echo "150000 100000" >"$work/group/cpu.max"
ORRERY_CGROUP=$work/group "$repo/plan" >/dev/null 2>&1
jobs=$(tail -n 1 "$work/calls.ninja" | sed 's/.*-j \([0-9]*\) .*/\1/')
expect "no more compilers than a container's cores (fewer where memory is short)" yes \
  "$([ "$jobs" -le 2 ] && echo yes || echo "$jobs")"
echo 1073741824 >"$work/group/memory.max"
ORRERY_CGROUP=$work/group "$repo/plan" >/dev/null 2>&1
expect_text "nor than its memory holds" "-j 1 " "$(tail -n 1 "$work/calls.ninja")"

out=$("$repo/check" 2>/dev/null)
expect "check" 0 $?
expect_text "check keeps ctest's closing lines" "100% tests passed" "$out"
expect_text "check closes with a summary" "check: all tests passed" "$out"
expect_text "the sample of a grid that runs whole is left out" "-LE sample" "$(tail -n 1 "$work/calls.ctest")"
"$repo/check" --unit >/dev/null 2>&1
expect_text "quick tests only" "-L unit" "$(tail -n 1 "$work/calls.ctest")"
touch "$work/red"
out=$("$repo/check" 2>/dev/null)
expect "check on a failed test" 4 $?
expect_text "check on a failed test" "check: FAILED" "$out"
"$repo/check" --wrong >/dev/null 2>&1
expect "check with a wrong argument" 2 $?

[ "$failures" -eq 0 ] && echo "all passed"
[ "$failures" -eq 0 ]
