#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoint commands on a large safetensors file against their floors: cp, cmp, one synced pwrite.

The commands take turns with their floors; medians are printed. The file is in the page cache.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import numpy as np
from safetensors.numpy import save_file


def timed(*command):
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.perf_counter() - start
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()}")
    return seconds


def pwrite_synced(path):
    start = time.perf_counter()
    fd = os.open(path, os.O_RDWR)
    byte = os.pread(fd, 1, 1 << 20)
    os.pwrite(fd, byte, 1 << 20)
    os.fsync(fd)
    os.close(fd)
    return time.perf_counter() - start


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sdclab", default="build/release/sdclab")
    p.add_argument("--mib", type=int, default=1024)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    folder = tempfile.mkdtemp(prefix="sdc-bench-", dir=".")
    try:
        path, other, out = (os.path.join(folder, n) for n in ("a.safetensors", "b.safetensors", "c.safetensors"))
        rng = np.random.default_rng(1)
        n = a.mib // 8
        save_file({f"model/layer{i}.weight": rng.standard_normal((512, 4096), dtype=np.float32) for i in range(n)}, path)
        shutil.copy(path, other)
        size = os.path.getsize(path) / 2**30
        rows = {name: [] for name in ("inspect", "in place", "pwrite", "copy", "cp", "diff", "cmp")}
        for _ in range(a.rounds):
            rows["inspect"].append(timed(a.sdclab, "inspect", path))
            rows["pwrite"].append(pwrite_synced(other))
            rows["in place"].append(timed(a.sdclab, "alter", other, "--in-place", "--no-record", "--seed", "1"))
            timed(a.sdclab, "alter", other, "--in-place", "--no-record", "--seed", "1")  # the same bit back
            rows["cp"].append(timed("cp", "--reflink=auto", path, out))
            os.remove(out)
            rows["copy"].append(timed(a.sdclab, "alter", path, "-o", out, "--no-record", "--no-sync"))
            os.remove(out)
            rows["cmp"].append(timed("cmp", path, other))
            rows["diff"].append(timed(a.sdclab, "diff", path, other))
        m = {k: statistics.median(v) for k, v in rows.items()}
        print(f"file of {size:.2f} GiB, {n} tensors; medians of {a.rounds}")
        print(f"inspect                     {m['inspect'] * 1e3:8.1f} ms")
        print(f"alter --in-place, one bit   {m['in place'] * 1e3:8.1f} ms   one synced pwrite {m['pwrite'] * 1e3:.1f} ms")
        print(f"alter to a copy, not synced {m['copy']:8.3f} s    cp {m['cp']:.3f} s, ratio {m['copy'] / m['cp']:.2f}")
        print(f"diff of equal files         {m['diff']:8.3f} s    cmp {m['cmp']:.3f} s, ratio {m['diff'] / m['cmp']:.2f}, {2 * size / m['diff']:.1f} GiB/s")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
