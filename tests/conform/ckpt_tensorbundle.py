#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow checkpoints: files of real TensorFlow (tests/data/tensorbundle) and files of a writer in
Python (tests/harness/tensorbundle.py), with every value, place and checksum computed a second time.

Usage: ckpt_tensorbundle.py CKPT_TOOL
"""
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
import tensorbundle as tb

TOOL = sys.argv[1]
REAL = os.path.join(os.environ["SDC_SOURCE_DIR"], "tests", "data", "tensorbundle")
BUNDLES = ["slots/ckpt-1", "adam/ckpt-1", "names", "types", "merged", "saved_model/variables/variables"]
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def tool(*args):
    p = subprocess.run([TOOL, *args], capture_output=True, text=True, timeout=60)
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


def members(path, out):
    """The files of the set, as paths."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    return [os.path.join(folder, f) for f in out["files"]]


def check_sums(path, out):
    """Each checksum the tool lists is what the bytes say. Returns how many were checked."""
    data = [open(f, "rb").read() for f in members(path, out)]
    checked = 0
    for s in out["sums"]:
        assert s["kind"] == "CRC-32C" and s["masked"]
        if s["unknown"]:
            assert s["places"] == []
            continue
        (file, offset), = s["places"]
        stored = struct.unpack_from("<I", data[file], offset)[0]
        covered = data[s["file"]][s["offset"]:s["offset"] + s["size"]]
        assert len(covered) == s["size"] and stored == tb.mask(tb.crc32c(covered, s["initial"])), s
        checked += 1
    return checked


def flip_and_mend(path, out, name, elem, mend):
    """What an alteration does, by the places and sums that the tool names."""
    files = members(path, out)
    t = out["tensors"][name]
    file, offset = t["files"][elem], t["offsets"][elem]
    data = [bytearray(open(f, "rb").read()) for f in files]
    data[file][offset] ^= 1
    for s in sorted(out["sums"], key=lambda s: s["level"]) if mend else []:
        if s["unknown"]:
            continue
        (to, at), = s["places"]
        struct.pack_into("<I", data[to], at, tb.mask(tb.crc32c(data[s["file"]][s["offset"]:s["offset"] + s["size"]], s["initial"])))
    for f, d in zip(files, data):
        with open(f, "wb") as g:
            g.write(d)


def compare(path, prefix):
    """Values and shapes against the reader in Python."""
    out, want, seen = values(path), tb.read_bundle(prefix), 0
    names = {v: k for k, v in tb.DTYPES.items()}
    for key, (dtype, shape, data) in want.items():
        if key[:1] == b"\0":
            continue
        t = out["tensors"][key.decode()]
        ours = {"C64": "F32", "C128": "F64"}.get(names[dtype], names[dtype])
        if names[dtype] == "STRING":
            assert t["dtype"] is None and "string" in t["locked"] and "values" not in t, t
            continue
        if t["dtype"] is None:
            assert names[dtype].startswith("F8") and t["locked"], t
            continue
        assert t["dtype"] == ours, t
        assert t["shape"] == shape + ([2] if names[dtype] in ("C64", "C128") else []), t
        assert bytes.fromhex(t["values"]) == data, key
        assert t["stored_size"] == len(data)
        seen += 1
    assert seen or not want
    return out


def real():
    with open(os.path.join(REAL, "SHA256SUMS")) as f:
        for line in f:
            digest, name = line.split()
            with open(os.path.join(REAL, name), "rb") as g:
                assert hashlib.sha256(g.read()).hexdigest() == digest, name
    for bundle in BUNDLES:
        prefix = os.path.join(REAL, bundle)
        out = compare(prefix, prefix)
        for other in (prefix + ".index", prefix + f".data-00000-of-{1 + (bundle == 'merged'):05d}"):
            same = values(other)
            assert {**same, "size": 0} == {**out, "size": 0}, other
        assert out["format"] == "tensorbundle" and check_sums(prefix, out) > 3
        assert out["notes"] == []
        # every entry with bytes, and every block: index, metaindex, one of data
        slices = 2 if bundle == "names" else 0  # three slices, and the tensor itself has none
        assert len(out["sums"]) == len(out["tensors"]) + slices + 3
        assert not any(s["unknown"] for s in out["sums"])
        initial = [s["what"] for s in out["sums"] if s["initial"]]
        assert initial == [f"tensor {n}" for n, t in out["tensors"].items() if t["dtype_text"] == "string"]
    print("real files ok")


def real_names_and_roles():
    slots = values(os.path.join(REAL, "slots"))  # the folder has one checkpoint, and marks it
    assert slots["files"] == ["ckpt-1.index", "ckpt-1.data-00000-of-00001"]  # the marker is the folder's
    t = slots["tensors"]
    kernel = t["model/layer_with_weights-0/kernel" + SUFFIX]
    assert kernel["aliases"] == ["fc1/kernel"] and kernel["shape"] == [3, 4] and kernel["role"] == "weight"
    roles = {a: (v["part"], v["role"]) for v in t.values() for a in v["aliases"]}
    assert roles["Adam/fc1/kernel/m"] == ("optimizer", "adam-m")
    assert roles["Adam/fc1/kernel/v"] == ("optimizer", "adam-v")
    assert roles["bn1/gamma"] == ("model", "norm-scale") and roles["bn1/beta"] == ("model", "norm-shift")
    assert roles["bn1/moving_mean"] == ("model", "running-mean")
    assert roles["bn1/moving_variance"] == ("model", "running-var")
    assert roles["Adam/iter"] == ("optimizer", "counter")
    assert t["save_counter" + SUFFIX]["role"] == "counter"
    adam = values(os.path.join(REAL, "adam"))["tensors"]
    roles = {a: (v["part"], v["role"]) for v in adam.values() for a in v["aliases"]}
    assert roles["Adam/m/fc1/kernel"] == ("optimizer", "adam-m")  # its key says only _variables/1
    assert roles["Adam/v/fc2/bias"] == ("optimizer", "adam-v")
    saved = values(os.path.join(REAL, "saved_model"))
    assert saved["files"] == ["variables/variables.index", "variables/variables.data-00000-of-00001",
                              "saved_model.pb", "fingerprint.pb"]
    assert saved["tensors"]["w" + SUFFIX]["aliases"] == ["w"]
    big = values(os.path.join(REAL, "names"))["tensors"]["big/table"]
    assert big["shape"] == [10, 300] and big["storage"] == "3 slices" and big["stored_size"] == 12000
    print("names and roles ok")


def mend_and_stale():
    """Mended, the second reader finds every checksum right and one element changed; stale, it raises."""
    for bundle, name in (("slots/ckpt-1", "model/layer_with_weights-0/kernel" + SUFFIX), ("names", "big/table"),
                         ("merged", "shard1/w"), ("types", "complex64")):
        for mend in (True, False):
            shutil.rmtree("work", ignore_errors=True)
            shutil.copytree(os.path.join(REAL, os.path.dirname(bundle)), "work")
            path = os.path.join("work", os.path.basename(bundle))
            before, size = values(path), {f: os.path.getsize(f) for f in members(path, values(path))}
            flip_and_mend(path, before, name, 3, mend)
            assert size == {f: os.path.getsize(f) for f in size}
            try:
                tb.read_bundle(path)
                assert mend
            except ValueError:
                assert not mend
            after = values(path)["tensors"]
            for n, t in before["tensors"].items():
                a, b = t.get("values"), after[n].get("values")
                assert (a != b) == (n == name), n
            a, b = (np.frombuffer(bytes.fromhex(x["tensors"][name]["values"] if "tensors" in x else x[name]["values"]), np.uint8)
                    for x in (before, after))
            assert (a ^ b).sum() == 1
    print("mend and stale ok")


def verify_says():
    """The command: all of a real file is under checksums that are right; a stale one names the tensor,
    the data file and both sums."""
    def verify(path, code):
        p = subprocess.run([os.environ["SDCLAB"], "verify", "--require-checksums", path], capture_output=True, text=True,
                           timeout=60)
        assert p.returncode == code, (p.returncode, p.stdout, p.stderr)
        return p.stdout
    for bundle in BUNDLES:
        assert "0 wrong" in verify(os.path.join(REAL, bundle), 0)

    def damaged(bundle, name, file, at):
        shutil.rmtree("work", ignore_errors=True)
        shutil.copytree(os.path.join(REAL, os.path.dirname(bundle)), "work")
        path = os.path.join("work", file)
        data = bytearray(open(path, "rb").read())
        data[at] ^= 4
        with open(path, "wb") as f:
            f.write(data)
        text = verify(os.path.join("work", os.path.basename(bundle)), 1)
        assert "1 wrong" in text and name in text and file in text, text
        return text
    text = damaged("merged", "tensor shard1/w ", "merged.data-00001-of-00002", 5)
    old = tb.masked(struct.pack("<6f", *range(10, 16)))
    new = bytearray(struct.pack("<6f", *range(10, 16)))
    new[5] ^= 4
    assert f"stored CRC-32C {old:08x}" in text and f"computed {tb.masked(bytes(new)):08x}" in text, text
    slots = values(os.path.join(REAL, "slots/ckpt-1"))["sums"]
    graph = [s for s in slots if s["what"] == "tensor _CHECKPOINTABLE_OBJECT_GRAPH"][0]
    damaged("slots/ckpt-1", graph["what"], "ckpt-1.data-00000-of-00001", graph["offset"] + 100)
    block = [s for s in values(os.path.join(REAL, "names"))["sums"] if s["what"].startswith("data block")][0]
    damaged("names", "data block", "names.index", block["offset"] + block["size"] - 9)  # its first restart
    print("verify ok")


def fresh(name="b"):
    shutil.rmtree("dir", ignore_errors=True)
    os.mkdir("dir")
    return os.path.join("dir", name)


def written():
    """What TensorFlow's writer does not do here: several blocks, compressed blocks, big-endian files."""
    rng = np.random.default_rng(3)
    arrays = {f"layer{i}/kernel": rng.standard_normal((3, i + 1)).astype(np.float32) for i in range(40)}
    for big in (False, True):
        for table in (tb.Table(), tb.Table(1, 100), tb.Table(3, 300, True)):
            prefix = fresh()
            b = tb.Bundle(shards=2, big_endian=big, align=64)
            for i, (name, a) in enumerate(arrays.items()):
                b.add(name, "F32", a.shape, a.astype(">f4" if big else "<f4").tobytes(), shard=i % 2)
            b.save(prefix, table)
            out = values(prefix)
            assert len(out["files"]) == 3
            for name, a in arrays.items():
                t = out["tensors"][name]
                assert bytes.fromhex(t["values"]) == a.tobytes(), name
                if table.compress:
                    assert "compressed" in t["locked"]
                else:
                    assert t["locked"] is None and t["big_endian"] == big
            blocks = [s for s in out["sums"] if "block" in s["what"]]
            assert all(s["level"] == 1 for s in blocks) and (len(blocks) == 3) == (table.block_size > 1000)
            check_sums(prefix, out)
            if not table.compress:
                flip_and_mend(prefix, out, "layer7/kernel", 5, True)
                tb.read_bundle(prefix)
    print("written files ok")


def slices():
    prefix = fresh()
    a = np.arange(7 * 300 * 2, dtype=np.float64).reshape(7, 300, 2)
    b = tb.Bundle(shards=2)
    parts = [((0, 4), (0, 100), None), ((0, 4), (100, 200), None), ((4, 3), None, None)]
    for shape_case in ("F64", "C128"):
        use = a if shape_case == "F64" else a.view(np.complex128)[..., 0]
        cut = [p if shape_case == "F64" else p[:2] for p in parts]
        data = [use[tuple(slice(None) if e is None else slice(e[0], e[0] + e[1]) for e in p)] for p in cut]
        b.add_sliced(f"v\xff/{shape_case}", shape_case, use.shape,
                     [(p, np.ascontiguousarray(d).tobytes(), i % 2) for i, (p, d) in enumerate(zip(cut, data))])
    b.save(prefix)
    out = values(prefix)
    for case in ("F64", "C128"):
        t = out["tensors"][f"v\xff/{case}"]
        assert t["shape"] == [7, 300, 2] and t["storage"] == "3 slices", t["shape"]
        assert bytes.fromhex(t["values"]) == a.tobytes()
        assert sorted(set(t["files"])) == [1, 2]
    check_sums(prefix, out)

    def one(extents_list, shape=(4, 4), skip=(), wrong=None):
        p = fresh()
        b = tb.Bundle()
        b.add_sliced("v", "F32", shape, [(e, bytes(4 * int(np.prod([n if x is None else x[1] for n, x in zip(shape, e)]))), 0)
                                         for e in extents_list])
        for e in skip:
            del b.entries[tb.slice_key(b"v", e)]
        if wrong:
            b.entries[tb.slice_key(b"v", wrong)] = tb.entry_proto(3, [4, 4], size=64)
        b.save(p)
        return p
    assert values(one([(None, None)]))["tensors"]["v"]["n_elems"] == 16
    refused(one([((0, 2), None)]), "incomplete set", "8 of 16")
    refused(one([((0, 2), None), ((2, 2), None)], skip=[((2, 2), None)]), "incomplete set", "slice")
    refused(one([((0, 3), None), ((2, 2), None)]), "overlaps")
    refused(one([((0, 5), None)], skip=[]), "not inside")
    refused(one([(None, None)], wrong=(None, None)), "another type")
    print("slices ok")


def zeros_left_out():
    """proto3 writes no zeros: an entry in data file 0 at offset 0; a checksum that is 0."""
    prefix = fresh()
    b = tb.Bundle()
    b.add("first", "F32", [2], struct.pack("<2f", 1, 2))  # shard 0, offset 0: both left out
    b.add("no_sum", "F32", [2], struct.pack("<2f", 3, 4), crc=0)  # left out
    b.add("empty", "F32", [0, 3], b"")
    b.entries[b"zero_sum"] = tb.entry_proto(1, [1], 0, 0, 4, 0, crc_always=True)  # there, and 0
    b.add_strings("words", [b"a", b"", b"bcd"])
    b.save(prefix)
    out = values(prefix)
    t = out["tensors"]
    assert t["first"]["offsets"] == [0, 4] and t["first"]["locked"] is None
    assert t["no_sum"]["locked"] == "the index has no place for its checksum" and t["no_sum"]["values"]
    assert t["empty"]["n_elems"] == 0 and t["empty"]["shape"] == [0, 3]
    assert t["zero_sum"]["locked"] is None and "shares bytes with" in (t["zero_sum"]["shared"] or t["first"]["shared"])
    sums = {s["what"]: s for s in out["sums"]}
    assert sums["tensor no_sum"]["unknown"] and not sums["tensor words"]["unknown"]
    check_sums(prefix, {**out, "sums": [s for s in out["sums"] if s["what"] != "tensor zero_sum"]})
    assert not sums["tensor zero_sum"]["unknown"] and len(sums["tensor zero_sum"]["places"]) == 1
    before = os.path.getsize(prefix + ".index")
    flip_and_mend(prefix, out, "zero_sum", 0, True)  # puts a sum in place of the zero
    assert os.path.getsize(prefix + ".index") == before
    print("zeros ok")


def which_bundle():
    """A folder with several prefixes: all are listed, and only the marker chooses."""
    prefix = fresh("ckpt-5")
    for n in ("ckpt-5", "ckpt-7"):
        b = tb.Bundle()
        b.add("w", "F32", [1], struct.pack("<f", float(n[-1])))
        b.save(os.path.join("dir", n))
    refused("dir", "ckpt-5, ckpt-7", "give one", error="USAGE")

    def marker(name):
        with open("dir/checkpoint", "w") as f:
            f.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "ckpt-5"\n')
    marker("ckpt-7")
    assert values("dir")["tensors"]["w"]["values"] == struct.pack("<f", 7).hex()
    assert values(prefix)["tensors"]["w"]["values"] == struct.pack("<f", 5).hex()
    for elsewhere in ("/somewhere/else/ckpt-7", "../dir/ckpt-7", "ckpt-9"):  # no name of this folder
        marker(elsewhere)
        refused("dir", "ckpt-5, ckpt-7", elsewhere, "not here", error="USAGE")
    for f in os.listdir("dir"):
        if f.startswith("ckpt-7"):
            os.remove(os.path.join("dir", f))
    out = values("dir")
    assert "ckpt-9" in out["notes"][0] and out["tensors"]["w"]["values"] == struct.pack("<f", 5).hex()
    refused("dir/nothing", "no such file", error="NOT_FOUND")
    print("folders ok")


def damage():
    prefix = fresh()
    b = tb.Bundle(shards=2)
    b.add("w", "F32", [8], bytes(32))
    b.add("v", "F32", [8], bytes(32), shard=1)
    b.save(prefix)
    with open(prefix + ".index", "rb") as f:
        index = f.read()

    def put(data, name=".index"):
        with open(prefix + name, "wb") as f:
            f.write(data)
    for n, words in ((0, ["truncated", "empty"]), (10, ["truncated", "10 bytes"]), (47, ["truncated", "47 bytes"]),
                     (48, ["not a table"])):
        put(index[:n])
        for path in (prefix, prefix + ".index", prefix + ".data-00001-of-00002", "dir"):
            refused(path, *words)
    put(tb.Table().write({}))
    refused(prefix, "empty, not even a header")
    put(tb.Table().write({b"w": b""}))
    refused(prefix, "no header")
    put(index)
    assert len(values(prefix)["tensors"]) == 2
    shutil.move(prefix + ".data-00001-of-00002", "away")
    refused(prefix, "incomplete set", "b.data-00001-of-00002")
    shutil.move("away", prefix + ".data-00001-of-00002")
    put(bytes(31), ".data-00000-of-00002")
    refused(prefix, "truncated", "tensor w", "31")
    put(bytes(32), ".data-00000-of-00002")
    os.rename(prefix + ".index", "away")
    refused(prefix, "incomplete set", "b.index")
    refused(prefix + ".data-00000-of-00002", "incomplete set", "b.index")
    os.rename("away", prefix + ".index")

    def entry(value, *words, error="INVALID"):
        put(tb.Table().write({b"": b.header, b"w": value}))
        refused(prefix, *words, error=error)
    e = tb.entry_proto
    entry(e(1, [8], 2, 0, 32), "data file 2 of 2")
    entry(e(1, [8], 0, 1 << 40, 32), "truncated, or out of bounds")
    entry(e(1, [8], 0, (1 << 64) - 16, 32), "out of bounds")  # wraps
    entry(e(1, [8], 0, 0, 28), "shape and size differ")
    entry(e(1, [1 << 62, 1 << 62], 0, 0, 32), "overflow")
    entry(e(1, [(1 << 64) - 1], 0, 0, 32), "negative")
    entry(e(1, [1] * 33, 0, 0, 32), "dimensions", error="LIMIT")
    entry(e(1, [8], 0, 0, 32)[:-1], "damaged")
    entry(b"\x0b", "damaged")  # a group
    entry(tb.f_varint(1, 1) + tb.f_bytes(2, tb.f_varint(3, 1)), "unknown rank")
    put(tb.Table().write({b"": tb.header_proto(1 << 31), b"w": e(1, [8], 0, 0, 32)}))
    refused(prefix, "incomplete set")
    put(tb.Table().write({b"": tb.f_varint(2, 5), b"w": b""}))
    refused(prefix, "header is damaged")
    # variants: what their checksum covers is not known here
    b.add("thing", "VARIANT", [], b"\x01abc")
    b.save(prefix)
    assert {s["what"]: s["unknown"] for s in values(prefix)["sums"]}["tensor thing"]
    # strings whose lengths say more or less than there is, or have no end
    for lengths in (b"\x09", b"\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"):
        b.add("words", "STRING", [1], lengths + bytes(8))
        b.save(prefix)
        refused(prefix, "tensor words", "lengths")  # when checksums are asked for
    del b.entries[b"words"], b.entries[b"thing"]
    # a damaged object graph is a note: tensors still have their keys
    b.add("_CHECKPOINTABLE_OBJECT_GRAPH", "STRING", [], b"\x05\0\0\0\0\xff\xff\xff\xff\xff")
    b.save(prefix)
    assert "damaged" in values(prefix)["notes"][0]
    assert values("dir")["format"] == "tensorbundle"
    print("damage ok")


def beyond_4_gib():
    """64-bit offsets: a tensor that begins behind 4 GiB, in a file with a hole."""
    prefix = fresh()
    b = tb.Bundle()
    at = (5 << 30) + 12
    b.entries[b"far"] = tb.entry_proto(1, [3], 0, at, 12, tb.masked(struct.pack("<3f", 1, 2, 3)))
    b.entries[b"all"] = tb.entry_proto(2, [(5 << 30) // 8], 0, 0, 5 << 30, 1)
    b.save(prefix)
    with open(prefix + ".data-00000-of-00001", "r+b") as f:
        f.seek(at)
        f.write(struct.pack("<3f", 1, 2, 3))
    out = values(prefix)["tensors"]
    assert out["far"]["offsets"] == [at, at + 4, at + 8] and out["far"]["values"] == struct.pack("<3f", 1, 2, 3).hex()
    assert tool("map", prefix, "all", str((5 << 30) // 8 - 1))["offset"] == (5 << 30) - 8
    os.remove(prefix + ".data-00000-of-00001")
    print("beyond 4 GiB ok")


real()
real_names_and_roles()
mend_and_stale()
verify_says()
written()
slices()
zeros_left_out()
which_bundle()
damage()
beyond_4_gib()
