#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alters files that real Keras has just saved (.keras, .h5 whole and weights only, .weights.h5), and
files of a later libhdf5, and lets Keras and that h5py judge: exactly the planned elements differ by
exactly the planned bits.

Needs TensorFlow in another interpreter: SDC_TENSORFLOW_PYTHON, or .venv-tensorflow (made by
scripts/tensorflow.sh). Skipped without one.
"""
import json
import os
import subprocess
import sys
import zipfile

import numpy as np

SOURCE, SDCLAB = os.environ["SDC_SOURCE_DIR"], os.environ["SDCLAB"]
PYTHON = os.environ.get("SDC_TENSORFLOW_PYTHON") or os.path.join(SOURCE, ".venv-tensorflow", "bin", "python")
JUDGE = os.path.join(SOURCE, "tests", "conform", "keras_judge.py")
FLIPS = 15

if not os.path.exists(PYTHON):
    print("skipped: no TensorFlow (scripts/tensorflow.sh)")
    sys.exit(77)


def keras(*args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    p = subprocess.run([PYTHON, JUDGE, *args], capture_output=True, text=True, timeout=300, env=env)
    assert p.returncode == 0, (args, p.stderr[-2000:])
    return p.stdout


def sdclab(*args, codes=(0,)):
    p = subprocess.run([SDCLAB, *args], capture_output=True, text=True, timeout=120)
    assert p.returncode in codes, (args, p.returncode, p.stdout, p.stderr)
    return p.stdout


def read(path):
    keras("read", path, "read.npz")
    with np.load("read.npz") as z:
        return [z[n] for n in z.files]


def judge(path):
    before = read(path)
    out = os.path.join("out", os.path.basename(path))
    for name in (out, out + ".sdc.jsonl"):
        if os.path.exists(name):
            os.remove(name)
    result = json.loads(sdclab("alter", path, "-o", out, "--json", "--flips", str(FLIPS), "--seed", "3",
                               "--dtype", "F32,F64", "--not-tensors", "*optimizer*"))
    with open(result["record"]) as f:
        changes = [c for c in map(json.loads, f) if c["type"] == "change"]
    assert 0 < len(changes) <= FLIPS
    after = read(out)
    assert len(before) == len(after)
    hits = []
    for a, b in zip(before, after):
        assert a.dtype == b.dtype and a.shape == b.shape
        real = a.view(a.real.dtype).reshape(-1) if a.size else a.reshape(-1)
        bits = f"u{real.dtype.itemsize}"
        old, new = real.view(bits), b.view(b.real.dtype).reshape(-1).view(bits)
        hits += [(int(i), int(old[i] ^ new[i])) for i in np.flatnonzero(old != new)]
    planned = [(c["elem"], sum(1 << bit for bit in c["bits"])) for c in changes]
    assert sorted(hits) == sorted(planned), (path, hits, planned)
    if path.endswith(".keras"):
        with zipfile.ZipFile(out) as z:
            assert z.testzip() is None
    sdclab("verify", out)
    sdclab("undo", result["record"])
    assert all(np.array_equal(a, b) for a, b in zip(before, read(out)))
    return f"{len(before)} arrays, {len(changes)} elements"


def main():
    os.makedirs("out", exist_ok=True)
    print("Keras, h5py, HDF5:", keras("write", "saved").strip())
    for name in ("m.keras", "m.h5", "m.weights.h5", "old.h5", "new.h5"):
        print(name, "ok", judge(os.path.join("saved", name)))


main()
