#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdclab on single safetensors files: bytes written by hand, types of other versions, files that are
not whole."""
import json
import os
import struct
import subprocess
import sys
import traceback

import numpy as np
from safetensors.numpy import load_file, save_file

SDCLAB = os.environ["SDCLAB"]


def run(*args, code=0, out=None, err=None):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    assert not out or out in p.stdout, f"{out!r} is not in {p.stdout!r}"
    assert not err or err in p.stderr, f"{err!r} is not in {p.stderr!r}"
    return p.stdout


def contents(path):
    with open(path, "rb") as f:
        return f.read()


def put(path, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    return 8 + len(text)


def fresh(*paths):
    for path in paths:
        for name in (path, path + ".sdc.jsonl"):
            if os.path.exists(name):
                os.remove(name)


def test_little_endian_on_any_host():
    """Byte for byte: the length, and bit 31 of a float in its last byte."""
    fresh("le.safetensors", "le2.safetensors")
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"n":{"dtype":"I16","shape":[1],"data_offsets":[8,10]}}'
    with open("le.safetensors", "wb") as f:
        f.write(bytes([len(header), 0, 0, 0, 0, 0, 0, 0]) + header + bytes.fromhex("0000803f db0f4940 0100"))
    run("alter", "le.safetensors", "-o", "le2.safetensors", "--at", "w[1]@msb:0", "--at", "n[0]@lsb:15")
    assert contents("le2.safetensors")[8 + len(header):] == bytes.fromhex("0000803f db0f49c0 0180")
    with open("le2.safetensors.sdc.jsonl") as f:
        changes = [json.loads(line) for line in f]
    changes = {c["tensor"]: c for c in changes if c["type"] == "change"}
    assert changes["w"]["offset"] in range(8 + len(header) + 4, 8 + len(header) + 8), changes
    assert json.loads(run("scan", "le.safetensors", "--json"))  # readable as a whole


def test_unaligned_data():
    """A header of odd length, a float64 at an odd address; in place, only the planned byte changes."""
    fresh("odd.safetensors")
    header = b'{"z":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"d":{"dtype":"F64","shape":[2],"data_offsets":[2,18]}}'
    header += b" " * (len(header) % 2 == 0)
    at = put("odd.safetensors", header, b"\1\2" + struct.pack("<2d", 1.5, -2.5))
    assert (at + 2) % 2
    before = contents("odd.safetensors")
    run("alter", "odd.safetensors", "--in-place", "--at", "d[1]@msb:0")
    assert load_file("odd.safetensors")["d"].tolist() == [1.5, 2.5]
    after = contents("odd.safetensors")
    assert len(after) == len(before)
    assert [i for i in range(len(after)) if after[i] != before[i]] == [at + 2 + 15]
    run("undo", "odd.safetensors.sdc.jsonl")
    assert contents("odd.safetensors") == before


def test_header_bytes_are_kept():
    """No metadata is needed, and none is lost: what is written differently stays so."""
    rng = np.random.default_rng(5)
    save_file({"w": rng.normal(size=(40, 9)).astype(np.float32)}, "meta.safetensors", metadata={"b": "2", "a": "1"})
    put("odd.safetensors", b'\n{ "w" : {"shape":[3],"extra":{"x":[1.50]}, "dtype":"F\\u00332","data_offsets" : [0,12]} }\n\t ', bytes(12))
    save_file({"w": np.zeros(7, np.float16)}, "plain.safetensors")
    for path in ("meta.safetensors", "odd.safetensors", "plain.safetensors"):
        before = contents(path)
        head = 8 + struct.unpack("<Q", before[:8])[0]
        for how in (["--in-place"], ["-o", "copy.safetensors"]):
            fresh("copy.safetensors", path + ".sdc.jsonl")
            with open(path, "wb") as f:
                f.write(before)
            record = json.loads(run("alter", path, *how, "--flips", 5, "--json"))["record"]
            after = contents(path if how == ["--in-place"] else "copy.safetensors")
            assert after[:head] == before[:head] and len(after) == len(before)
            assert sum(bin(x ^ y).count("1") for x, y in zip(after, before)) == 5
            os.remove(record)


def test_types_of_other_versions():
    fresh("new.safetensors", "new2.safetensors")
    at = put("new.safetensors", {"a.w": {"dtype": "BF17", "shape": [2, 2], "data_offsets": [0, 8]},
                                 "s": {"dtype": "F8_E8M0", "shape": [2], "data_offsets": [8, 10]},
                                 "n": {"dtype": "F4", "shape": [2, 2], "data_offsets": [10, 12]}}, bytes(range(12)))
    listing = json.loads(run("inspect", "--json", "new.safetensors"))["files"][0]
    tensors = {t["name"]: t for t in listing["tensors"]}
    assert tensors["a.w:bytes"]["shape"] == [8] and tensors["s"]["type"] == "F8_E8M0" and tensors["n"]["type"] == "F4"
    for word in ("bf16", "a.*=bf16"):
        listing = json.loads(run("inspect", "--json", "--as", word, "new.safetensors"))["files"][0]
        tensors = {t["name"]: t for t in listing["tensors"]}
        assert sorted(tensors) == ["a.w", "n", "s"] and tensors["a.w"]["shape"] == [2, 2], tensors
        assert "BF16" in tensors["a.w"]["type"], tensors
    run("inspect", "--as", "other=bf16", "new.safetensors", out="a.w:bytes")
    run("inspect", "--as", "f32", "new.safetensors", out="a.w:bytes")  # does not fill its bytes
    run("alter", "new.safetensors", "-o", "new2.safetensors", "--as", "bf16", "--at", "a.w[1,0]@msb:0", "--at", "n[1,1]@lsb:3",
        "--at", "n[0,0]@lsb:0")
    data = contents("new2.safetensors")[at:]
    assert data == bytes([0, 1, 2, 3, 4, 5 ^ 0x80, 6, 7, 8, 9, 10 ^ 1, 11 ^ 0x80])
    run("undo", "new2.safetensors.sdc.jsonl")
    run("diff", "new.safetensors", "new2.safetensors", out="identical")


def test_files_that_are_not_whole():
    save_file({n: np.arange(4, dtype=np.float32) for n in "abc"}, "whole.safetensors")
    data = contents("whole.safetensors")
    for cut, words in ((1, "(whole: a, b; not whole: c)"), (20, "(whole: a; not whole: b, c)"),
                       (48, "(whole: none; not whole: a, b, c)")):
        with open("cut.safetensors", "wb") as f:
            f.write(data[:-cut])
        run("inspect", "cut.safetensors", code=3, err=words)
        run("alter", "cut.safetensors", "--in-place", "--flips", 1, code=3, err=f"found {len(data) - cut}")
        run("verify", "cut.safetensors", code=1, out="truncated")
        assert contents("cut.safetensors") == data[:-cut]
    put("none.safetensors", b'{"__metadata__":{"format":"pt"},}', b"")
    run("inspect", "none.safetensors", code=3, err="not valid JSON at byte 32")
    put("none.safetensors", b'{"__metadata__":{"format":"pt"}}', b"")
    run("inspect", "none.safetensors", out="0 tensors")


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
