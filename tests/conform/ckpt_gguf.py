#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files: the header's rules with a writer that breaks each, and every quantised type against the
package gguf: a bit that the tool calls weight k must change weight k and no other when the package
dequantises, and a scale's bit the weights of its block alone.

Usage: ckpt_gguf.py CKPT_TOOL
"""
import json
import os
import struct
import subprocess
import sys

import gguf
import numpy as np
from gguf_file import (ARRAY, BOOL, F32, F64, I8, I16, I32, I64, STRING, U8, U16, U32, U64, File)

TOOL = sys.argv[1]
T = gguf.GGMLQuantizationType
LITTLE = sys.byteorder == "little"


def tool(*args):
    p = subprocess.run([TOOL, *args], capture_output=True, text=True, timeout=60)
    assert p.returncode in (0, 1), (args, p.returncode, p.stderr)
    return json.loads(p.stdout)


def values(path):
    out = tool("values", path)
    assert "error" not in out, out
    return out


def refused(file, *words, error="INVALID", path="bad.gguf"):
    with open(path, "wb") as f:
        f.write(file if isinstance(file, bytes) else file.bytes())
    out = tool("values", path)
    assert out.get("error") == error, str(out)[:300]
    for w in words:
        assert w in out["message"], (w, out["message"])


# ---- quantised types ----

def element(t, k):
    """Raw value of element k as the tool read it."""
    size = {"F32": 4, "F16": 2, "U16": 2, "I16": 2}.get(t["dtype"], 1)
    return int.from_bytes(bytes.fromhex(t["values"])[k * size:(k + 1) * size], sys.byteorder)


def bits_of(t):
    return {"F32": 32, "F16": 16, "U16": 16, "I16": 16, "U4": 4, "F4": 4, "U2": 2, "U1": 1}.get(t["dtype"], 8)


def check_reading(data, t):
    """What was read is what stands at the places that were mapped."""
    n = bits_of(t)
    for k in range(t["n_elems"]):
        at, shift = t["offsets"][k], t["shifts"][k]
        raw = int.from_bytes(data[at:at + max(1, n // 8)], "little") >> shift & (1 << n) - 1
        assert raw == element(t, k), (t, k)


def quantised(kind):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, cols = 3, 2 * block
    rng = np.random.default_rng(int(kind))
    raw = rng.integers(0, 256, (rows, 2, size), dtype=np.uint8)
    path = File(tensors=[("pad", [5], 24, bytes(5)), ("w", [rows, cols], int(kind), raw.tobytes())]).save("q.gguf")
    # scales that are ordinary numbers, so that each weight depends on each of its bits
    tensors = {n.split(":")[1]: t for n, t in values(path)["tensors"].items() if n != "pad"}
    data = bytearray(open(path, "rb").read())
    for name in ("scale", "min", "sum"):
        for at in tensors[name]["offsets"] if name in tensors and kind != T.IQ1_M else []:
            if tensors[name]["dtype"] == "F8_E8M0":
                data[at] = 120 + int(rng.integers(0, 9))
            elif tensors[name]["dtype"] == "F32":
                data[at:at + 4] = np.float32(rng.uniform(0.5, 2)).tobytes()
            else:
                data[at:at + 2] = np.float16(rng.uniform(0.5, 2)).tobytes()
    if kind == T.IQ1_M:  # its f16 scale is the top four bits of each of four numbers
        for at in tensors["scale"]["offsets"][3::4]:
            data[at] = data[at] & 15 | 0x30
    with open(path, "wb") as f:
        f.write(data)
    return path, bytes(data), {n.split(":")[1]: t for n, t in values(path)["tensors"].items() if n != "pad"}


def reader(path):
    """The package's view, dequantised; a copy, since it maps the file."""
    t = [t for t in gguf.GGUFReader(path).tensors if t.name == "w"][0]
    with np.errstate(all="ignore"):
        return np.array(gguf.quants.dequantize(np.array(t.data), t.tensor_type)).reshape(-1)


def changed_by(path, data, offset, bit, before):
    flipped = bytearray(data)
    flipped[offset] ^= 1 << bit
    with open(path, "wb") as f:
        f.write(flipped)
    after = reader(path)
    return set(np.flatnonzero(before.view(np.uint32) != after.view(np.uint32)))


def check_type(kind):
    path, data, parts = quantised(kind)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    before, rng = reader(path), np.random.default_rng(1)
    covered = np.zeros(len(data) * 8, bool)
    seen = {}
    for name, t in parts.items():
        assert t["locked"] is None, (kind, name, t["locked"])
        assert t["storage"] == f"{kind.name}, {block} weights in {size} bytes"
        check_reading(data, t)
        n, per_weight = bits_of(t), t["shape"] == [3, 2 * block]
        assert per_weight or t["shape"][:2] == [3, 2], t["shape"]
        for k in range(t["n_elems"]):
            at = t["offsets"][k] * 8 + t["shifts"][k]
            assert not covered[at:at + n].any(), (kind, name, k)  # no bit belongs to two elements
            covered[at:at + n] = True
        hits, per_block = 0, t["n_elems"] // 6
        for k in rng.choice(t["n_elems"], min(t["n_elems"], 40), replace=False):
            bit = t["shifts"][k] + int(rng.integers(0, min(n, 8)))
            changed = changed_by(path, data, t["offsets"][k], bit, before)
            if per_weight:
                assert changed <= {k}, (kind, name, k, changed)
            else:
                b = k // per_block
                assert all(b * block <= c < (b + 1) * block for c in changed), (kind, name, k, changed)
            hits += bool(changed)
            seen.setdefault(name, set()).add(len(changed))
        assert hits > 0.4 * min(t["n_elems"], 40), (kind, name, hits)
    assert covered.sum() == 6 * size * 8, (kind, covered.sum())  # and every bit of a block to one
    if "trits" in seen:
        assert max(seen["trits"]) == 5
    if kind in (T.Q2_K, T.Q6_K, T.NVFP4):  # one scale for a sub-block of 16, of which zeros stay zeros
        assert 8 < max(seen["scales"]) <= 16, seen
    if "grid" in seen:
        assert 2 < max(seen["grid"]) <= (4 if "IQ3" in kind.name else 8), (kind, seen["grid"])
    if "delta" in seen:
        assert max(seen["delta"]) == (32 if kind == T.IQ1_S else 8), seen


def types():
    n = 0
    for kind in T:
        if gguf.GGML_QUANT_SIZES[kind][0] > 1 and kind.name not in ("Q8_1", "Q8_K", "Q1_0"):
            check_type(kind)
            n += 1
    assert n == 23, n
    # the package cannot dequantise these; their structs are plain
    for kind, fields in ((T.Q8_1, [("scale", "<f2"), ("sum", "<f2"), ("quants", "i1", 32)]),
                         (T.Q8_K, [("scale", "<f4"), ("quants", "i1", 256), ("sums", "<i2", 16)])):
        path, data, parts = quantised(kind)
        at = parts["scale"]["offsets"][0]
        raw = np.frombuffer(data, np.dtype(fields), count=6, offset=at)
        for name, t in parts.items():
            assert bytes.fromhex(t["values"]) == np.ascontiguousarray(raw[name]).tobytes(), (kind, name)
    for number, block, bits in ((41, 128, 1), (42, 64, 2)):  # Q1_0, Q2_0: weights one after the other
        raw = np.random.default_rng(number).integers(0, 256, (2, 18), dtype=np.uint8)
        t = values(File(tensors=[("w", [2, block], number, raw.tobytes())]).save("q.gguf"))["tensors"]
        want = [int(b) >> s & (1 << bits) - 1 for row in raw for b in row[2:] for s in range(0, 8, bits)]
        assert list(bytes.fromhex(t["w:quants"]["values"])) == want
        assert bytes.fromhex(t["w:scale"]["values"]) == raw[:, :2].tobytes()
    print("quantised types ok")


def every_type():
    """Each type of the package, in the size that its table says: the tensor behind it would be out of place."""
    kinds = [k for k in T if gguf.GGML_QUANT_SIZES[k][1]]
    assert len(kinds) >= 30, kinds
    for kind in kinds:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        if kind == T.Q8_1:  # the package has two floats in front; in ggml-common.h, which counts, they are ggml_half
            assert size == 40
            size = 36
        raw = bytes(k * 7 & 255 for k in range(6 * size))
        out = values(File(tensors=[("w", [3, 2 * block], int(kind), raw), ("end", [1], 24, b"e")]).save("e.gguf"))
        end = out["tensors"].pop("end")
        parts = {n: t for n, t in out["tensors"].items()}
        assert bytes.fromhex(end["values"]) == b"e" and out["notes"] == [], (kind, out["notes"])
        if block == 1:
            t, = parts.values()
            assert list(parts) == ["w"] and t["shape"] == [3, 2] and t["dtype"] == kind.name, (kind, parts)
            assert len(t["values"]) == 2 * 6 * size and t["stored_size"] == 6 * size, (kind, t)
            assert t["offsets"] == [t["offsets"][0] + size * k for k in range(6)], (kind, t)
        else:
            assert all(n.startswith("w:") and n != "w:bytes" for n in parts), (kind, list(parts))
            assert all(t["storage"] == f"{kind.name}, {block} weights in {size} bytes" for t in parts.values()), (kind, parts)
            # no bit is left out and none is in two parts
            assert sum(t["n_elems"] * bits_of(t) for t in parts.values()) == 8 * 6 * size, (kind, parts)
        tail = -(6 * size) % 32 + 32
        with open("e.gguf", "rb") as f:
            data = f.read()
        refused(data[:-tail - 1], "truncated", "tensor w")
    print(len(kinds), "types ok")


def package():
    """A file of the package's own writer: alignment, split parts, plain types, real quantisation."""
    rng = np.random.default_rng(2)
    a = rng.standard_normal((4, 64)).astype(np.float32)
    w = gguf.GGUFWriter("p.gguf", "test")
    w.add_custom_alignment(64)
    w.add_array("tokens", ["a", "b", "long token"])
    w.add_tensor("blk.0.attn_norm.weight", a[0])
    w.add_tensor("blk.0.ffn_up.weight", gguf.quants.quantize(a, T.Q8_0), raw_dtype=T.Q8_0)
    w.add_tensor("half", a.astype(np.float16))
    w.add_tensor("ints", np.arange(7, dtype=np.int64))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    out = values("p.gguf")
    assert out["notes"] == [] and out["files"] == ["p.gguf"] and out["sums"] == []
    t = out["tensors"]
    assert t["blk.0.attn_norm.weight"]["role"] == "norm-scale" and t["blk.0.attn_norm.weight"]["shape"] == [64]
    assert t["blk.0.ffn_up.weight:scale"]["shape"] == [4, 2] and t["blk.0.ffn_up.weight:quants"]["role"] == "weight"
    assert bytes.fromhex(t["half"]["values"]) == a.astype(np.float16).tobytes()
    assert t["ints"]["dtype"] == "I64" and bytes.fromhex(t["ints"]["values"]) == np.arange(7).tobytes()
    assert t["half"]["offsets"][0] % 64 == 0
    # the package splits a model itself
    w = gguf.GGUFWriter("s.gguf", "test", split_max_tensors=2)
    for i in range(5):
        w.add_tensor(f"t{i}", a + i)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    names = [f"s-{i:05d}-of-00003.gguf" for i in (1, 2, 3)]
    for name in names:
        out = values(name)
        assert sorted(out["files"]) == names and out["files"][0] == name
        for i in range(5):
            assert bytes.fromhex(out["tensors"][f"t{i}"]["values"]) == (a + i).tobytes()
    os.rename(names[1], "away")
    for name in (names[0], names[2]):
        got = tool("values", name)
        assert got["error"] == "INVALID" and "incomplete set" in got["message"] and names[1] in got["message"]
    os.rename("away", names[1])
    os.rename(names[0], "other.gguf")
    assert "incomplete set" in tool("values", "other.gguf")["message"]
    os.rename("other.gguf", names[0])
    print("files of the package ok")


def altered_by_program():
    """The program alters one quant and one scale; dequantised, that weight and that block differ."""
    rng = np.random.default_rng(8)
    for kind in (T.Q4_0, T.Q5_0, T.Q8_0, T.MXFP4):
        w = gguf.GGUFWriter("a.gguf", "test")
        w.add_tensor("w", gguf.quants.quantize(rng.uniform(0.5, 1, (3, 64)).astype(np.float32), kind), raw_dtype=kind)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        before = reader("a.gguf")
        for site, weights in (("w:quants[1,37]@lsb:1", {64 + 37}), ("w:scale[2,1]@lsb:3", set(range(160, 192)))):
            for name in os.listdir("."):
                if name.startswith("out."):
                    os.remove(name)
            subprocess.run([os.environ["SDCLAB"], "alter", "a.gguf", "-o", "out.gguf", "--at", site], check=True,
                           capture_output=True, timeout=60)
            after = reader("out.gguf")
            changed = set(np.flatnonzero(before.view(np.uint32) != after.view(np.uint32)))
            assert changed and changed <= weights, (kind, site, changed)
            a, b = open("a.gguf", "rb").read(), open("out.gguf", "rb").read()
            assert sum(bin(x ^ y).count("1") for x, y in zip(a, b)) == 1 and len(a) == len(b)
            subprocess.run([os.environ["SDCLAB"], "undo", "out.gguf.sdc.jsonl"], check=True, capture_output=True, timeout=60)
            assert open("out.gguf", "rb").read() == a
    print("altered by the program ok")


# ---- the header ----

PAIRS = [("u8", U8, 1), ("i8", I8, -1), ("u16", U16, 2), ("i16", I16, -2), ("u32", U32, 3), ("i32", I32, -3),
         ("f32", F32, 0.5), ("bool", BOOL, True), ("string", STRING, "text"), ("u64", U64, 4), ("i64", I64, -4),
         ("f64", F64, 0.25), ("numbers", ARRAY, (F32, [1.0, 2.0])), ("words", ARRAY, (STRING, ["a", "", "bc"])),
         ("nested", ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["x"])])), ("none", ARRAY, (I64, []))]


def plain(big=False, **how):
    order = ">" if big else "<"
    data = struct.pack(order + "6f", *range(6))
    return File(PAIRS, [("w", [2, 3], 0, data), ("n", [], 26, struct.pack(order + "i", -7)), ("e", [0, 2], 0, b""),
                        ("v", [4], 1, struct.pack(order + "4H", 1, 2, 3, 4))], big_endian=big, **how)


def header():
    for version in (2, 3):
        for big in (False, True):
            t = values(plain(big, version=version).save("a.gguf"))["tensors"]
            assert t["w"]["shape"] == [2, 3] and bytes.fromhex(t["w"]["values"]) == np.arange(6, dtype=np.float32).tobytes()
            assert t["n"]["shape"] == [] and t["e"]["n_elems"] == 0 and t["w"]["big_endian"] == big
            assert bytes.fromhex(t["v"]["values"]) == np.arange(1, 5, dtype=np.uint16).tobytes()
    blocks = struct.pack(">H", 0x3C00) + bytes(4) + bytes(range(16))
    t = values(File(tensors=[("q", [32], 6, blocks)], big_endian=True).save("a.gguf"))["tensors"]
    assert bytes.fromhex(t["q:scale"]["values"]) == struct.pack("=H", 0x3C00) and t["q:scale"]["big_endian"]
    assert "big-endian" in t["q:high"]["locked"] and t["q:quants"]["locked"] is None
    for version in (0, 1, 4, 0x10000):
        refused(File(version=version), "version", error="UNSUPPORTED")
    # a file without tensors, and one without anything
    assert values(File(PAIRS).save("a.gguf"))["tensors"] == {} and values(File().save("a.gguf"))["tensors"] == {}
    # an alignment of its own
    f = plain(alignment=4)
    f.pairs.append(("general.alignment", U32, 4))
    assert values(f.save("a.gguf"))["tensors"]["v"]["offsets"][0] % 32
    for bad in (0, 3, 48):
        f.pairs[-1] = ("general.alignment", U32, bad)
        refused(f, "general.alignment", "power of two")
    f.pairs[-1] = ("general.alignment", STRING, "4")
    refused(f, "general.alignment", "not an unsigned integer")
    refused(File([("a", U8, 1), ("a", U8, 2)]), "the key a occurs twice")
    refused(File(tensors=[("t", [1], 24, b"x"), ("t", [1], 24, b"x")]), "t occurs twice")
    assert "64 bytes" in values(File(tensors=[("n" * 80, [1], 24, b"x")]).save("a.gguf"))["notes"][0]
    print("header ok")


def damage():
    """Every error is one, and none is taken for the end of the list."""
    good = plain().bytes()
    for n in [*range(0, len(good) - 24, 7), len(good) - 25]:  # cut before the last padding
        with open("cut.gguf", "wb") as f:
            f.write(good[:n])
        out = tool("list", "cut.gguf")
        assert out.get("error") == "INVALID", (n, out)
        assert n < 10 or "truncated" in out["message"], (n, out["message"])
    # cut inside the data: the first tensor that is not whole is named
    refused(good[:plain().bytes().index(struct.pack("<6f", *range(6))) + 10], "truncated", "tensor w")
    refused(good[:-30], "truncated", "tensor v")
    assert "without the padding" in values(plain().save("a.gguf") and cut_to("a.gguf", -24))["notes"][0]
    with open("a.gguf", "wb") as f:
        f.write(good + b"more")
    assert "4 trailing bytes" in values("a.gguf")["notes"][0]

    def offset(value, *words):
        f = plain()
        f.offsets["v"] = value
        refused(f, "tensor v", *words)
    right = 64  # w and n, each padded to 32; e takes nothing
    assert values(plain().save("a.gguf"))["tensors"]["v"]["offsets"][0] == len(good) - 32
    for value in (1 << 40, (1 << 64) - 32, right + 32, right + 1, right - 32, 0):
        offset(value, "bounds", f"expected {right}")

    def tensor(shape, kind=0, data=b"", *words, error="INVALID"):
        refused(File(tensors=[("t", shape, kind, data)]), *words, error=error)
    tensor([1, 1, 1, 1, 1], 0, bytes(4), "5 dimensions")
    tensor([1 << 32, 1 << 32], 0, b"", "overflow")
    tensor([1 << 63], 0, b"", "overflow")
    tensor([(1 << 62) - 1], 0, b"", "truncated")
    tensor([(1 << 63) - 1], 28, b"", "overflow")  # its bytes, not its elements
    tensor([1 << 40], 24, b"", "truncated", "tensor t")
    tensor([33], 2, bytes(18), "rows of 33", "Q4_0 have 32")
    tensor([2, 16], 2, bytes(18), "rows of 16")
    f = plain()
    for counts in ((1 << 60, 16), ((1 << 64) - 1, 16), (4, 1 << 60), (4, (1 << 64) - 1)):
        f.counts = counts
        refused(f, "truncated")
    f.counts = (5, 16)  # one more than there are
    refused(f, error="INVALID")

    def raw(data, *words, error="INVALID"):
        refused(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + data + bytes(64), *words, error=error)
    raw(struct.pack("<Q", 1 << 63) + b"k", "truncated")  # a key past the end
    raw(struct.pack("<Q", 70000) + bytes(70000), "70000 bytes", error="LIMIT")
    raw(struct.pack("<Q", 1) + b"k" + struct.pack("<IQ", STRING, (1 << 64) - 1), "truncated")
    raw(struct.pack("<Q", 1) + b"k" + struct.pack("<I", 13), "type 13")
    raw(struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", ARRAY, U64, 1 << 61), "truncated")  # times 8 wraps
    raw(struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", ARRAY, STRING, 1 << 61), "truncated")
    raw(struct.pack("<Q", 1) + b"k" + struct.pack("<II", ARRAY, ARRAY) * 0 + struct.pack("<I", ARRAY)
        + struct.pack("<IQ", ARRAY, 1) * 8, "nested", error="LIMIT")
    raw(struct.pack("<Q", 2) + b"k\0" + struct.pack("<IB", U8, 1), "zero byte")
    print("damage ok")


def cut_to(path, n):
    with open(path, "r+b") as f:
        f.truncate(os.path.getsize(path) + n)
    return path


def unknown_type():
    f = File(tensors=[("a", [3], 24, b"abc"), ("q", [32], 4, bytes(range(20))), ("b", [3], 24, b"xyz")])
    out = values(f.save("a.gguf"))
    t = out["tensors"]
    assert bytes.fromhex(t["q:bytes"]["values"]) == bytes(range(20)) + bytes(12)  # padding and all
    assert t["q:bytes"]["storage"] == "type 4, unknown" and "q:bytes" in out["notes"][0]
    assert bytes.fromhex(t["b"]["values"]) == b"xyz" and t["b"]["locked"] is None
    f.offsets["b"] = 16
    refused(f, "tensor q", "bounds")
    print("unknown types ok")


def split():
    def part(no, count=2, total=2, name=None, tensors=None):
        pairs = [("split.no", U16, no), ("split.count", U16, count), ("split.tensors.count", I32, total)]
        return File(pairs, tensors or [(f"t{no}", [2], 24, b"ab")]).save(name or f"m-{no + 1:05d}-of-00002.gguf")

    def bad(*words):
        for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"):
            out = tool("values", name)
            assert out.get("error") == "INVALID", out
            for w in words:
                assert w in out["message"], (w, out["message"])
    part(0), part(1)
    assert len(values("m-00002-of-00002.gguf")["tensors"]) == 2
    part(1, total=3)
    bad("split.tensors.count")
    part(0, total=3)
    bad("incomplete set", "3", "2")
    part(0), part(1, count=3)
    bad("split.count is 3")
    part(1, name="m-00001-of-00002.gguf"), part(1)
    bad("split.no is 1")
    part(0), part(1, tensors=[("t0", [1], 24, b"x")])
    bad("t0 occurs twice")
    part(0), part(1)
    cut_to("m-00002-of-00002.gguf", -40)
    bad("truncated", "m-00002-of-00002.gguf")
    out = values(File([("split.count", U16, 1)], [("t", [1], 24, b"x")]).save("one.gguf"))
    assert out["files"] == ["one.gguf"]
    print("split models ok")


def large():
    """Whole, valid files of a size: no false alarm, and 64-bit places."""
    shape, at = [5 << 20, 1088], 0  # 5 GiB and more of Q8_0: 34 bytes a block of 32
    size = shape[0] * (shape[1] // 32) * 34
    f = File(tensors=[("w", shape, 8, b""), ("end", [2], 0, struct.pack("<2f", 1, 2))])
    f.offsets["end"] = size + -size % 32
    head = f.header()
    at = len(head) + -len(head) % 32
    with open("large.gguf", "wb") as out:
        out.write(head)
        out.seek(at + f.offsets["end"])
        out.write(struct.pack("<2f", 1, 2) + bytes(24))
    out = tool("list", "large.gguf")
    assert out["notes"] == [] and out["tensors"]["w:quants"]["n_elems"] == shape[0] * shape[1]
    assert tool("map", "large.gguf", "end", "1")["offset"] == at + f.offsets["end"] + 4
    assert tool("map", "large.gguf", "w:quants", str(shape[0] * shape[1] - 1))["offset"] == at + size - 1
    assert tool("map", "large.gguf", "w:scale", str(shape[0] * 34 - 1))["offset"] == at + size - 34
    cut_to("large.gguf", -30)
    got = tool("list", "large.gguf")
    assert got["error"] == "INVALID" and "truncated" in got["message"] and "tensor end" in got["message"]
    os.remove("large.gguf")
    # many experts: 6000 tensors of one model
    many = File(tensors=[(f"blk.{i}.ffn_gate_exps.{k}.weight", [2, 32], 2, bytes(36)) for i in range(60) for k in range(100)])
    assert len(tool("list", many.save("many.gguf"))["tensors"]) == 12000
    print("large files ok")


assert LITTLE, "the checks of places read little-endian numbers"
types()
every_type()
package()
altered_by_program()
header()
damage()
unknown_type()
split()
large()
