#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alters distributed checkpoints of PyTorch 2 and lets torch.distributed.checkpoint load them: exactly
the planned elements differ by exactly the planned bits, and after undo the files are the old ones.
The same for a file of torch.save that holds types which PyTorch 1 does not know.

Needs PyTorch 2 in another interpreter: SDC_TORCH2_PYTHON, or .venv-torch2 (made by
scripts/torch2.sh). Skipped without one.
"""
import json
import os
import shutil
import subprocess
import sys

SOURCE, SDCLAB = os.environ["SDC_SOURCE_DIR"], os.environ["SDCLAB"]
PYTHON = os.environ.get("SDC_TORCH2_PYTHON") or os.path.join(SOURCE, ".venv-torch2", "bin", "python")
READER = os.path.join(SOURCE, "tests", "conform", "dcp_reader.py")
REAL = os.path.join(SOURCE, "tests", "data", "dcp")


def torch2(*args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    p = subprocess.run([PYTHON, *args], capture_output=True, text=True, timeout=300, env=env)
    assert p.returncode == 0, (args, p.stderr[-2000:])
    return p.stdout


def read(*paths):
    return [{k: (shape, bytearray.fromhex(data)) for k, (shape, data) in json.loads(line).items()}
            for line in torch2(READER, *paths).splitlines()]


def sdclab(*args):
    p = subprocess.run([SDCLAB, *args], capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, (args, p.returncode, p.stdout, p.stderr)
    return p.stdout


def files(path):
    if not os.path.isdir(path):
        return open(path, "rb").read()
    return {f: open(os.path.join(path, f), "rb").read() for f in sorted(os.listdir(path))}


def apply(state, record):
    n = 0
    for line in map(json.loads, open(record)):
        if line["type"] != "change":
            continue
        shape, data = state[line["tensor"]]
        index = json.loads(line["index"]) if isinstance(line["index"], str) else line["index"]
        elems, flat = 1, 0
        for size, i in zip(shape, index):
            elems, flat = elems * size, flat * size + i
        size = len(data) // elems
        for bit in line["bits"]:
            data[flat * size + bit // 8] ^= 1 << bit % 8
            n += 1
    return n


def main():
    if not os.path.exists(PYTHON):
        print("skipped: no PyTorch 2 (scripts/torch2.sh, or SDC_TORCH2_PYTHON)")
        return 77
    paths = []
    for name in ("single", "rows", "columns"):
        shutil.rmtree(name, ignore_errors=True)
        shutil.copytree(os.path.join(REAL, name), name)
        paths.append(name)
    torch2(READER, "write", "types.pt")
    paths.append("types.pt")
    before = read(*paths)
    listed = json.loads(sdclab("inspect", "--json", "types.pt"))["files"][0]["tensors"]
    assert {t["name"]: t["shape"] for t in listed} == {k: s for k, (s, _) in before[-1].items()}
    assert all(t["alterable"] for t in listed)
    records = {}
    for path in paths:
        out = "altered-" + path
        shutil.rmtree(out, ignore_errors=True) if os.path.isdir(out) else None
        for old in (out, out + ".sdc.jsonl"):
            if os.path.isfile(old):
                os.remove(old)
        records[path] = json.loads(sdclab("alter", path, "-o", out, "--flips", "20", "--seed", "5", "--json"))["record"]
        sdclab("verify", out)
    after = read(*["altered-" + p for p in paths])
    for path, old, new in zip(paths, before, after):
        assert old != new and apply(old, records[path]) == 20
        assert old == new, path
        sdclab("undo", records[path])
        assert files("altered-" + path) == files(path), path
        print(path, "ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
