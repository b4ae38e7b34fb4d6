#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a barrier and of Gloo's ring sum with ranks as threads and as MPI processes, and peak memory.

Sizes: one page, LeNet-5's gradients, DDP's first and its other buckets. The two take turns; medians over
rounds of medians. The memory of processes is that of one of them, of threads that of all ranks together.
"""
import os
import shutil
import statistics
import subprocess
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release", "bench", "bench_comm")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]


def once(kind, ranks):
    command = [PROGRAM, "threads", str(ranks)] if kind == "threads" else [*MPIRUN, "-np", str(ranks), PROGRAM, "mpi"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300,
                         env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    return {(what, int(size) if what != "memory" else 0): float(time) if what != "memory" else float(size)
            for what, size, time in (line.split() for line in out.splitlines())}


def main():
    kinds = ["threads"] + (["mpi"] if shutil.which("mpirun") else [])
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'ranks':>5} {'what':>8} {'bytes':>10} " + " ".join(f"{k + ', us':>12}" for k in kinds))
    for ranks in (2, 4):
        found = {k: [] for k in kinds}
        for _ in range(rounds):
            for k in kinds:
                found[k].append(once(k, ranks))
        for what, size in found["threads"][0]:
            row = [statistics.median(f[what, size] for f in found[k]) for k in kinds]
            if what == "memory":
                print(f"{ranks:>5} {'memory':>8} {'MiB':>10} " + " ".join(f"{x / 2**20:>12.1f}" for x in row))
            else:
                print(f"{ranks:>5} {what:>8} {size:>10} " + " ".join(f"{x:>12.1f}" for x in row))


if __name__ == "__main__":
    main()
