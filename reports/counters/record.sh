#!/usr/bin/env bash
# Records both programs of record.py into a folder: a trace and counters of each, once with and once without units.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
metrics=$(python3 "$here/record.py" metrics)
for program in convnet mixed; do
  python3 "$here/record.py" $program trace "$out/$program.json.gz"
  ncu --csv --page raw --profile-from-start off --clock-control none --metrics "$metrics" \
    python3 "$here/record.py" $program plain > "$out/$program.csv"
done
