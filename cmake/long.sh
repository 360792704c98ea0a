# SPDX-License-Identifier: Apache-2.0
# ./check --long (POSIX sh): rounds of fuzzing and faults, each with a seed of its own, until the hours
# are over. Expects $build. Every round is a line of build/long/rounds, so a later call goes on with
# the next seeds. A round that fails keeps its output; the others go on.

# name | test | GoogleTest filter | variable and number of cases of a round (about a minute)
long_campaigns='yaml-json-csv|tests/input/input_mutation_test|Mutations.*|ORRERY_MUTATIONS=100000
cluster-files|tests/discover/discover_test|DiscoverMutations.*|ORRERY_MUTATIONS=50000
measured-logs|tests/import/import_test|*Mutations.*|ORRERY_MUTATIONS=60000
commands|tests/fuzz/command_fuzz_test|CommandFuzz.Damaged*|ORRERY_MUTATIONS=1500
random-jobs|tests/properties/properties_test|Properties.*|ORRERY_RANDOM_JOBS=2000
command-lines|tests/cli/cli_test|RandomArguments.*|ORRERY_MUTATIONS=3000
other-programs|tests/exchange/exchange_test|*Mutation.*|ORRERY_MUTATIONS=20000
round-trips|tests/exchange/exchange_round_trip_test|RoundTrip.*|ORRERY_ROUND_TRIPS=1500
plan-texts|tests/ir/ir_test|PlanTextFuzz.Mutated*|ORRERY_MUTATIONS=20000
memory-bound|tests/memory/memory_test|*Bound*|ORRERY_BOUND_CASES=600
manifests|tests/runtime_snapshot/runtime_snapshot_mutation_test|*AreRefusedOrHarmless*|ORRERY_MUTATIONS=20000
safetensors|tests/runtime_weights/runtime_weights_mutation_test|WeightsMutation.*|ORRERY_MUTATIONS=20000
strangers|tests/runtime/runtime_strangers_test|*DoNotEnd*|ORRERY_STRANGER_RUNS=100
random-faults|tests/runtime_snapshot/runtime_supervised_test|*RandomFaults*|ORRERY_FAULTS=100
killed-runs|tests/runtime_snapshot/runtime_snapshot_test|Killed.*|ORRERY_KILLS=100
engines|tests/engines/engines_catalogue_test|*Catalogue*|ORRERY_SHARDS=24'

# long_seed NAME: the seed of its next round.
long_seed() {
  awk -v name="$1" -v first="${long_first:-1}" '
    BEGIN { next_seed = first } $1 == name && $2 >= next_seed { next_seed = $2 + 1 }
    END { print next_seed }' "$long_folder/rounds"
}

# long_round NAME TEST FILTER CASES SEED
long_round() {
  long_log=$long_folder/$1-$5.log
  long_begun=$(date +%s)
  result=ok
  long_status=0
  # In a folder of its own: a damaged command line may name a file to write.
  mkdir -p "$long_folder/work"
  (cd "$long_folder/work" &&
    exec env "$4" ORRERY_MUTATION_SEED="$5" timeout 3600 "$build/$2" --gtest_filter="$3") \
    >"$long_log" 2>&1 || long_status=$?
  rm -rf "$long_folder/work"
  case $long_status in
    0) ;;
    129 | 130 | 143)  # SIGHUP, SIGINT, SIGTERM: somebody has stopped it, and a later call tries the seed again
      rm -f "$long_log"
      long_end=0
      return 0
      ;;
    *) result=FAILED ;;
  esac
  grep -q '^\[  PASSED  \] 0 tests' "$long_log" && result=FAILED  # a filter that selects nothing
  echo "$1 $5 ${4#*=} $(($(date +%s) - long_begun)) $result" >>"$long_folder/rounds"
  if [ $result = ok ]; then
    rm -f "$long_log"
  else
    say "$1, seed $5: FAILED, see build/long/$1-$5.log; again:
  $4 ORRERY_MUTATION_SEED=$5 build/$2 --gtest_filter='$3'"
  fi
}

long_table() {
  awk '
    { if (!($1 in rounds)) order[++n] = $1
      rounds[$1]++; cases[$1] += $3; seconds[$1] += $4
      if ($5 != "ok") { failed[$1]++; seeds[$1] = seeds[$1] " " $2; any = 1 } }
    END {
      printf "%-16s %7s %12s %9s %7s  %s\n", "campaign", "rounds", "cases", "minutes", "failed", "seeds that failed"
      for (i = 1; i <= n; i++) { c = order[i]
        printf "%-16s %7d %12d %9.1f %7d %s\n", c, rounds[c], cases[c], seconds[c] / 60, failed[c], seeds[c] }
      exit any }' "$long_folder/rounds"
}

# The campaigns, from the one after that of the last round: many short calls come to all of them.
long_rotated() {
  printf '%s\n' "$long_campaigns" | awk -F '|' -v last="$(tail -n 1 "$long_folder/rounds" | cut -d ' ' -f 1)" '
    { line[NR] = $0 } $1 == last { at = NR }
    END { for (i = 0; i < NR; i++) print line[(at + i) % NR + 1] }'
}

# run_long HOURS FIRST_SEED: 0 when no round ever failed, 4 otherwise.
run_long() {
  long_folder=$build/long
  long_first=$2
  mkdir -p "$long_folder" && touch "$long_folder/rounds" || return 1
  long_end=$(awk -v now="$(date +%s)" -v hours="$1" 'BEGIN { printf "%d", now + 3600 * hours }')
  trap 'long_table; exit 130' INT TERM
  while [ "$(date +%s)" -lt "$long_end" ]; do
    while IFS='|' read -r name test filter cases; do
      [ -x "$build/$test" ] && [ "$(date +%s)" -lt "$long_end" ] || continue
      long_round "$name" "$test" "$filter" "$cases" "$(long_seed "$name")" </dev/null
    done <<CAMPAIGNS
$(long_rotated)
CAMPAIGNS
    [ -s "$long_folder/rounds" ] || break
  done
  long_table || return 4
}
