#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alters checkpoints that real TensorFlow has just written, and lets TensorFlow judge: with the
checksums mended it restores them, and exactly the planned elements differ by exactly the planned
bits; with stale checksums it raises DataLossError for the altered tensors and for no others; after
undo the files are the old ones.

Needs TensorFlow in another interpreter: SDC_TENSORFLOW_PYTHON, or .venv-tensorflow (made by
scripts/tensorflow.sh). Skipped without one.
"""
import json
import os
import shutil
import subprocess
import sys

import numpy as np

SOURCE, SDCLAB = os.environ["SDC_SOURCE_DIR"], os.environ["SDCLAB"]
PYTHON = os.environ.get("SDC_TENSORFLOW_PYTHON") or os.path.join(SOURCE, ".venv-tensorflow", "bin", "python")
HERE = os.path.join(SOURCE, "tests", "conform")
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
FLIPS = 25


def tensorflow(*args, ok=True):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    p = subprocess.run([PYTHON, *args], capture_output=True, text=True, timeout=300, env=env)
    assert (p.returncode == 0) == ok, (args, p.returncode, p.stderr[-2000:])
    return p


def sdclab(*args, codes=(0,)):
    p = subprocess.run([SDCLAB, *args], capture_output=True, text=True, timeout=120)
    assert p.returncode in codes, (args, p.returncode, p.stdout, p.stderr)
    return p


def read(prefix):
    """(name -> bytes, name -> error) as TensorFlow sees them."""
    tensorflow(os.path.join(HERE, "tensorflow_judge.py"), "read", prefix, "read.npz")
    with open("read.npz.json") as f:
        found = json.load(f)
    with np.load("read.npz") as z:
        return {n: z[str(i)] for i, n in enumerate(found["names"])}, found["errors"]


def restore(prefix, ok=True):
    return tensorflow(os.path.join(HERE, "tensorflow_judge.py"), "restore", prefix, ok=ok)


def alter(prefix, out, *more):
    result = json.loads(sdclab("alter", prefix, "-o", out, "--json", *more).stdout)
    with open(result["record"]) as f:
        lines = [json.loads(line) for line in f]
    return result["record"], [c for c in lines if c["type"] == "change"]


def apply(before, changes):
    """What TensorFlow must read."""
    after = {n: a.copy() for n, a in before.items()}
    size = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
    for c in changes:
        n = size.get(c["dtype"], 1)
        for bit in c["bits"]:
            after[c["tensor"]][c["elem"] * n + bit // 8] ^= 1 << bit % 8  # this host and the files: little-endian
    return after


def same(a, b):
    return sorted(a) == sorted(b) and all(np.array_equal(a[n], b[n]) for n in a)


def files(folder):
    out = {}
    for root, _, names in os.walk(folder):
        for n in names:
            if not n.endswith(".sdc.jsonl"):
                with open(os.path.join(root, n), "rb") as f:
                    out[os.path.relpath(os.path.join(root, n), folder)] = f.read()
    return out


def bundle(prefix, keras):
    name = os.path.basename(prefix)
    before, errors = read(prefix)
    assert not errors
    record, changes = alter(prefix, "out", "--flips", str(FLIPS), "--seed", "3")
    assert sum(len(c["bits"]) for c in changes) == FLIPS
    after, errors = read(os.path.join("out", name))
    assert not errors, errors
    assert same(after, apply(before, changes)) and not same(after, before)
    if keras:
        restore(os.path.join("out", name))
    sdclab("verify", os.path.join("out", name))

    _, stale = alter(prefix, "stale", "--flips", str(FLIPS), "--seed", "4", "--checksum", "stale")
    hit = {c["tensor"] for c in stale}
    left, errors = read(os.path.join("stale", name))
    assert set(errors) == hit and set(errors.values()) == {"DataLossError"}, (errors, hit)
    assert all(np.array_equal(left[n], before[n]) for n in before if n not in hit)
    if keras and any("model/" in n and "SLOT" not in n for n in hit):
        assert "DataLossError" in restore(os.path.join("stale", name), ok=False).stderr
    assert "checksum" in sdclab("verify", os.path.join("stale", name), codes=(1,)).stdout.lower()

    sdclab("undo", record)
    assert same(read(os.path.join("out", name))[0], before)
    original, undone = files(os.path.dirname(prefix)), files("out")
    assert all(undone[n] == original[n] for n in undone)
    shutil.rmtree("out")
    shutil.rmtree("stale")
    print(f"{prefix}: {len(changes)} elements, {len(hit)} tensors stale: ok")


def saved_model(folder):
    judge = [os.path.join(HERE, "tensorflow_judge.py"), "load"]
    before = json.loads(tensorflow(*judge, folder).stdout)
    _, changes = alter(folder, "out", "--at", f"w{SUFFIX}[1,2]@lsb:30")
    assert len(changes) == 1
    after = json.loads(tensorflow(*judge, "out").stdout)
    assert after == before[:5] + [before[5] ^ 1 << 30]
    alter(folder, "stale", "--at", f"w{SUFFIX}[1,2]@lsb:30", "--checksum", "stale")
    assert "DataLossError" in tensorflow(*judge, "stale", ok=False).stderr
    print("SavedModel: ok")


def main():
    if not os.path.exists(PYTHON):
        print("no TensorFlow: run scripts/tensorflow.sh")
        sys.exit(77)
    for name in os.listdir("."):
        shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)
    tensorflow(os.path.join(SOURCE, "tests", "data", "tensorbundle", "generate.py"), "made")
    bundle("made/slots/ckpt-1", True)
    bundle("made/adam/ckpt-1", True)
    bundle("made/names", False)
    bundle("made/types", False)
    bundle("made/merged", False)
    saved_model("made/saved_model")


main()
