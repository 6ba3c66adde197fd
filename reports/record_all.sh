#!/usr/bin/env bash
# Record everything that needs GPUs, unattended.
#
#   record_all.sh OUT [one|two] [SECONDS]
#
#   one      one GPU (the default): 18 minutes on an H200
#   two      two or more GPUs: the ranks only, 5 minutes
#   SECONDS  how long this call may take, 1500 when left out. Stages that no longer fit are left for another call
#            with the same OUT, which skips what is done and then tries once more what failed.
#
# Needs torch with CUDA, profkit and what it imports (PYTHONPATH, or installed), ncu with permission to read counters, and
# nsys (NSYS, default: the one on the PATH). Without a GPU it is a dry run: small steps on the CPU, and no counters.
# Leaves OUT/results.tar.gz: nothing in it names the machine. OUT/logs stays outside of it.
set -uo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd) gpus=${2:-one} seconds=${3:-1500}
reports=$(cd "$(dirname "$0")" && pwd)
export PYTHONUNBUFFERED=1 PYTHONPATH="$(dirname "$reports")${PYTHONPATH:+:$PYTHONPATH}" KINETO_LOG_LEVEL=5
mkdir -p "$out"/{logs,done}
began=$SECONDS
found=$(python3 -c 'import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)') || exit 2

profkit() { python3 -m profkit "$@"; }
record() { # STAGE of the study, of its blind workloads; begun anew, since it adds to what is there
  local rc
  case $1 in
    nsys | emit) rm -rf "$out/blind/$1" ;;
    cold) rm -f "$out/blind/ncu/"{ncu,cold}.* ;;
    *) rm -f "$out/blind/kineto/$1.jsonl" ;;
  esac
  "$reports/calibration/record.sh" "$out/blind" "$1" blind
  rc=$?
  cat "$out/blind/$1.log"
  return $rc
}

# Each stage: what it runs, and on a machine without a GPU what stands in for it. The prefix keeps the names free: an
# exported function called nsys would be run in place of the program.
run_advice() {
  if ((found)); then python3 "$reports/advice/record_pairs.py" after "$out/advice"
  else python3 "$reports/advice/record_pairs.py" after "$out/advice" foreach_single_mlp; fi
}
run_plain() {
  if ((found)); then record plain
  else # torch's compiler, which cannot do this device, leaves its notes where it is
    mkdir -p "$out/dry" && cd "$out/dry" && python3 "$reports/calibration/record.py" --out . --mode dry --only blind --device meta
  fi
}
run_kineto() { needs_gpu && record kineto; }
run_nsys() { needs_gpu && needs_tool "${NSYS:-nsys}" && record nsys; }
run_cold() { needs_gpu && needs_tool ncu && record cold; }
run_emit() { needs_gpu && needs_tool "${NSYS:-nsys}" && record emit; }
run_rates() { needs_gpu && record rates; }
run_comparison() {
  if ((found)); then python3 "$reports/comparison/record.py" "$out/comparison"
  else python3 "$reports/comparison/record.py" "$out/comparison" --device cpu --changes none,item; fi
}
run_recorder() { python3 "$reports/recorder/measure.py" "$out/recorder.json" "$( ((found)) && echo 60 || echo 3)"; }
run_card() { needs_gpu && profkit hardware calibrate -o "$out/card.json"; }
run_collected() { needs_gpu && rm -rf "$out/collected" && python3 "$reports/calibration/collect.py" "$out/blind" "$out/collected"; }
run_ranks() {
  if ((found >= 2)); then python3 "$reports/ranks/record.py" --out "$out/ranks"
  elif ((found)); then echo "needs two GPUs" && return 3
  else python3 "$reports/ranks/record.py" --out "$out/ranks" --device cpu --ranks 2 --cases ddp; fi
}

needs_gpu() { ((found)) || { echo "needs a GPU" && return 3; }; }
needs_tool() { command -v "$1" > /dev/null || { echo "needs $1" && return 3; }; }

# name, seconds that it is expected to take, seconds after which it is stopped
stages_one="advice 160 300
plain 70 150
kineto 90 180
nsys 90 200
cold 100 240
comparison 320 480
recorder 100 180
card 40 120
rates 40 90
emit 90 200"
stages_two="ranks 200 540"
stages=stages_$gpus
[ -n "${!stages:-}" ] || { echo "one or two, not $gpus" && exit 2; }

reserved=20 # seconds for packing, and for what collects the study's files
[ "$gpus" = two ] || reserved=90
left() { echo $((seconds - (SECONDS - began) - reserved)); }

run() { # NAME EXPECTED LIMIT
  local rc limit=$3 start=$SECONDS
  (($(left) >= $2)) || { echo "left    $1: needs $2 s, $(left) s are left" && return; }
  ((limit <= $(left))) || limit=$(left)
  export -f "run_$1" record profkit needs_gpu needs_tool
  out=$out reports=$reports found=$found timeout -k 10 "$limit" bash -c "run_$1" > "$out/logs/$1.log" 2>&1
  rc=$?
  echo "$rc $((SECONDS - start))" > "$out/done/$1"
  case $rc in
    0) echo "done    $1: $((SECONDS - start)) s" && grep -hE '"error": | failed: ' "$out/logs/$1.log" | cut -c1-200 | head -8 ;;
    3) echo "SKIPPED $1: $(tail -1 "$out/logs/$1.log")" ;;
    124 | 137) echo "STOPPED $1 after $limit s" && tail -3 "$out/logs/$1.log" ;;
    *) echo "FAILED  $1: exit code $rc" && tail -15 "$out/logs/$1.log" ;;
  esac
}

untried=() again=()
while read -r name expected limit; do
  if [ ! -e "$out/done/$name" ]; then untried+=("$name $expected $limit")
  elif [ "$(cut -d' ' -f1 "$out/done/$name")" != 0 ]; then again+=("$name $expected $limit"); fi
done <<< "${!stages}"
for stage in ${untried[@]+"${untried[@]}"} ${again[@]+"${again[@]}"}; do
  # shellcheck disable=SC2086
  run $stage
done
reserved=0
[ "$gpus" = two ] || run collected 0 120
python3 "$reports/pack.py" "$out" && ls -l "$out/results.tar.gz" | awk '{print "packed ", $5, "bytes"}'
echo "took    $((SECONDS - began)) s"
