#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Uses an installation as its users do: from another folder, without a source tree, with an empty environment.
# usage: use_installed.sh WORK, with "another place" (the installation), plan.txt and closed.json (answers) in it
set -u
given=$1
. "$given/tests/common.sh"
prefix="$given/another place"
mkdir "$work/home" "$work/project" && cd "$work/project" || exit 1
plan() { env -i PATH=/usr/bin:/bin HOME="$work/home" "$prefix/bin/plan" "$@"; }

expect "the answer is that of the build folder" "$(sed '/ s$/d;/seconds/d' "$given/plan.txt")" \
  "$(plan --nodes 32 --model bert-1.5b | sed '/ s$/d;/seconds/d')"
expect_text "programs beside plan" "Busiest links" "$(plan simulate --model gpt2-small --topology dgx1-v100 --nodes 1 \
  --tp 1 --dp 8 --global-batch 64 2>&1)"
expect_text "the version" "catalogues  $prefix/share/orrery" "$(plan version)"
expect_text "offers, failure rates and published goodput" "goodput" "$(plan provision --published 2>&1)"
expect_text "published runs" "overall" "$(plan validate "$prefix/share/orrery/calib/data/seed_systems.csv" 2>&1)"
expect_text "a corpus to train on" "loss" "$(plan run --model gpt2-micro --seq-len 32 --global-batch 2 --steps 1 2>&1)"

# As `cmake --install build --prefix ~/.local` leaves it: Python looks below the user's folder by itself.
if [ -n "$(find "$prefix/lib" -name '_orrery*.so')" ]; then
  expect "import orrery" "gpt2-xl" "$(env -i PATH=/usr/bin:/bin HOME="$work/home" PYTHONUSERBASE="$prefix" /usr/bin/python3 -c \
    'import orrery; print("gpt2-xl" if "gpt2-xl" in orrery.names("models") else "none")' 2>&1)"
fi

# Man pages that a formatter reads without a complaint.
if command -v man >/dev/null; then
  for page in "$prefix"/share/man/man1/*.1; do
    expect "man: $page" "" "$(MANROFFSEQ='' man --warnings=mac -l -Tutf8 "$page" 2>&1 >/dev/null)"
  done
  expect_text "what a man page holds" "--micro-batch" "$(man -l "$prefix/share/man/man1/plan-predict.1" | col -bx)"
fi

# A program of somebody else's, in C++.
if cmake -S "$given/tests/example" -B "$work/example" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
  cmake --build "$work/example" >>"$work/log" 2>&1; then
  best=$("$work/example/best_layout" gpt2-xl aws-p4d 4 512)
  wanted=$(python3 -c 'import json, sys; print("%.6g" % json.load(open(sys.argv[1]))["ranked"][0]["step_time_s"])' \
    "$given/closed.json")
  expect "step time by liborrery" "$wanted" "$(printf '%.6g' "$(echo "$best" | sed 's/.*: \(.*\) s/\1/')")"
  expect_text "errors of liborrery" "did you mean" "$("$work/example/best_layout" gpt2-xll aws-p4d 4 512 2>&1)"
else
  fail "find_package(Orrery): $(tail -n 20 "$work/log")"
fi

finish
