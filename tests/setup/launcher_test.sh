#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ./plan and ./check on a miniature repository with stand-ins for cmake, ninja, ctest and apt.
# usage: launcher_test.sh SOURCE_ROOT
set -u
unset ORRERY_NO_INSTALL ORRERY_JOBS ORRERY_CGROUP CCACHE_DIR CI
export ORRERY_NO_BACKGROUND=1
source_root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
repo="$work/a repo"
tools=$work/tools
failures=0

mkdir -p "$repo/model/program/help" "$repo/calib" "$repo/runtime" "$tools" "$work/elsewhere"
echo "the overview" >"$repo/model/program/help/_plan.txt"
echo "the kernels" >"$repo/model/program/help/_bench-kernels.txt"
echo "the bench" >"$repo/model/program/help/bench.txt"
for command in 1 2 3 calibrate diff discover export list open predict provision run show simulate sweep topo 'two words' u version x y z; do
  echo "the $command" >"$repo/model/program/help/$command.txt"
done
echo "int main();" >"$repo/model/main.cc"
cp -r "$source_root/plan" "$source_root/check" "$source_root/cmake" "$repo"
touch "$repo/CMakeLists.txt" "$repo/CMakePresets.json"
ln -s "$repo/plan" "$work/link"

# tool NAME: a stand-in whose body comes on stdin; it counts its calls in calls.NAME.
tool() {
  { printf '#!/bin/sh\nwork="%s"\necho "$*" >>"$work/calls.%s"\n' "$work" "$1"; cat; } >"$tools/$1"
  chmod +x "$tools/$1"
}
tool cmake <<'T'
case "$*" in *syntax*) build=build-syntax ;; *dev*) build=build-dev ;; *quick*) build=build/quick ;; *) build=build ;; esac
mkdir -p $build
echo "CMAKE_CXX_COMPILER:FILEPATH=/usr/bin/${CXX:-clang++}" >$build/CMakeCache.txt
for name in plan plan-bench plan-simulate plan-validate; do echo "build bin/$name: phony"; done >$build/build.ninja
T
tool ninja <<'T'
sleep 0.05
case "$2" in */quick) ;; *) while [ -e "$work/slow" ]; do sleep 0.1; done && [ ! -e "$work/full" ] || { echo "No space left"; exit 1; } ;; esac
[ ! -e "$work/no-clang" ] || [ "${2%/quick}" = "$2" ] || [ -n "$CXX" ] || { echo "error: a compiler's own"; exit 1; }
[ ! -e "$work/broken" ] || { echo "error: no such luck"; exit 1; }
for step in 1 2 3 4 5; do echo "[$step/5] compiling"; done
mkdir -p "$2/bin"
echo "${CCACHE_DIR:-default}" >"$work/ccache-dir"
for target; do
  case "$target" in plan*) ;; *) continue ;; esac
  printf '#!/bin/sh\nprintf "%%s|" "$PWD" "$@"\nexit 3\n' >"$2/bin/$target"
  chmod +x "$2/bin/$target"
done
T
tool clang-format <<'T'
[ ! -e "$work/unformatted" ] || { echo "model/main.cc:1:1: error: code should be clang-formatted [-W]"; exit 1; }
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
tool nice <<'T'
shift 2 && exec "$@"
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
expect "programs that are built" "-C $repo/build -j N plan" "$(sed 's/-j [0-9]*/-j N/' "$work/calls.ninja")"
expect_text "how far it is, where nobody watches a terminal" "orrery: compiled 4 of 5 files" "$(cat "$work/err")"

find "$repo/model" "$repo/cmake" "$repo/calib" "$repo/runtime" "$repo"/*.* | while read -r file; do older "$file"; done
"$work/link" y >"$work/out" 2>"$work/err"
expect "a second call, through a link, builds nothing" 1 "$(calls ninja)"
expect "and says nothing but the result" "$work/elsewhere|y|" "$(cat "$work/out" "$work/err")"

out=$("$repo/plan" bench all_reduce 2>"$work/err")
expect "another program is built when it is first wanted" "$work/elsewhere|bench|all_reduce|" "$out"
expect_text "and only then" "plan plan-bench" "$(tail -n 1 "$work/calls.ninja")"
"$repo/plan" bench >/dev/null 2>&1
expect "once" 2 "$(calls ninja)"
touch -d 'next minute' "$repo/runtime/new.cc"
"$repo/plan" y >/dev/null 2>&1
expect "a source that plan does not use" 2 "$(calls ninja)"
"$repo/plan" bench >/dev/null 2>&1
expect "a source that plan-bench uses" 3 "$(calls ninja)"
older "$repo/runtime/new.cc"
out=$("$repo/plan" calibrate 2>/dev/null)
expect "a program whose libraries are missing: plan says so" "$work/elsewhere|calibrate|" "$out"
expect_text "and nothing else is built" "-j" "$(tail -n 1 "$work/calls.ninja" | grep -v calibrate)"

touch -d 'next minute' "$repo/model/new.cc"
for call in 1 2 3; do "$repo/plan" $call >"$work/out.$call" 2>/dev/null & done
wait
older "$repo/model/new.cc"
for call in 1 2 3; do
  expect "concurrent call $call" "$work/elsewhere|$call|" "$(cat "$work/out.$call")"
done

touch "$work/broken" && touch -d 'next minute' "$repo/model/new.cc"
"$repo/plan" x >"$work/out" 2>"$work/err"
expect "exit code of a broken build" 1 $?
expect_text "a broken build shows the log" "error: no such luck" "$(cat "$work/err")"
expect_text "and where the log is" "build/setup.log" "$(cat "$work/err")"
"$repo/check" >/dev/null 2>&1
expect "exit code of check on a broken build" 1 $?
rm "$work/broken"

echo libfmt-dev >"$work/not-installed"
"$repo/plan" x >/dev/null 2>"$work/err"
expect_text "root installs what is missing" "install --no-install-recommends libfmt-dev" "$(cat "$work/calls.apt-get")"

echo libfmt-dev >"$work/not-installed" && echo 1000 >"$work/uid"
"$repo/plan" x >/dev/null 2>"$work/err"
expect "exit code without the right to install" 1 $?
expect_text "the line to run" "sudo apt-get install -y --no-install-recommends libfmt-dev" "$(cat "$work/err")"
echo ccache >"$work/not-installed"
"$repo/plan" z >"$work/out" 2>"$work/err"
expect "an optional package may be missing" "$work/elsewhere|z|" "$(cat "$work/out")"
echo 0 >"$work/uid" && echo libfmt-dev >"$work/not-installed" && touch "$work/offline"
"$repo/plan" x >/dev/null 2>"$work/err"
expect "exit code without a network" 1 $?
expect_text "the reason" "E: no network" "$(cat "$work/err")"
rm -f "$work/offline" "$work/not-installed"

printf '%s\n' libfmt-dev libsimgrid-dev >"$work/not-installed" && echo libsimgrid-dev >"$work/unknown"
out=$("$repo/plan" u 2>"$work/err")
expect "one unknown optional package" "$work/elsewhere|u|" "$out"
expect_text "which is missing" "cannot install libsimgrid-dev; going on without" "$(cat "$work/err")"
expect_text "the others are installed" "recommends libfmt-dev" "$(tail -n 1 "$work/calls.apt-get")"
rm -f "$work/unknown" "$work/not-installed"

before=$(calls cmake) && "$repo/plan" x >/dev/null 2>&1
expect "what is configured stays so" "$before" "$(calls cmake)"
touch -d '1 minute' "$repo/CMakePresets.json" && "$repo/plan" x >/dev/null 2>&1
expect "changed presets configure again" "$((before + 1))" "$(calls cmake)"
touch -d '1 hour ago' "$repo/CMakePresets.json"

expect "a cache that can be written is used" default "$(cat "$work/ccache-dir")"
rm -rf "$work/cache" && touch "$work/cache"
"$repo/plan" x >/dev/null 2>&1
expect "a cache that cannot is replaced" "$repo/build/.ccache" "$(cat "$work/ccache-dir")"

mkdir "$work/group" && echo max >"$work/group/memory.max" && echo "150000 100000" >"$work/group/cpu.max"
ORRERY_CGROUP=$work/group "$repo/plan" x >/dev/null 2>&1
jobs=$(tail -n 1 "$work/calls.ninja" | sed 's/.*-j \([0-9]*\) .*/\1/')
expect "no more compilers than a container's cores (fewer where memory is short)" yes \
  "$([ "$jobs" -le 2 ] && echo yes || echo "$jobs")"
echo 1073741824 >"$work/group/memory.max"
ORRERY_CGROUP=$work/group "$repo/plan" x >/dev/null 2>&1
expect_text "nor than its memory holds" "-j 1 " "$(tail -n 1 "$work/calls.ninja")"

# Help where nothing is built.
mv "$repo/build" "$work/built" && before=$(calls ninja)
help() { "$repo/plan" "$@" 2>&1; }
expect "help, first of all" "the overview" "$(help --help)"
expect "no words" "the overview" "$(help)"
expect "help of the flags" "the overview" "$(help --model x --help)"
expect "help of a command" "the bench" "$(help bench all_reduce -h)"
expect "help COMMAND" "the bench" "$(help help bench)"
expect "help of kernels" "the kernels" "$(help bench gemm --help)"
expect "completion, where nothing is built: no words" "" "$(help completion words --mo)"
expect_text "a command that is none" "there is no command 'predcit'" "$(help predcit)"
expect_text "help of one" "there is no command 'predcit'" "$(help predcit --help)"
expect_text "help ONE" "there is no command 'predcit'" "$(help help predcit)"
expect_text "--help ONE" "there is no command 'predcit'" "$(help --help predcit)"
expect_text "-h ONE" "there is no command 'predcit'" "$(help -h predcit)"
expect "--help COMMAND" "the bench" "$(help --help bench)"
expect "--help COMMAND and more" "the bench" "$(help --help bench gemm)"
expect "help COMMAND and more" "the bench" "$(help help bench gemm)"
expect "--help and a flag" "the overview" "$(help --help --model)"
expect "help compiles nothing, and so does what is no command" "$before" "$(calls ninja)"
expect "nor makes a folder" no "$([ -e "$repo/build" ] && echo yes || echo no)"
expect_text "help behind -- is another program's" "bench|--|--help|" "$(help bench -- --help)"
rm -rf "$repo/build" && mv "$work/built" "$repo/build"

# The first answer of a clone.
mv "$repo/build" "$work/built" && older "$repo/model/new.cc" && unset ORRERY_NO_BACKGROUND
# comes FILE: waits for it, a minute at most.
comes() {
  for _ in $(seq 600); do [ ! -e "$1" ] || return 0; sleep 0.1; done
  return 1
}
ninjas() { sed "s|-C $repo/\([^ ]*\) .*|\1|" "$work/calls.ninja" | paste -s -d ' '; }
: >"$work/calls.ninja" && touch "$work/slow"
for call in 1 2 3; do "$repo/plan" predict $call >"$work/out.$call" 2>"$work/err.$call" & done
wait
for call in 1 2 3; do
  expect "first answer, concurrent call $call" "$work/elsewhere|predict|$call|" "$(cat "$work/out.$call")"
  expect_text "says what it came from" "optimised build goes on in the background" "$(cat "$work/err.$call")"
done
expect "the optimised program is not waited for" no "$([ -e "$repo/build/bin/plan" ] && echo yes || echo no)"
out=$("$repo/plan" --model x 2>"$work/err")
expect "a further call meanwhile" "$work/elsewhere|--model|x|" "$out"
rm "$work/slow"
expect "an optimised program follows" yes "$(comes "$repo/build/.built/plan" && echo yes)"
expect_text "behind all else" "-n 19" "$(head -n 1 "$work/calls.nice")"
expect "each is built once" "build/quick build" "$(ninjas)"
"$repo/plan" --model x >/dev/null 2>"$work/err"
expect "and used without a word" "" "$(cat "$work/err")"
rm -rf "$repo/build" && touch "$work/full" && : >"$work/calls.ninja"
"$repo/plan" list >/dev/null 2>&1
expect "the background build fails" yes "$(comes "$repo/build/.failed" && echo yes)"
flock "$repo/build/.lock" true
out=$("$repo/plan" list 2>"$work/err")
expect "answers go on" "$work/elsewhere|list|" "$out"
expect_text "and say so" "which failed before (build/setup.log)" "$(cat "$work/err")"
rm "$work/full" && flock "$repo/build/.lock" true && "$repo/plan" list >/dev/null 2>&1
expect "until it can be built" yes "$(comes "$repo/build/.built/plan" && echo yes)"
# clang++ builds the first answer where it can, else g++.
rm -rf "$repo/build" && : >"$work/calls.ninja" && touch "$work/no-clang"
out=$("$repo/plan" version 2>"$work/err")
expect "an answer without clang++'s help" "$work/elsewhere|version|" "$out"
expect_text "says so" "once more with g++" "$(cat "$work/err")"
rm "$work/no-clang" && expect "then follows the optimised program" yes "$(comes "$repo/build/.built/plan" && echo yes)"
expect "built after both" "build/quick build/quick build" "$(ninjas)"
for how in "plan-whole export" "plan-whole discover" "plan-whole diff a b" "plan-whole open a" "plan-whole predict --from x.json" \
  "plan-whole --model x --html x.html" "plan-whole --model x --export=megatron" "plan-simulate simulate" "plan predict"; do
  rm -rf "$repo/build" && : >"$work/calls.ninja"
  out=$("$repo/plan" ${how#* } 2>"$work/err")
  expect_text "builds for a first answer: $how" " ${how%% *}" "$(head -n 1 "$work/calls.ninja")"
  words=$(printf '%s|' ${how#* })
  expect "which answers: $how" "$work/elsewhere|${words#simulate|}" "$out"
  expect "then the optimised program: $how" yes "$(comes "$repo/build/.built/plan" && echo yes)"
  expect "built after it: $how" "build/quick build" "$(ninjas)"
done
rm -rf "$repo/build" && : >"$work/calls.ninja" && ORRERY_WHOLE=1 "$repo/plan" predict >/dev/null 2>&1
expect_text "what the first program leaves" " plan-whole" "$(head -n 1 "$work/calls.ninja")"
expect "then the optimised program, too" yes "$(comes "$repo/build/.built/plan" && echo yes)"
for how in "CI=1 predict" "ORRERY_NO_BACKGROUND=1 predict" "X= sweep" "X= provision" "ORRERY_NO_BACKGROUND=1 --version" \
  "X= simulate --network simgrid" "CI=1 export"; do
  rm -rf "$repo/build" && : >"$work/calls.ninja"
  env "${how%% *}" "$repo/plan" ${how#* } >/dev/null 2>&1
  expect "waits for the optimised program: $how" build "$(ninjas)"
done
export ORRERY_NO_BACKGROUND=1
rm -rf "$repo/build" && mv "$work/built" "$repo/build"

out=$("$repo/check" 2>/dev/null)
expect "check" 0 $?
expect_text "check builds programs and tests that are not slow" " quick" "$(tail -n 1 "$work/calls.ninja")"
expect_text "check keeps ctest's closing lines" "100% tests passed" "$out"
expect_text "check closes with a summary" "check: all tests passed" "$out"
expect_text "slow tests are left to --all" "-LE slow" "$(tail -n 1 "$work/calls.ctest")"
touch "$work/unformatted"
out=$("$repo/check" 2>"$work/err")
expect "check on a file that is not formatted" 4 $?
expect_text "which it is" "clang-format -i model/main.cc" "$(cat "$work/err")"
rm "$work/unformatted"
out=$("$repo/check" --all 2>/dev/null)
expect "check --all" 0 $?
expect_text "every file and header alone" "build-syntax -j" "$(grep ' all headers' "$work/calls.ninja")"
expect_text "sanitizers" "build-dev -j" "$(grep 'build-dev' "$work/calls.ninja")"
expect_text "the first answer's program" "build/quick -j" "$(grep 'build/quick' "$work/calls.ninja")"
expect_text "the archive" "build-static -j" "$(tail -n 1 "$work/calls.ninja")"
expect_text "the sample of a grid that runs whole is left out" "build --parallel" "$(grep -e '-LE sample' "$work/calls.ctest")"
expect_text "what took how long" "build (sanitizers)" "$out"
mkdir -p "$repo/build/tests/ir" && printf '#!/bin/sh\necho "$ORRERY_MUTATION_SEED"\n[ "$ORRERY_MUTATION_SEED" != 2 ]\n' >"$repo/build/tests/ir/ir_test"
chmod +x "$repo/build/tests/ir/ir_test"
mkdir -p "$repo/build/long" && echo "plan-texts 1 20000 60 ok" >"$repo/build/long/rounds"
out=$("$repo/check" --long --hours 0.0005 2>/dev/null)
expect "check --long with a round that fails" 4 $?
expect_text "the next seed of an earlier call" "plan-texts 2 20000" "$(sed -n 2p "$repo/build/long/rounds")"
expect "its output is kept" 2 "$(cat "$repo/build/long/plan-texts-2.log")"
expect_text "the table" "seeds that failed" "$out"
mkdir -p "$repo/build/tests/memory" && printf '#!/bin/sh\n' >"$repo/build/tests/memory/memory_test"
chmod +x "$repo/build/tests/memory/memory_test"
echo "plan-texts 9 20000 60 ok" >>"$repo/build/long/rounds"
"$repo/check" --long --hours 0.0005 >/dev/null 2>&1
expect_text "the next call begins behind the campaign of the last round" "memory-bound 1 600" \
  "$(sed -n '/^plan-texts 9/{n;p;}' "$repo/build/long/rounds")"
printf '#!/bin/sh\n: >0\nkill -TERM $$\n' >"$repo/build/tests/memory/memory_test"
echo "plan-texts 10 20000 60 ok" >>"$repo/build/long/rounds"
(cd "$repo" && ./check --long --hours 0.0005 >/dev/null 2>&1)
expect_text "a round that is stopped is none" "plan-texts 10" "$(tail -n 1 "$repo/build/long/rounds")"
expect "files that a round writes stay out of the tree" "" "$(ls "$repo/0" 2>/dev/null)"
"$repo/check" --unit >/dev/null 2>&1
expect_text "quick tests only" "-L unit" "$(tail -n 1 "$work/calls.ctest")"
touch "$work/red"
out=$("$repo/check" 2>/dev/null)
expect "check on a failed test" 4 $?
expect_text "check on a failed test" "check: FAILED" "$out"
for wrong in --wrong "--long --hours" "--long --hours x" "--long --hours ." "--long --hours 1.2.3" "--all more"; do
  "$repo/check" $wrong >/dev/null 2>&1
  expect "check $wrong" 2 $?
done

# On a machine that has no packages of Debian, and no tools to build with.
mkdir "$work/bare"
for name in sh awk cat date dirname env flock fold grep id mkdir nproc paste readlink sed setsid sleep sort tail touch; do
  ln -s "$(command -v $name)" "$work/bare/$name"
done
mv "$repo/build" "$work/built"
for command in "plan predict" "check --unit"; do
  env -u ORRERY_NO_INSTALL PATH="$work/bare" "$repo/"$command >/dev/null 2>"$work/err"
  expect "a bare machine: $command" 1 $?
  expect_text "what is missing: $command" "missing here: cmake ninja c++" "$(cat "$work/err")"
  expect_text "the packages that hold it: $command" "ninja-build" "$(cat "$work/err")"
done

[ "$failures" -eq 0 ] && echo "all passed"
[ "$failures" -eq 0 ]
