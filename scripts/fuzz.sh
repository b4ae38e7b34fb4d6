#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes parsers of files with libFuzzer (clang), one after the other, each for MINUTES, from its
# seeds in tests/fuzz/seeds and what earlier runs found. Prints one line each; an input that crashes
# is kept in build/fuzz/found/NAME. Needs clang with compiler-rt (Debian package clang).
# Usage: scripts/fuzz.sh MINUTES [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n 3,7p "$0" | cut -c3- >&2; exit 2; }
minutes=$1
shift

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
if [ $# -eq 0 ]; then
    for program in build/fuzz/tests/fuzz/fuzz_*_libfuzzer; do
        name=${program##*/fuzz_}
        set -- "$@" "${name%_libfuzzer}"
    done
fi

failed=0
for name in "$@"; do
    corpus=build/fuzz/corpus/$name found=build/fuzz/found/$name log=build/fuzz/$name.log
    mkdir -p "$corpus" "$found" "tests/fuzz/seeds/$name"
    begin=$(date +%s) rc=0
    # -fork: goes on after a crash, a leak or a hang; the limits are of one input
    "build/fuzz/tests/fuzz/fuzz_${name}_libfuzzer" -fork=1 -ignore_crashes=1 -ignore_ooms=1 -ignore_timeouts=1 \
        -max_total_time=$((minutes * 60)) -timeout=20 -rss_limit_mb=2048 -max_len=65536 \
        -artifact_prefix="$found/" "$corpus" "tests/fuzz/seeds/$name" >"$log" 2>&1 || rc=$?
    runs=$(grep -o '^#[0-9]*' "$log" | tail -1 | tr -d '#')
    edges=$(grep -o 'cov: [0-9]*' "$log" | tail -1 | tr -dc 0-9)
    crashes=$(find "$found" -type f -newermt "@$begin" | wc -l)
    printf '%-16s %4d min %12s inputs %7s edges %5d in the corpus %4d crashes\n' "$name" \
        $((($(date +%s) - begin) / 60)) "${runs:-0}" "${edges:-?}" "$(find "$corpus" -type f | wc -l)" "$crashes"
    [ "$crashes" = 0 ] && { [ "$rc" = 0 ] || [ "$rc" = 72 ]; } || failed=1
done
exit $failed
