#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdclab on GGUF files that are not whole: nothing is altered, every command says so by its exit code
and names the tensor; a name that is not there is told apart from bytes that are not there."""
import os
import struct
import subprocess
import sys

from gguf_file import File

SDCLAB = os.environ["SDCLAB"]


def run(*args, code=0, out="", err=""):
    p = subprocess.run([SDCLAB, *args], capture_output=True, text=True, timeout=60)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    assert out in p.stdout and err in p.stderr, (args, p.stdout, p.stderr)
    return p


def main():
    for name in os.listdir("."):
        os.remove(name)
    weights = [struct.pack("<512f", *range(512)), struct.pack("<H", 0x3c00) * 9 * 64, bytes(512)]
    file = File(tensors=[("a", [16, 32], 0, weights[0]), ("q", [64, 32], 2, weights[1]), ("c", [512], 24, weights[2])])
    data = file.bytes()
    with open("whole.gguf", "wb") as f:
        f.write(data)
    run("verify", "whole.gguf")
    run("inspect", "whole.gguf", out="q:quants")
    run("alter", "whole.gguf", "--in-place", "--at", "nothing[0]@lsb:0", code=2, err="no tensor is named 'nothing'")
    assert "truncated" not in run("alter", "whole.gguf", "--in-place", "--at", "nothing[0]@lsb:0", code=2).stderr
    start = data.index(weights[0])
    for cut, first in ((start + 100, "a"), (start + 2048 + 700, "q"), (len(data) - 512, "c"), (len(data) - 1, "c")):
        with open("cut.gguf", "wb") as f:
            f.write(data[:cut])
        for args in (["inspect", "cut.gguf"], ["scan", "cut.gguf"], ["diff", "whole.gguf", "cut.gguf"], ["seal", "cut.gguf"],
                     ["alter", "cut.gguf", "-o", "out.gguf", "--flips", "1"], ["alter", "cut.gguf", "--in-place", "--flips", "1"],
                     ["predict", "cut.gguf"]):
            p = run(*args, code=3, err=f"tensor {first}")
            assert "truncated" in p.stderr, p.stderr
        run("verify", "cut.gguf", code=1, out=f"tensor {first}")
        with open("cut.gguf", "rb") as f:
            assert f.read() == data[:cut]
        assert sorted(os.listdir(".")) == ["cut.gguf", "whole.gguf"], os.listdir(".")
    # what is not there, what is damaged, and what is something else have three exit codes
    run("verify", "none.gguf", code=4, err="none.gguf: no such file")
    with open("text.gguf", "w") as f:
        f.write("no checkpoint at all, whatever its name says\n")
    run("verify", "text.gguf", code=3, err="not recognised")


main()
