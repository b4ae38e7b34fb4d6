#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdclab alter against h5py, against a C loop of the reads and writes alone, and against cp.

Whole processes, files in the page cache, everything of a table in turn in one run; medians, with the
ratios of the medians. Nothing is a limit here: the figures depend on the machine and its load.

--corrupter DIR adds hdf5_corrupter, the published injector, from a checkout of it (version 676c62a).
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
ENV = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


def processor_seconds():
    """Of all children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


clock = time.perf_counter


def timed(*command):
    start = clock()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENV)
    seconds = clock() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()}")
    return seconds


# hdf5_corrupter as it is, but that its seeds, which are dates, become numbers: Python 3.11 and newer
# refuse dates. An interpreter's argument, so that the checkout is not touched.
START_CORRUPTER = """
import datetime, random, runpy, sys
seed = random.seed
random.seed = lambda x=None: seed(x.timestamp() if isinstance(x, datetime.datetime) else x)
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def corrupter(a, path, n, folder):
    """n attempts anywhere, any bit, without a saved sequence; its log is written as it always is."""
    seconds = timed(sys.executable, "-c", START_CORRUPTER, os.path.join(a.corrupter, "hdf5_corrupter.py"),
                    "--hdf5File", path, "--floatPrecision", "auto", "--injectionType", "count", "--injectionTries", str(n),
                    "--useRandomLocations", "--allowNaNValues", "--logFilePath", os.path.join(folder, "log-"))
    for name in os.listdir(folder):
        if name.startswith("log-"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                done = f.read().count("location value was corrupted")
            os.remove(os.path.join(folder, name))
            if done != n:
                raise SystemExit(f"hdf5_corrupter: {done} of {n} attempts in its log")
    return seconds


def make_hdf5(path):
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as f:
        for i in range(60):
            f[f"model/layer{i}/weight"] = rng.standard_normal((417, 1000), dtype=np.float32)


def sites_of(record, path):
    """The record's sites, as the C loop takes them."""
    rows = []
    with open(record, encoding="utf-8") as f:
        for line in map(json.loads, f):
            if line["type"] == "change":
                new = bytes.fromhex(line["new"])
                rows.append((line["offset"], len(new), new.ljust(8, b"\0")))
    rows.sort()
    with open(path, "wb") as f:
        for row in rows:
            f.write(struct.pack("<QQ8s", *row))


def in_place(a, folder):
    path, record, sites, out = (os.path.join(folder, n) for n in ("a.h5", "r.jsonl", "sites", "out.jsonl"))
    make_hdf5(path)
    alter = (a.sdclab, "alter", path, "--in-place", "--seed", "3")
    print(f"HDF5 of {os.path.getsize(path) / 1e6:.0f} MB, 60 tensors, altered in place; ms"
          f"{' of processor time' if a.processor_time else ''}, medians of {a.rounds}")
    tool = ("tool",) if a.corrupter else ()
    print(f"{'flips':>7} {'h5py':>9} {'C loop':>9} {'no sync':>9} {'no record':>10} {'sync':>9}   h5py/ours  ours/C loop"
          + ("  hdf5_corrupter  by ours" if tool else ""))
    for n in (1, 1000, 10000):
        rows = {k: [] for k in ("h5py", "floor", "no sync", "no record", "sync") + tool}
        for _ in range(a.rounds):
            if tool:
                rows["tool"].append(corrupter(a, path, n, folder))
            rows["h5py"].append(timed(sys.executable, os.path.join(HERE, "flip_h5py.py"), path, str(n)))
            rows["sync"].append(timed(*alter, "--flips", str(n), "--record", record))
            os.remove(record)
            rows["no record"].append(timed(*alter, "--flips", str(n), "--no-sync", "--no-record"))
            rows["no sync"].append(timed(*alter, "--flips", str(n), "--no-sync", "--record", record))
            sites_of(record, sites)
            rows["floor"].append(timed(a.floor, path, sites, record, out))
            os.remove(record)
        m = {k: 1e3 * statistics.median(v) for k, v in rows.items()}
        print(f"{n:7} {m['h5py']:9.1f} {m['floor']:9.1f} {m['no sync']:9.1f} {m['no record']:10.1f} {m['sync']:9.1f}"
              f"   {m['h5py'] / m['no sync']:9.1f}  {m['no sync'] / m['floor']:9.2f}"
              + (f"     {m['tool']:10.1f}  {m['tool'] / m['no sync']:9.1f}" if tool else ""), flush=True)
    os.remove(path)


def bulk_and_copy(a, folder):
    path, out = (os.path.join(folder, n) for n in ("a.safetensors", "b.safetensors"))
    rng = np.random.default_rng(1)
    save_file({f"model/layer{i}.weight": rng.standard_normal((512, 4096), dtype=np.float32)
               for i in range(a.mib // 8)}, path)
    size = os.path.getsize(path) / 2**30
    bulk = [timed(a.sdclab, "alter", path, "--in-place", "--no-sync", "--no-record", "--flips", str(a.bulk), "--seed", str(i))
            for i in range(a.rounds)]
    seconds = statistics.median(bulk)
    print(f"{a.bulk} flips in {size:.2f} GiB of safetensors, no record: {seconds:.2f} s, "
          f"{a.bulk / seconds / 1e6:.1f} million sites/s")
    rows = {"ours": [], "cp": []}
    for i in range(a.rounds):
        for name in ("ours", "cp") if i % 2 else ("cp", "ours"):
            if name == "cp":
                rows["cp"].append(timed("cp", "--reflink=auto", path, out))
            else:
                rows["ours"].append(timed(a.sdclab, "alter", path, "-o", out, "--no-sync", "--no-record"))
            os.remove(out)
    m = {k: statistics.median(v) for k, v in rows.items()}
    print(f"one flip into a copy of {size:.2f} GiB: {m['ours']:.3f} s, cp {m['cp']:.3f} s, ratio {m['ours'] / m['cp']:.2f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sdclab", default="build/release/sdclab")
    p.add_argument("--floor", default="build/release/bench/bench_alter_floor")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--mib", type=int, default=1024)
    p.add_argument("--bulk", type=int, default=10_000_000)
    p.add_argument("--corrupter", metavar="DIR", type=os.path.abspath)
    p.add_argument("--only", choices=("in-place", "bulk"))
    p.add_argument("--processor-time", action="store_true", help="on a machine that does other work")
    a = p.parse_args()
    if a.processor_time:
        global clock
        clock = processor_seconds
    folder = tempfile.mkdtemp(prefix="sdc-bench-", dir=".")
    try:
        if a.only != "bulk":
            in_place(a, folder)
        if a.only != "in-place":
            bulk_and_copy(a, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
