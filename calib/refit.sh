#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fits the profiles again: calib/refit.sh [RUNS.csv] [-o DIR | --in-place] [ARGUMENT...]. RUNS.csv: calib/data/published_runs.csv.
# Without -o DIR or --in-place it only reports. First the constants of step times, then those of memory; with -o DIR the
# latter go to DIR/memory, each profile with its own constants only.
# The chip's rate of Gaudi is in logs only: the first of the three fits, into the profiles or DIR/logs.
# After --in-place: ./plan validate calib/data/published_runs.csv --accuracy calib/ACCURACY.md
# $PLAN_CALIBRATE: the program, when it is not build/bin/plan-calibrate.
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
runs=$root/calib/data/published_runs.csv
case ${1--} in -*) ;; *) runs=$1; shift ;; esac
program=${PLAN_CALIBRATE:-$root/build/bin/plan-calibrate}
logs=$root/calib/fit/samples/dl1/runs.yaml
[ "$1" = -o ] && out=$2 && shift 2 && set -- -o "$out/logs" "$@"
"$program" "$logs" --job "$root/calib/fit/jobs/dl1.yaml" "$@" || exit
[ "$1" = -o ] && shift 2 && set -- -o "$out" "$@"
"$program" "$runs" --job "$root/calib/fit/jobs/published-runs.yaml" "$@" || exit
[ "$1" = -o ] && shift 2 && set -- -o "$out/memory" "$@"
exec "$program" "$runs" --job "$root/calib/fit/jobs/published-memory.yaml" "$@"
