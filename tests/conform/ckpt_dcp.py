#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's distributed checkpoints: folders of the real library (tests/data/dcp) and folders made
byte by byte. From an element of the whole tensor to its byte in a chunk, checksums inside each
archive, incomplete sets, and metadata that would harm a trusting reader.

Usage: ckpt_dcp.py CKPT_TOOL
"""
import hashlib
import importlib.util
import io
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import types
import zlib

import torch

import torch_files as tf
from limits import child_seconds, memory_limit

TOOL = sys.argv[1]
REAL = os.path.join(os.environ["SDC_SOURCE_DIR"], "tests", "data", "dcp")


def expected():
    """The table of generate.py, without the parts of PyTorch that are not here."""
    text = open(os.path.join(REAL, "generate.py")).read()
    scope = {"torch": torch, "os": os, "sys": sys}
    exec(text[text.index("EXPECTED = "):text.index("def state(")], scope)
    return scope["EXPECTED"], scope["value"]


def tool(*args, memory=None):
    limit = memory_limit(TOOL, memory) if memory else None
    p = subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, timeout=100, preexec_fn=limit)
    assert p.returncode in (0, 1), (args, p.returncode, p.stderr)
    return json.loads(p.stdout)


def values(path):
    out = tool("values", path)
    assert "error" not in out, out
    return out


def refused(path, *words, error="INVALID"):
    out = tool("values", path)
    assert out.get("error") == error, (path, str(out)[:300])
    for w in words:
        assert w in out["message"], (w, out["message"])


def raw(t):
    return t.contiguous().view(torch.int16).numpy().tobytes() if t.dtype == torch.bfloat16 else t.contiguous().numpy().tobytes()


def check_places(folder, out, t):
    """The file has at each mapped place what is read there."""
    data = [open(os.path.join(folder, f), "rb").read() for f in out["files"]]
    got = bytes.fromhex(t["values"])
    size = len(got) // t["n_elems"]
    for k, (file, at) in enumerate(zip(t["files"], t["offsets"])):
        assert data[file][at:at + size] == got[k * size:(k + 1) * size], k
    places = set(zip(t["files"], t["offsets"]))
    assert len(places) == t["n_elems"], "no two elements are in one place"


def check_sums(folder, out):
    data = [open(os.path.join(folder, f), "rb").read() for f in out["files"]]
    for s in out["sums"]:
        assert s["kind"] == "CRC-32" and len(s["places"]) == 2 and not s["unknown"], s
        for file, at in s["places"]:
            assert file == s["file"]
            assert struct.unpack_from("<I", data[file], at)[0] == zlib.crc32(data[file][s["offset"]:s["offset"] + s["size"]]), s


def test_real():
    with open(os.path.join(REAL, "SHA256SUMS")) as f:
        for line in f:
            digest, name = line.split()
            assert hashlib.sha256(open(os.path.join(REAL, name), "rb").read()).hexdigest() == digest, name
    table, value = expected()
    for name, (ranks, tensors) in table.items():
        folder = os.path.join(REAL, name)
        out = values(folder)
        assert out["format"] == "pytorch-dcp" and out["files"][0] == ".metadata" and len(out["files"]) == 1 + ranks
        assert set(out["tensors"]) == set(tensors)
        for n, (seed, shape, dtype) in tensors.items():
            t = out["tensors"][n]
            assert t["shape"] == list(shape) and bytes.fromhex(t["values"]) == raw(value(seed, shape, dtype)), n
            check_places(folder, out, t)
        check_sums(folder, out)
        # each file of the set stands for it
        for other in (".metadata", "__0_0.distcp"):
            same = values(os.path.join(folder, other))
            assert same["tensors"] == out["tensors"]
    single = values(os.path.join(REAL, "single"))
    assert single["tensors"]["model.weight"]["aliases"] == ["model/weight"]
    assert single["tensors"]["model.weight"]["role"] == "weight"
    assert any("2 items were saved as Python objects" in n and "epoch, note" in n for n in single["notes"])
    assert not any("outside PyTorch" in n for n in single["notes"])
    # four rows of 3, 3, 3 and 1, in a file each; two columns
    w = values(os.path.join(REAL, "rows"))["tensors"]["w"]
    assert [w["files"][6 * r] for r in (0, 2, 3, 5, 6, 8, 9)] == [w["files"][0]] * 2 + [w["files"][18]] * 2 + [w["files"][36]] * 2 + [w["files"][54]]
    assert len(set(w["files"])) == 4 and "4 chunks" in w["storage"]
    w = values(os.path.join(REAL, "columns"))["tensors"]["w"]
    assert len(set(w["files"])) == 2 and len({w["files"][9 * i + 4] for i in range(4)}) == 1
    # a shard of a transposed tensor keeps its strides: neighbours of a column are side by side
    t = values(os.path.join(REAL, "columns"))["tensors"]["turned"]
    assert t["offsets"][8] - t["offsets"][0] == 4 and t["offsets"][1] - t["offsets"][0] == 24


def test_flips_in_real_files():
    """PyTorch loads the archive of the chunk with the one element changed; CRCs are as they were told."""
    for name, tensor, elements in [("rows", "w", (0, 17, 18, 59)), ("columns", "turned", (0, 9, 47))]:
        shutil.rmtree("flip", ignore_errors=True)
        shutil.copytree(os.path.join(REAL, name), "flip")
        out = values("flip")
        t = out["tensors"][tensor]
        for k in elements:
            path = os.path.join("flip", out["files"][t["files"][k]])
            old = open(path, "rb").read()
            data = bytearray(old)
            data[t["offsets"][k]] ^= 1
            for s in out["sums"]:
                if s["file"] == t["files"][k]:
                    for _, at in s["places"]:
                        struct.pack_into("<I", data, at, zlib.crc32(data[s["offset"]:s["offset"] + s["size"]]))
            assert sum(a != b for a, b in zip(old, data)) == 9  # the byte and two CRCs
            ends = [i + 22 for i in range(len(data)) if data[i:i + 4] == b"PK\5\6"]
            changed = 0
            for begin, end in zip([0] + ends, ends):
                a, b = (torch.load(io.BytesIO(x[begin:end])) for x in (old, bytes(data)))
                changed += int((a != b).sum()) if isinstance(a, torch.Tensor) else 0
            assert changed == 1, (k, changed)
            open(path, "wb").write(data)
            after = bytes.fromhex(values("flip")["tensors"][tensor]["values"])
            assert [i // 4 for i in range(len(after)) if after[i] != bytes.fromhex(t["values"])[i]] == [k]
            open(path, "wb").write(old)


def blob(data, shape, stride=None, offset=0, cls="torch.FloatStorage", item=4, **how):
    obj = tf.tensor("0", len(data) // item, shape, stride, offset, cls)
    return tf.write_torch(None, obj, {"0": data}, order=b"little", **how)


def make(folder, tensors, blobs, planner=None, files=None, **more):
    """tensors: {fqn: metadata}; blobs: [(fqn, chunk offsets, file, bytes, transforms)]."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    content, storages = {}, []
    for fqn, at, file, data, *transforms in blobs:
        before = content.setdefault(file, b"")
        storages.append((tf.index(fqn, at), tf.info(file, len(before), len(data), *transforms)))
        content[file] = before + data
    for file, data in content.items():
        if files is None or file in files:
            open(os.path.join(folder, file), "wb").write(data)
    open(os.path.join(folder, ".metadata"), "wb").write(tf.metadata(tensors, storages, planner, **more))


def floats(n, first=0):
    return struct.pack(f"<{n}f", *range(first, first + n))


def simple(folder, **more):
    make(folder, {"w": tf.tensor_metadata("float32", (4, 3), [((0, 0), (2, 3)), ((2, 0), (2, 3))])},
         [("w", (0, 0), "__0_0.distcp", blob(floats(6), (2, 3))), ("w", (2, 0), "__1_0.distcp", blob(floats(6, 6), (2, 3)))], **more)


def test_made():
    simple("a")
    out = values("a")
    assert bytes.fromhex(out["tensors"]["w"]["values"]) == floats(12) and out["notes"] == []
    check_places("a", out, out["tensors"]["w"])
    check_sums("a", out)
    # strides and offsets inside a chunk, a prefix of other bytes, chunks in any order
    part = struct.pack("<8f", 99, 6, 9, 7, 10, 8, 11, 99)
    make("b", {"w": tf.tensor_metadata("float32", (4, 3), [((2, 0), (2, 3)), ((0, 0), (2, 3))])},
         [("x", None, "__0_0.distcp", b"raw bytes of an object"), ("w", (2, 0), "__0_0.distcp", blob(part, (2, 3), (1, 2), 1)),
          ("w", (0, 0), "__0_0.distcp", blob(floats(6), (2, 3)))])
    out = values("b")
    assert bytes.fromhex(out["tensors"]["w"]["values"]) == floats(12)
    check_places("b", out, out["tensors"]["w"])
    # an object that holds tensors, and one that would run code
    evil = tf.write_torch(None, tf.dumps({"rng": tf.tensor("0", 2, (2,)), "e": tf.call("posix.system", "touch ran")}), {"0": floats(2)})
    make("c", {"o": tf.new(tf.META + "BytesStorageMetadata", {})}, [("o", None, "__0_0.distcp", evil)])
    out = values("c")
    assert bytes.fromhex(out["tensors"]["o/rng"]["values"]) == floats(2) and not os.path.exists("ran")
    assert any("posix.system" in n for n in out["notes"])
    # scalars, complex numbers, types without a storage class
    make("d", {"s": tf.tensor_metadata("int64", (), [((), ())]), "c": tf.tensor_metadata("complex64", (2, 2), [((0, 0), (1, 2)), ((1, 0), (1, 2))])},
         [("s", (), "f.distcp", blob(struct.pack("<q", 7), (), cls="torch.LongStorage", item=8)),
          ("c", (0, 0), "f.distcp", blob(floats(4), (1, 2), cls="torch.ComplexFloatStorage", item=8)),
          ("c", (1, 0), "f.distcp", blob(floats(4, 4), (1, 2), cls="torch.ComplexFloatStorage", item=8))])
    t = values("d")["tensors"]
    assert bytes.fromhex(t["s"]["values"]) == struct.pack("<q", 7)
    assert t["c"]["shape"] == [2, 2, 2] and bytes.fromhex(t["c"]["values"]) == floats(8)


def test_incomplete():
    simple("a")
    os.remove("a/.metadata")
    refused("a", "incomplete set", ".metadata is missing")
    refused("a/__0_0.distcp", "incomplete set", ".metadata is missing")
    open("a/.metadata.tmp", "wb").write(b"\x80\x04")
    refused("a", "unfinished save")
    simple("a", files=["__0_0.distcp"])
    refused("a", "incomplete set", "__1_0.distcp is missing")
    simple("a")
    os.truncate("a/__1_0.distcp", 300)
    refused("a", "__1_0.distcp", "truncated")
    simple("a")
    os.truncate("a/.metadata", 200)
    refused("a", ".metadata", "truncated", "200")
    open("a/.metadata", "wb").write(b"\x80\x04N.")
    refused("a", "state_dict_metadata")
    make("b", {"w": tf.tensor_metadata("float32", (4, 3), [((0, 0), (2, 3)), ((2, 0), (2, 3))])},
         [("w", (0, 0), "f.distcp", blob(floats(6), (2, 3)))])
    refused("b", "incomplete set", "a chunk of tensor w")


def test_first_error_is_told():
    """Where the metadata is damaged, that is said with its place, whatever else is wrong or missing."""
    simple("a")
    data = open("a/.metadata", "rb").read()
    at = data.index(b"storage_data") + len("storage_data")
    for missing in (False, True):
        if missing:
            os.remove("a/__1_0.distcp")
        open("a/.metadata", "wb").write(data[:at] + b"\xff" + data[at + 1:])
        out = tool("list", "a")
        assert out["error"] == "INVALID" and out["offset"] == at and "a/.metadata" in out["message"], out
        assert "__1_0" not in out["message"] and "missing" not in out["message"], out
    open("a/.metadata", "wb").write(data)
    refused("a", "__1_0.distcp is missing")


def test_refused_and_locked():
    one = [((0, 0), (2, 3))]
    good = ("w", (0, 0), "f.distcp", blob(floats(6), (2, 3)))
    meta = {"w": tf.tensor_metadata("float32", (2, 3), one)}
    make("a", meta, [("w", (0, 0), "f.distcp", b"\x28\xb5\x2f\xfd" + bytes(50), ["stream.zstd"])])
    t = values("a")["tensors"]["w"]
    assert "encoded" in t["locked"] and "zstd" in t["locked"] and "unreadable" in t
    make("a", {"w": tf.tensor_metadata("float32", (4, 3), one)}, [good])
    assert "do not cover" in values("a")["tensors"]["w"]["locked"]
    make("a", {"w": tf.tensor_metadata("float32", (3, 3), [((0, 0), (2, 3)), ((1, 0), (2, 3))])},
         [good, ("w", (1, 0), "f.distcp", blob(floats(6), (2, 3)))])
    assert "overlap" in values("a")["tensors"]["w"]["locked"]
    make("a", {"w": tf.tensor_metadata("float32", (2, 3), [((1, 0), (2, 3))])}, [("w", (1, 0), "f.distcp", blob(floats(6), (2, 3)))])
    refused("a", "out of bounds")
    make("a", meta, [("w", (0, 0), "f.distcp", blob(floats(6), (3, 2)))])
    refused("a", "no tensor of its sizes")
    make("a", {"w": tf.tensor_metadata("float64", (2, 3), one)}, [good])
    refused("a", "another type")
    make("a", meta, [("w", (0, 0), "f.distcp", blob(floats(6), (2, 3), (4, 1)))])
    refused("a", "out of bounds")
    make("a", meta, [("w", (0, 0), "f.distcp", b"PK\5\6" * 20)])
    refused("a", "f.distcp")
    for path in ("../out.distcp", "/tmp/out.distcp", "x/../../out.distcp"):
        shutil.rmtree("a", ignore_errors=True)
        os.makedirs("a")
        open("out.distcp", "wb").write(good[3])
        open("a/.metadata", "wb").write(tf.metadata(meta, [(tf.index("w", (0, 0)), tf.info(path, 0, len(good[3])))]))
        refused("a", "unsafe path")
    # the archive's end is looked for inside its bytes alone
    two = blob(floats(6), (2, 3))
    make("a", meta, [("w", (0, 0), "f.distcp", two[:-22]), ("x", None, "f.distcp", two)])
    refused("a", "truncated")


def test_nothing_runs():
    for call in ("posix.system", "builtins.eval", "builtins.getattr"):
        simple("a", more={"storage_meta": tf.call(call, "touch ran")})
        out = values("a")
        assert any(call in n for n in out["notes"]) and not os.path.exists("ran")
        assert bytes.fromhex(out["tensors"]["w"]["values"]) == floats(12)


def test_many():
    """Time grows with the metadata, not with its square; memory is bounded. All chunks are one archive."""
    times = {}
    for n in (4_000, 40_000):
        data = blob(floats(1), (1,))
        one = tf.info("f.distcp", 0, len(data))
        memo = b"r\xff\x00\x00\x00"
        entries = b"".join(tf.put(tf.index("w", (i,))) + b"j\xff\x00\x00\x00" for i in range(n))
        storages = tf.Raw(b"}(" + tf.put(tf.index("x")) + tf.put(one) + memo + entries + b"u")
        tensors = {"w": tf.tensor_metadata("float32", (n,), [((i,), (1,)) for i in range(n)])}
        shutil.rmtree("many", ignore_errors=True)
        os.makedirs("many")
        open("many/f.distcp", "wb").write(data)
        state = {"state_dict_metadata": tensors, "planner_data": {}, "storage_data": storages, "storage_meta": None}
        open("many/.metadata", "wb").write(tf.dumps(tf.new(tf.META + "Metadata", state), 4))
        start = child_seconds()
        out = tool("list", "many", memory=1 << 30)
        times[n] = child_seconds() - start
        assert out["tensors"]["w"]["storage"] == f"{n} chunks", out
    assert times[40_000] < 30 * times[4_000] + 1, times


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "ok", flush=True)


if __name__ == "__main__":
    main()
