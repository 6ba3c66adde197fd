#!/usr/bin/env bash
# Record the calibration study on this machine's GPU.
#
#   record.sh OUT [STAGES] [NAMES]
#
#   STAGES  of rates plain kineto nsys emit cold warm, in one argument; all when left out
#   NAMES   workloads, comma-separated, or `blind` or `again` for those that nothing was tuned on; all when left out
#
# Needs torch with CUDA, ncu with permission to read counters, and nsys (NSYS, default: the one on the PATH).
# It changes no clock and no setting of the card. `collect.py` turns OUT into the committed data.
# Exit code 1: a stage failed, or left fewer recordings than workloads (OUT/STAGE.log says which).
set -uo pipefail
out=$1 stages=${2:-rates plain kineto nsys emit cold warm} only=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"/{kineto,nsys,emit,ncu}
export PYTHONUNBUFFERED=1

metrics=gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,lts__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active
metrics+=,dram__bytes.sum,dram__bytes_read.sum,dram__bytes_write.sum

# One session per capture range, so one report per workload; without sampling the files stay small.
timeline() { # MODE
  "${NSYS:-nsys}" profile -o "$out/$1/report" -f true --trace=cuda,nvtx,cublas -s none --cpuctxsw=none --backtrace=none \
    --resolve-symbols=false --cuda-graph-trace=node --capture-range=cudaProfilerApi --capture-range-end=repeat \
    python3 "$here/record.py" --out "$out/$1" --mode "$1" --only "$only"
  local reports ranges
  reports=$(find "$out/$1" -name 'report.*.nsys-rep' | wc -l) ranges=$(grep -c '"started": true' "$out/$1/$1.jsonl")
  echo "$reports reports of $ranges workloads"
  ((reports == ranges)) # its own exit code is no sign: a warning suffices for another than 0
}

counters() { # NAME CACHE METRICS
  ncu --profile-from-start off --clock-control none --cache-control "$2" --metrics "$3" -f -o "$out/ncu/$1" \
    python3 "$here/record.py" --out "$out/ncu" --mode ncu --only "$only"
  mv "$out/ncu/ncu.jsonl" "$out/ncu/$1.jsonl" &&
  ncu --import "$out/ncu/$1.ncu-rep" --page raw --csv --print-kernel-base demangled --print-units base | gzip -9 > "$out/ncu/$1.csv.gz"
}

stage() {
  case $1 in
    rates) python3 "$here/rates.py" --out "$out" ;;
    plain | kineto) python3 "$here/record.py" --out "$out/kineto" --mode "$1" --only "$only" ;;
    nsys | emit) timeline "$1" ;;
    cold) counters cold all "$metrics" ;;                            # empty caches before every kernel: ncu's default
    warm) counters warm none dram__bytes_read.sum,dram__bytes_write.sum ;; # caches as the kernel before left them: one pass
    *) echo "no stage $1" && return 2 ;;
  esac
}

failed=0
for name in $stages; do
  echo "$(date +%T) $name"
  stage "$name" > "$out/$name.log" 2>&1 || { failed=1 && echo "failed: $(tail -1 "$out/$name.log")"; }
done
echo "$(date +%T) done"
exit $failed
