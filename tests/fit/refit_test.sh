#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What calib/refit.sh calls: three fits in order, the published runs by default. usage: refit_test.sh SOURCE_ROOT
root=$1
failures=0

# expect ARGUMENTS RUNS LOGS-FLAGS STEP-FLAGS MEMORY-FLAGS
expect() {
  wanted="$root/calib/fit/samples/dl1/runs.yaml --job $root/calib/fit/jobs/dl1.yaml$3
$2 --job $root/calib/fit/jobs/published-runs.yaml$4
$2 --job $root/calib/fit/jobs/published-memory.yaml$5"
  # shellcheck disable=SC2086
  got=$(PLAN_CALIBRATE=echo sh "$root/calib/refit.sh" $1) || got="exit code $?"
  [ "$got" = "$wanted" ] && return
  failures=$((failures + 1))
  printf 'refit.sh %s\n--- wanted\n%s\n--- got\n%s\n' "$1" "$wanted" "$got"
}

published=$root/calib/data/published_runs.csv
expect "" "$published" "" "" ""
expect "--in-place" "$published" " --in-place" " --in-place" " --in-place"
expect "mine.csv --in-place" mine.csv " --in-place" " --in-place" " --in-place"
expect "-o out" "$published" " -o out/logs" " -o out" " -o out/memory"
expect "mine.csv -o out --holdout source" mine.csv " -o out/logs --holdout source" \
  " -o out --holdout source" " -o out/memory --holdout source"
[ -e "$published" ] || { echo "no $published"; failures=$((failures + 1)); }
exit "$failures"
