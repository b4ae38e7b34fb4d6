#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch that share their bytes with others: tied, views; and tensors without elements."""
import json
import os
import subprocess
import sys
import traceback

import torch

SDCLAB = os.environ["SDCLAB"]


def run(*args, code=0, err=None):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    assert not err or err in p.stderr, f"{err!r} is not in {p.stderr!r}"
    return p.stdout


def as_json(*args):
    return json.loads(run(*args, "--json"))


def test_views_and_empty_tensors():
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    torch.save({"w": base, "tied": base, "row": base[1], "none": torch.zeros(0, 4)}, "in.pt")
    assert {c["tensor"] for c in as_json("alter", "in.pt", "--dry-run", "--tensors", "tied", "--flips", 9)["changes"]} == {"w"}
    # a view is drawn from where it is called by its own name, never by a glob
    found = as_json("alter", "in.pt", "--dry-run", "--tensors", "row", "--flips", 9)
    assert {c["tensor"] for c in found["changes"]} == {"row"} and found["support"] == 4 * 32
    assert as_json("alter", "in.pt", "--dry-run", "--tensors", "*", "--flips", 1)["support"] == 12 * 32
    for out in (["-o", "out.pt"], ["--in-place"], ["--dry-run"]):
        run("alter", "in.pt", *out, "--at", "w[1,2]@lsb:3", "--at", "row[2]@lsb:3", code=2,
            err="in.pt: row[2] and w[1,2] are the same bytes")
    run("alter", "in.pt", "--dry-run", "--at", "none[0,0]@lsb:3", code=2, err="tensor none has no elements: its dimension 0 is 0")


def main():
    failed = 0
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            try:
                test()
            except Exception:
                failed += 1
                print(f"{name}:")
                traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
