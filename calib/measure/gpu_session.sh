#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A lent GPU in three commands of ten minutes. The GPU's machine has CUDA and PyTorch, and none of this
# project's libraries: programs are built on another machine of the same architecture and packed with
# what they load; CUDA's libraries and NCCL are those of the GPU's machine.
usage='usage: calib/measure/gpu_session.sh COMMAND [FOLDER]

  pack [BUILD]   build programs and tests in BUILD (default build-cuda) and pack them into build-gpu/
  show           the commands for the GPU machine, in order
  first          there: what the GPU is, kernel tests, part 1 of the measurements   (about 9.5 minutes)
  second         there: parity, sanitizer, the runtime against PyTorch              (about 9 minutes)
  third          there: part 2 of the measurements                                  (about 9.5 minutes)
  smoke          there: device tests only                                           (about 1 minute)

Results go to $OUT (default: build-gpu/out), eight files at most.'
root=$(dirname -- "$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")")
carried=$root/build-gpu  # what travels: one archive
pack=$carried
out=${OUT:-$pack/out}

programs='plan plan-run plan-bench'
tests='comm_cuda_test cuda_kernels_test cuda_device_test comm_nccl_test'

say() { printf '== %s\n' "$*"; }

pack_all() {
  build=${1:-$root/build-cuda}
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DORRERY_CUDA=ON >/dev/null || exit 1
  known=$(ninja -C "$build" -t targets all | sed -n 's/: phony$//p; s/: CXX_EXECUTABLE_LINKER.*//p' | sed 's,.*/,,' | sort -u)
  wanted=
  for name in $programs $tests; do
    if printf '%s\n' "$known" | grep -qx "$name"; then wanted="$wanted $name"; else say "no target $name"; fi
  done
  # shellcheck disable=SC2086
  ninja -C "$build" $wanted || exit 1
  rm -rf "$pack"
  mkdir -p "$pack/bin" "$pack/lib"
  for name in $wanted; do
    file=$(find "$build/bin" "$build/tests" -name "$name" -type f -perm -u+x | head -n 1)
    strip -o "$pack/bin/$name" "$file" && ldd "$file" >>"$pack/loads"
  done
  fake=$(find "$build/tests" -name 'libfake_nccl.so' | head -n 1)
  [ -z "$fake" ] || cp "$fake" "$pack/lib/"
  # All but the C library and CUDA's, which the other machine has.
  sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' "$pack/loads" | sort -u |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda|libcudart|libcublas[^/]*|libcudnn[^/]*|libnccl|libnvrtc[^/]*)\.so' |
    while read -r library; do cp -L "$library" "$pack/lib/"; done
  rm -f "$pack/loads"
  tar -czf "$carried/pack.tgz.part" -C "$pack" bin lib && rm -rf "${pack:?}/bin" "${pack:?}/lib" &&
    mv "$carried/pack.tgz.part" "$carried/pack.tgz"
  say "packed $(du -sh "$pack" | cut -f1) into build-gpu/pack.tgz:$wanted"
}

# Where this project's programs find libraries: packed ones, then CUDA's, then those that PyTorch brings.
prepare_there() {
  mkdir -p "$out"
  if [ -f "$carried/pack.tgz" ]; then
    pack=${TMPDIR:-/tmp}/orrery-gpu
    mkdir -p "$pack" && tar -xzf "$carried/pack.tgz" -C "$pack"
  fi
  exec 3>>"$out/session.log"
  torch_libraries=$(python3 - 2>/dev/null <<'PYTHON'
import glob, os, site, sys
for folder in sys.path + site.getsitepackages():
    for path in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib"))):
        print(path, end=":")
PYTHON
)
  export LD_LIBRARY_PATH="$pack/lib:/usr/local/cuda/lib64:$torch_libraries/usr/local/nvidia/lib64:${LD_LIBRARY_PATH:-}"
  export ORRERY_ROOT="$root" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
  begin=$(date +%s)
}

left() { echo $((${1} - $(date +%s) + begin)); }

# step SECONDS NAME COMMAND...: its output into the log, its end on the screen.
step() {
  seconds=$1 name=$2
  shift 2
  say "$name" >&3
  timeout -k 5 "$seconds" "$@" >"$out/step.tmp" 2>&1
  code=$?
  cat "$out/step.tmp" >&3
  say "$name: exit $code after $(($(date +%s) - begin)) s"
  tail -n "${LINES_SHOWN:-6}" "$out/step.tmp"
  rm -f "$out/step.tmp"
}

has() { [ -x "$pack/bin/$1" ]; }

device_tests() {
  step 20 "what the GPU is" nvidia-smi
  for name in comm_cuda_test cuda_device_test; do
    ! has "$name" || step 40 "$name" "$pack/bin/$name" --gtest_brief=1
  done
}

first() {
  device_tests
  step "$(left 575)" "measurements, part 1" \
    python3 "$root/calib/measure/measure_all.py" --out "$out" --part 1 --seconds "$(left 565)"
}

train() { # NAME SECONDS MODEL SEQ BATCH PRECISION STEPS DEVICE
  step "$2" "plan run $1" "$pack/bin/plan-run" --model "$3" --seq-len "$4" --micro-batch "$5" --global-batch "$5" \
    --precision "$6" --steps "$7" --device "$8" --comm local --ranks 1
}

second() {
  LINES_SHOWN=12
  device_tests
  if has plan-run; then
    train 'parity fp32, CPU' 60 bert-tiny 128 2 fp32 20 cpu
    train 'parity fp32, GPU' 40 bert-tiny 128 2 fp32 20 cuda
    train 'parity bf16, GPU' 40 bert-tiny 128 2 bf16 20 cuda
    train '124M bf16' 60 gpt2-small 1024 16 bf16 30 cuda
    train 'BERT-large 128' 60 bert-large 128 64 bf16 20 cuda
    train 'BERT-large 512' 60 bert-large 512 16 bf16 20 cuda
    train '1.5B bf16' 60 gpt2-xl 1024 8 bf16 15 cuda
  fi
  step 60 'PyTorch, the same' python3 "$root/calib/measure/steps.py" --out "$out" --set yardstick-124m --batches 16 --seconds 50
  for tool in memcheck racecheck; do
    ! has cuda_device_test || step "$(left 560)" "sanitizer $tool" compute-sanitizer --tool "$tool" "$pack/bin/cuda_device_test" --gtest_brief=1
  done
}

third() {
  step "$(left 575)" "measurements, part 2" \
    python3 "$root/calib/measure/measure_all.py" --out "$out" --part 2 --seconds "$(left 565)"
}

show() {
  printf '%s\n' \
    'calib/measure/gpu_session.sh pack                     # here, before a GPU is lent; then carry build-gpu' \
    'sh calib/measure/gpu_session.sh first                 # there; copy $OUT to calib/data/DATE/ before the next' \
    'sh calib/measure/gpu_session.sh second' \
    'sh calib/measure/gpu_session.sh third' \
    'plan validate calib/data/DATE/steps.csv               # here: the twin against whole steps'
}

case "${1:-}" in
  pack) shift && pack_all "$@" ;;
  show) show ;;
  smoke) prepare_there && device_tests ;;
  first | second | third) prepare_there && "$1" ;;
  --help | -h) printf '%s\n' "$usage" ;;
  *)
    printf '%s\n' "$usage" >&2
    exit 2
    ;;
esac
