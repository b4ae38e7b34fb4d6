#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All benchmarks, each against a peer or a floor measured in the same run. Not a test: a shared machine
# decides nothing here. Figures worth keeping go to docs/user/performance.md with machine and command.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
echo "machine: $(build/release/sdclab version --full | sed -n 's/^processor *//p'), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
echo; echo "== training: LeNet-5, batch 64 a rank =="
$python bench/bench_train.py
echo; echo "== kernels: one training step, one thread =="
$python bench/bench_nn.py
echo; echo "== collectives: threads and MPI processes =="
$python bench/bench_comm.py
echo; echo "== campaign: trials per minute =="
$python bench/bench_campaign.py
echo; echo "== checkpoints: alter, diff, inspect against their floors =="
$python bench/bench_ckpt.py
echo; echo "== checkpoints: diff, scan, predict, verify, seal against cmp and NumPy =="
$python bench/bench_audit.py
echo; echo "== alteration: against h5py, a C loop and cp =="
$python bench/bench_alter.py
