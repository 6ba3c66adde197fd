#!/usr/bin/env bash
# Record the calibration study on this machine's GPU.
#
#   record.sh OUT [NAMES]    NAMES: workloads, comma-separated; all when left out
#
# Needs torch with CUDA, ncu with permission to read counters, and nsys (NSYS, default: on the PATH).
# It changes no clock and no setting of the card.
set -uo pipefail
out=$1 only=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
nsys=${NSYS:-nsys}
mkdir -p "$out"/{kineto,nsys,emit,ncu}
export PYTHONUNBUFFERED=1

note() { echo "$(date +%T) $*"; }

note rates
python3 "$here/rates.py" --out "$out" || true

for mode in plain kineto; do
  note $mode
  python3 "$here/record.py" --out "$out/kineto" --mode $mode --only "$only" > "$out/$mode.log" 2>&1
done

# One session per capture range, so one report per workload; without sampling the files stay small.
for mode in nsys emit; do
  note $mode
  "$nsys" profile -o "$out/$mode/report" -f true --trace=cuda,nvtx,cublas -s none --cpuctxsw=none --backtrace=none \
    --resolve-symbols=false --cuda-graph-trace=node --capture-range=cudaProfilerApi --capture-range-end=repeat \
    python3 "$here/record.py" --out "$out/$mode" --mode $mode --only "$only" > "$out/$mode.log" 2>&1
  ls "$out/$mode"/*.nsys-rep 2> /dev/null | xargs -P 12 -I{} "$nsys" export -q true --type sqlite -f true {} >> "$out/$mode.log" 2>&1
done

metrics=gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,lts__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active
metrics+=,dram__bytes.sum,dram__bytes_read.sum,dram__bytes_write.sum

# "cold": every kernel starts with empty caches, as ncu does by default and the bytes are comparable with the model's.
# "warm": one pass over the bytes alone, caches left as the kernel before left them.
counters() { # NAME CACHE METRICS
  note "ncu $1"
  ncu --profile-from-start off --clock-control none --cache-control "$2" --metrics "$3" -f -o "$out/ncu/$1" \
    python3 "$here/record.py" --out "$out/ncu" --mode ncu --only "$only" > "$out/ncu_$1.log" 2>&1
  mv "$out/ncu/ncu.jsonl" "$out/ncu/$1.jsonl"
  ncu --import "$out/ncu/$1.ncu-rep" --page raw --csv > "$out/ncu/$1.csv" 2>> "$out/ncu_$1.log"
  gzip -9 "$out/ncu/$1.csv"
}
counters cold all "$metrics"
counters warm none dram__bytes_read.sum,dram__bytes_write.sum
note done
