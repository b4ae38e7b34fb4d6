#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""diff, scan, predict, verify and seal on a large safetensors file of F32 against their floors: cmp, and
NumPy's isfinite, min and max passes, in the same run.

They take turns; medians are printed, of the time that passed and (as other work on the machine counts
less there) of processor time. Files are in the page cache.
"""
import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from safetensors.numpy import save_file

NUMPY = """
import sys, time, resource
import numpy as np
a = np.fromfile(sys.argv[1], np.uint8)[int(sys.argv[2]):].view(np.float32)
for _ in range(2):  # the second time memory for the temporary array is there
    start, cpu = time.perf_counter(), time.process_time()
    np.isfinite(a).all(); a.min(); a.max()
print(time.perf_counter() - start, time.process_time() - cpu)
"""


def timed(*command):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def numpy_passes(path, header):
    out = subprocess.run([sys.executable, "-c", NUMPY, path, str(header)], capture_output=True, text=True, check=True).stdout
    return tuple(map(float, out.split()))


def make_files(folder, mib):
    path, same, other, one = (os.path.join(folder, n + ".safetensors") for n in ("a", "same", "other", "one"))
    rng = np.random.default_rng(1)
    save_file({f"model/layer{i}.weight": rng.standard_normal((512, 4096), dtype=np.float32) for i in range(mib // 8)}, path)
    shutil.copy(path, same)
    data = np.fromfile(path, np.uint8)
    header = 8 + int.from_bytes(data[:8].tobytes(), "little")
    raw = data[header:].view(np.uint32)
    raw[raw.size // 2] ^= 1
    data.tofile(one)
    where = rng.choice(raw.size, raw.size // 100, replace=False)
    raw[where] ^= np.uint32(1) << rng.integers(0, 23, where.size).astype(np.uint32)
    data.tofile(other)
    return path, same, other, one, header


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sdclab", default="build/release/sdclab")
    p.add_argument("--mib", type=int, default=1024)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    folder = tempfile.mkdtemp(prefix="sdc-bench-", dir=".")
    try:
        path, same, other, one, header = make_files(folder, a.mib)
        gb = os.path.getsize(path) / 1e9
        sealed = os.path.join(folder, "seal")
        commands = {"cmp": ["cmp", path, same]}
        for threads in ("1", "2"):
            t = ["--threads", threads]
            commands.update({
                f"diff, equal, {threads}": [a.sdclab, "diff", *t, path, same],
                f"diff, one bit, {threads}": [a.sdclab, "diff", *t, path, one],
                f"diff, 1 %, {threads}": [a.sdclab, "diff", *t, path, other],
                f"scan, {threads}": [a.sdclab, "scan", *t, path],
                f"predict, {threads}": [a.sdclab, "predict", *t, path],
                f"seal, {threads}": [a.sdclab, "seal", "--no-sync", "--force", "-o", sealed, *t, path],
                f"verify, {threads}": [a.sdclab, "verify", "--seal", sealed, *t, path],
                f"verify --finite, {threads}": [a.sdclab, "verify", "--seal", sealed, "--finite", *t, path],
            })
        timed(*commands["seal, 1"])
        rows = {name: [] for name in [*commands, "numpy"]}
        for _ in range(a.rounds):
            for name, command in commands.items():
                rows[name].append(timed(*command))
            rows["numpy"].append(numpy_passes(path, header))
        m = {k: [statistics.median(v[i] for v in found) for i in (0, 1)] for k, found in rows.items()}
        floors = {"diff": "cmp"}
        print(f"file of {gb:.2f} GB of F32; medians of {a.rounds}; the number after the name: threads; load {os.getloadavg()[0]:.1f}")
        print(f"{'':20}  {'wall s':>7}  {'GB/s':>6}  {'ratio':>6}   {'cpu s':>7}  {'GB/s':>6}  {'ratio':>6}")
        for name, (wall, cpu) in m.items():
            floor = floors.get(name.split(",")[0], "numpy")
            ratios = ["" if name in ("cmp", "numpy") else f"{t / f:.2f}" for t, f in zip((wall, cpu), m[floor])]
            print(f"{name:20}  {wall:7.3f}  {gb / wall:6.2f}  {ratios[0]:>6}   {cpu:7.3f}  {gb / cpu:6.2f}  {ratios[1]:>6}"
                  + ("" if name in ("cmp", "numpy") else f"   of {floor}"))
        print("numpy: isfinite, min and max of an array in memory, without reading it")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
