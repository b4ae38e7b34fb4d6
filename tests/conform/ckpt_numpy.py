#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NumPy's .npy and .npz against NumPy itself: every type and layout is read as np.load reads it, the
mapped place of an element is where NumPy finds it, checksums are where zipfile looks, and damaged
files are refused by name.

Usage: ckpt_numpy.py CKPT_TOOL
"""
import ast
import io
import json
import os
import struct
import subprocess
import sys
import time
import zipfile
import zlib

import numpy as np

from zipmaker import Member, make

TOOL = sys.argv[1]


def tool(*args):
    p = subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, timeout=100)
    assert p.returncode in (0, 1), (args, p.returncode, p.stderr)
    return json.loads(p.stdout)


def good(*args):
    out = tool(*args)
    assert "error" not in out, out
    return out


def refused(data, *words, error="INVALID", path="bad.npy"):
    with open(path, "wb") as f:
        f.write(data)
    out = tool("values", path)
    assert out.get("error") == error, str(out)[:300]
    for w in words:
        assert w in out["message"], (w, out["message"])


def fortran(a):
    return np.array(a, order="F")  # asfortranarray makes a scalar an array of one


def native(a):
    return np.ascontiguousarray(a.astype(a.dtype.newbyteorder("="))).reshape(a.shape)


def check_tensor(t, array, path=None):
    """array: what NumPy says this tensor holds, numbers only."""
    assert t["locked"] is None, t
    assert t["shape"] == list(array.shape), (t["shape"], array.shape)
    assert bytes.fromhex(t["values"]) == native(array).tobytes(), t
    if path is None or not t.get("offsets"):
        return
    data = open(path, "rb").read()
    size = array.dtype.itemsize
    for at, x in zip(t["offsets"], native(array).reshape(-1)):
        raw = data[at:at + size]
        assert (raw[::-1] if t["big_endian"] else raw) == x.tobytes()


def npy(array, version=None, fortran=None):
    b = io.BytesIO()
    np.lib.format.write_array(b, array, version)
    return b.getvalue()


def with_header(text, payload=b"", version=1):
    text = text if isinstance(text, bytes) else text.encode()
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + payload


# ---- single arrays ----

KINDS = {"f2": "F16", "f4": "F32", "f8": "F64", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64",
         "u1": "U8", "u2": "U16", "u4": "U32", "u8": "U64", "b1": "BOOL"}


def check_types():
    rng = np.random.default_rng(1)
    for kind, name in KINDS.items():
        for order in "<>":
            dtype = np.dtype(order + kind)
            for shape in ((), (7,), (3, 5), (2, 1, 3, 2), (3, 0, 2)):
                n = int(np.prod(shape)) * dtype.itemsize
                raw = rng.integers(0, 2 if kind == "b1" else 256, n, dtype="u1")
                a = raw.view(dtype).reshape(shape)
                for f in (a, fortran(a)):
                    np.save("a.npy", f)
                    out = good("values", "a.npy")
                    assert out["format"] == "npy" and out["notes"] == [] and out["sums"] == []
                    assert list(out["tensors"]) == ["array"]
                    t = out["tensors"]["array"]
                    assert t["dtype"] == name and t["stored_size"] == n, t
                    assert t["dtype_text"] == dtype.str
                    check_tensor(t, a, "a.npy")
    # the first index is the fastest: this storage and no other
    np.save("f.npy", fortran(np.arange(6, dtype="u1").reshape(2, 3)))
    t = good("values", "f.npy")["tensors"]["array"]
    assert "Fortran order" in t["storage"]
    assert [o - t["offsets"][0] for o in t["offsets"]] == [0, 2, 4, 1, 3, 5]


def check_complex_and_time():
    for kind, part in (("c8", "F32"), ("c16", "F64")):
        for order in "<>":
            a = (np.arange(6) + 1j * np.arange(6, 12)).astype(order + kind).reshape(2, 3)
            for f in (a, fortran(a)):
                np.save("c.npy", f)
                t = good("values", "c.npy")["tensors"]["array"]
                assert t["dtype"] == part and t["shape"] == [2, 3, 2]
                check_tensor(t, np.stack([a.real, a.imag], -1), "c.npy")
    when = np.array(["2022-11-02", "NaT", "1969-12-31"], "M8[D]")
    for a in (when, when[1:] - when[:-1]):
        np.save("t.npy", a)
        t = good("values", "t.npy")["tensors"]["array"]
        assert t["dtype"] == "I64" and t["dtype_text"] == a.dtype.str
        check_tensor(t, a.view("i8"), "t.npy")


def check_locked():
    for a, why in ((np.array(["ab", "c"]), "strings"), (np.array([b"ab"]), "strings"),
                   (np.array([1.5], np.longdouble), "extended"),
                   (np.array([1.5], np.clongdouble), "extended"),
                   (np.zeros(3, "V2"), "bf16"), (np.zeros(3, "V1"), "fp8"),
                   (np.zeros(3, "V12"), "unknown meaning")):
        np.save("l.npy", a)
        t = good("values", "l.npy")["tensors"]["array"]
        assert why in t["locked"] and t["dtype"] is None and t["shape"] == list(a.shape), t
    np.save("o.npy", np.array([None, {"a": 1}], object), allow_pickle=True)
    t = good("values", "o.npy")["tensors"]["array"]
    assert "pickle" in t["locked"], t
    mixed = np.zeros(2, [("w", "<f4"), ("o", object)])
    np.save("o.npy", mixed, allow_pickle=True)
    out = good("values", "o.npy")["tensors"]
    assert all("pickle" in t["locked"] for t in out.values()) and len(out) == 2, out
    # two bytes of unknown meaning, named by the user
    bits = np.array([[0x3f80, 0x7fc0, 0xff80], [0, 0x8000, 0x4049]], "<u2")
    np.save("v.npy", bits.view("V2"))
    t = good("--as", "array=BF16", "values", "v.npy")["tensors"]["array"]
    assert t["dtype"] == "BF16"
    check_tensor(t, bits, "v.npy")
    assert good("--as", "other=BF16", "values", "v.npy")["tensors"]["array"]["locked"]
    np.save("v.npy", bits.view("V1"))
    t = good("--as", "*=F8_E4M3", "values", "v.npy")["tensors"]["array"]
    assert t["dtype"] == "F8_E4M3" and t["shape"] == [2, 6]


def leaves(a, name):
    """Every number of a structured array with its name as sdclab spells it."""
    if a.dtype.names is None:
        if a.dtype.kind == "c":
            a = np.stack([a.real, a.imag], -1)
        if a.dtype.kind in "fiub":
            yield name, a
        return
    for f in a.dtype.names:
        yield from leaves(a[f], f"{name}:{f}")


def check_structured():
    inner = np.dtype([("x", "<f4"), ("y", ">i2", (3,))])
    types = [
        np.dtype([("w", "<f4"), ("big", ">f8"), ("n", "<i2")]),
        np.dtype([("a", "u1"), ("b", "<f8")], align=True),
        np.dtype([("a", "<c8", (2, 2)), ("in", inner, (2,)), ("s", "S3"), ("deep", [("in", inner)])]),
        np.dtype([(("a title", "name"), "<f4"), (("other", "b"), "<i4")]),
        np.dtype([("gr\u00f6\u00dfe", "<f4"), ("\u91cd\u307f", "<f4")]),
        np.dtype([("it's", "<f4"), ('quo"te\\', "<i8")]),
        np.dtype([(f"field{i:04d}", "<f4") for i in range(700)]),  # over 10,000 characters
    ]
    rng = np.random.default_rng(2)
    for dtype in types:
        for shape in ((), (5,), (2, 3)):
            a = np.frombuffer(rng.integers(0, 256, int(np.prod(shape)) * dtype.itemsize,
                                           dtype="u1").tobytes(), dtype).reshape(shape)
            for f in (a, fortran(a)):
                data = npy(f)
                open("s.npy", "wb").write(data)
                out = good("values", "s.npy")
                want = dict(leaves(a, "array"))
                got = {n: t for n, t in out["tensors"].items() if not t["locked"]}
                assert set(got) == set(want), (set(got), set(want))
                for name, x in want.items():
                    check_tensor(got[name], x, "s.npy")
                assert all(t["locked"] == "strings" for n, t in out["tensors"].items()
                           if n not in want)
    data = npy(np.zeros(1, types[-1]))
    assert len(data) > 10000
    open("s.npy", "wb").write(data)
    out = tool("--max-header", 10000, "list", "s.npy")
    assert out.get("error") == "LIMIT" and "--max-header" in out["message"], out
    assert len(good("--max-header", len(data), "list", "s.npy")["tensors"]) == 700
    open("s.npy", "wb").write(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }" + " " * (17 << 20),
                                          bytes(4), 2))
    out = tool("list", "s.npy")
    assert out.get("error") == "LIMIT" and "16777216" in out["message"], out
    check_tensor(good("--max-header", 1 << 25, "values", "s.npy")["tensors"]["array"], np.zeros(1, "f4"), "s.npy")
    np.savez("s.npz", np.zeros(1, types[-1]))
    assert tool("--max-header", 10000, "list", "s.npz").get("error") == "LIMIT"


def check_versions():
    a = np.arange(6, dtype="<f4").reshape(2, 3)
    for version in ((1, 0), (2, 0), (3, 0)):
        open("v.npy", "wb").write(npy(a, version))
        check_tensor(good("values", "v.npy")["tensors"]["array"], a, "v.npy")
    for text in ("{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
                 '{"descr": "<f4", "fortran_order": False, "shape": (2L, 3L), }  \n',
                 "{'descr': u'<f4', 'fortran_order': False, 'shape': (2, 3,)}",
                 "({'descr': ('<f4'), 'fortran_order': False, 'shape': (2, 3)})",
                 "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2, 3)}"):
        assert ast.literal_eval(text.replace("L", "")), text
        open("v.npy", "wb").write(with_header(text, a.tobytes()))
        check_tensor(good("values", "v.npy")["tensors"]["array"], a, "v.npy")
    one = "{'descr': '<f4', 'fortran_order': False, 'shape': (6)}"
    refused(with_header(one, a.tobytes()), "tuple of sizes")
    refused(with_header("", version=4), "version 4.0", error="UNSUPPORTED")


def check_damage():
    a = np.arange(1000, dtype="<f4")
    data = npy(a)
    refused(b"", "empty")
    for cut in range(1, 140, 5):
        refused(data[:cut])
    for cut in (8, 9, 10, 100):
        refused(data[:cut], "truncated")
    refused(data[:128], "truncated", "4000", "found 0")
    refused(data[:-1], "truncated", "4000", "found 3999")
    open("tail.npy", "wb").write(data + b"tail")
    out = good("values", "tail.npy")
    assert out["notes"] == ["array: 4 bytes after the last element"]
    check_tensor(out["tensors"]["array"], a)
    # NumPy 2 scalars printed into the header: clear what was meant, but no literal
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (np.int64(1000),)}"
    open("call.npy", "wb").write(with_header(text, a.tobytes()))
    out = good("values", "call.npy")
    assert "call around a number" in out["notes"][0]
    check_tensor(out["tensors"]["array"], a)
    for expression in ("1000+0", "f(1, 2)", "x", "[1000][0]", "1e3", "0x3e8", "len('a')", "np.int64(",
                       "-1000", "True", "99999999999999999999"):
        column = text.index("np.int64")
        bad = text.replace("np.int64(1000)", expression)
        refused(with_header(bad, a.tobytes()), "column")
        if expression in ("x", "f(1, 2)"):
            refused(with_header(bad), "not a literal at column")
    refused(with_header(text.replace("np.int64(1000)", "a+b")),
            "not a literal at column %d" % (text.index("np.int64") + 1))
    for header, words in (
            ("[]", "a dict"), ("{}", "exactly the keys"), ("", "not a literal at column 1"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "exactly the keys"),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "True or False"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': [1]}", "tuple"),
            ("{'descr': 'float', 'fortran_order': False, 'shape': (1,)}", "a type such as"),
            ("{'descr': '<f', 'fortran_order': False, 'shape': (1,)}", "with its size"),
            ("{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (1,)}", "list of fields"),
            ("{'descr': [('a', '<f4'), ('a', '<f4')], 'fortran_order': False, 'shape': ()}",
             "two fields called"),
            ("{'descr': [('a',)], 'fortran_order': False, 'shape': ()}", "tuple of a name"),
            ("{'descr': [(1, '<f4')], 'fortran_order': False, 'shape': ()}", "a name"),
            ("{'descr': [('a', '<f4', -1)], 'fortran_order': False, 'shape': ()}", "a size"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d)}" % (2**40, 2**40), "overflow"),
            ("{'descr': [('a', '<f8', (%d, %d))], 'fortran_order': False, 'shape': ()}"
             % (2**40, 2**40), "overflow"),
            ("{'descr': '<f4", "rest of a string"), ("{'descr': '<f4\n'}", "rest of a string"),
            ("{'descr' '<f4'}", "\":\""), ("{'a': 1 'b': 2}", "or \"}\""), ("{'a': '\\q'}", "escape"),
            ("{'a': '\\x4'}", "hexadecimal"), ("{'a': 1} 2", "the end"), ("{\0}", "a value")):
        refused(with_header(header, b"\0" * 64), words)
    refused(with_header("(" * 100 + ")" * 100), "nested", error="LIMIT")
    refused(with_header("(" + "()," * 21000 + ")"), "a dict")
    refused(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", "limit", error="LIMIT")
    refused(with_header(b"{'\xff': 1}", version=3), "UTF-8")


def check_golden_big_endian():
    """Byte for byte: bit 31 of a big-endian float is in its first byte."""
    data = with_header("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}",
                       bytes.fromhex("3f800000 c0490fdb"))
    open("g.npy", "wb").write(data)
    t = good("values", "g.npy")["tensors"]["array"]
    assert t["big_endian"] and t["offsets"] == [len(data) - 8, len(data) - 4]
    assert np.frombuffer(bytes.fromhex(t["values"]), "f4").tolist() == [1.0, np.float32(-np.pi)]


def check_large():
    """Offsets over 4 GiB: the last element of a sparse file of 5 GiB."""
    n = 5 * 2**30 // 4
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % n
    with open("big.npy", "wb") as f:
        f.write(with_header(header))
        start = f.tell()
        f.truncate(start + 4 * n)
    m = good("map", "big.npy", "array", n - 1)
    assert m["offset"] == start + 4 * (n - 1)
    with open("big.npy", "r+b") as f:
        f.seek(m["offset"] + 3)
        f.write(b"\x40")
    a = np.load("big.npy", mmap_mode="r")
    assert a[-1] == 2.0 and a[-2] == 0.0 and a.shape == (n,)
    del a
    os.remove("big.npy")


# ---- archives ----

class Pipe(io.BytesIO):
    """What a writer to a pipe can do: so it writes descriptors."""

    def seekable(self):
        return False

    def seek(self, *args):
        raise io.UnsupportedOperation("seek")

    def tell(self):
        raise io.UnsupportedOperation("tell")


def arrays():
    rng = np.random.default_rng(3)
    return {"layer.weight": rng.normal(size=(30, 7)).astype("<f4"),
            "a/b.bias": rng.normal(size=7),
            "turned": fortran(rng.normal(size=(9, 4)).astype(">f4")),
            "fields": np.array([(1.5, 2), (2.5, 3)], [("w", "<f8"), ("n", ">i4")]),
            "step": np.array(300), "empty": np.zeros((0, 3), "f2")}


def archive(save, target=io.BytesIO, **more):
    b = target()
    save(b, **arrays(), **more)
    return b.getvalue()


def check_archive(path, out, n_sums):
    with np.load(path) as z:
        want = {}
        for name in z.files:
            want.update(leaves(z[name], name))
    assert set(out["tensors"]) == set(want), (set(out["tensors"]), set(want))
    for name, x in want.items():
        check_tensor(out["tensors"][name], x, path)
    assert len(out["sums"]) == n_sums
    with zipfile.ZipFile(path) as z:
        crcs = {"zip member " + i.filename: i.CRC for i in z.infolist()}
    data = open(path, "rb").read()
    for s in out["sums"]:
        assert s["kind"] == "CRC-32" and not s["unknown"] and len(s["places"]) == 2
        for _, at in s["places"]:
            assert data[at:at + 4] == struct.pack("<I", crcs[s["what"]])


def flip_in_place(path, name, elem, mend):
    """What an alteration does, by the tool's map and its list of sums."""
    out = good("values", path)
    t = out["tensors"][name]
    at = t["offsets"][elem]
    data = bytearray(open(path, "rb").read())
    data[at] ^= 0x10
    if mend:
        s = [s for s in out["sums"] if s["offset"] <= at < s["offset"] + s["size"]]
        assert len(s) == 1
        crc = zlib.crc32(data[s[0]["offset"]:s[0]["offset"] + s[0]["size"]])
        for _, place in s[0]["places"]:
            data[place:place + 4] = struct.pack("<I", crc)
    return bytes(data)


def check_stored():
    for target in (io.BytesIO, Pipe):
        data = archive(np.savez, target)
        open("s.npz", "wb").write(data)
        out = good("values", "s.npz")
        assert out["format"] == "npz" and out["notes"] == []
        check_archive("s.npz", out, len(arrays()))
        for name in ("layer.weight", "turned", "fields:n", "step"):
            elem = out["tensors"][name]["n_elems"] - 1
            changed = flip_in_place("s.npz", name, elem, mend=True)
            with np.load(io.BytesIO(changed)) as z, np.load("s.npz") as y:
                differ = 0
                for key in y.files:
                    for (_, a), (_, b) in zip(leaves(y[key], key), leaves(z[key], key)):
                        same = native(a).reshape(-1).view("u1") == native(b).reshape(-1).view("u1")
                        differ += int((~same).sum())
                assert differ == 1, (name, differ)
            try:
                with np.load(io.BytesIO(flip_in_place("s.npz", name, elem, mend=False))) as z:
                    z[name.split(":")[0]]
            except zipfile.BadZipFile:
                pass
            else:
                raise AssertionError("NumPy did not see a stale CRC")


def check_deflated():
    for target in (io.BytesIO, Pipe):
        data = archive(np.savez_compressed, target, zeros=np.zeros(100000, "f4"))
        open("d.npz", "wb").write(data)
        out = good("values", "d.npz")
        assert all("unmapped" in t for n, t in out["tensors"].items() if t["n_elems"])
        check_archive("d.npz", out, len(arrays()) + 1)
        if os.path.exists("e.npz"):
            os.remove("e.npz")
        good("recode", "d.npz", "e.npz", "turned", 5, 0x7fc00001, "zeros", 99999, 0x3f800000,
             "fields:n", 1, 77, "turned", 6, 0x40000000)
        with np.load("d.npz") as y, np.load("e.npz") as z:
            for name in y.files:
                want = native(y[name])
                if name == "turned":
                    want.reshape(-1)[5:7] = np.array([0x7fc00001, 0x40000000], "u4").view("f4")
                if name == "zeros":
                    want[-1] = 1
                if name == "fields":
                    want["n"][1] = 77
                assert native(z[name]).tobytes() == want.tobytes(), name
            assert y["turned"].dtype == z["turned"].dtype
        check_archive("e.npz", good("values", "e.npz"), len(arrays()) + 1)


def check_mixed():
    """Stored and deflated arrays in one archive: rewriting moves the stored ones as well."""
    with zipfile.ZipFile("m.npz", "w") as z:
        for i, (name, a) in enumerate(arrays().items()):
            z.writestr(name + ".npy", npy(a), [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED][i % 2])
    out = good("values", "m.npz")
    assert all("unmapped" in t for t in out["tensors"].values() if t["n_elems"])
    check_archive("m.npz", out, len(arrays()))
    if os.path.exists("n.npz"):
        os.remove("n.npz")
    good("recode", "m.npz", "n.npz", "a/b.bias", 0, 0x3ff0000000000000, "layer.weight", 0, 0)
    with np.load("n.npz") as z:
        assert z["a/b.bias"][0] == 1.0 and z["layer.weight"][0, 0] == 0
        assert z["a/b.bias"][1:].tobytes() == arrays()["a/b.bias"][1:].tobytes()


def check_odd_archives():
    w = npy(np.arange(4.0))
    # the later of two members of a name is what NumPy reads
    open("x.npz", "wb").write(make([Member("w.npy", npy(np.zeros(9))), Member("w.npy", w)]))
    out = good("values", "x.npz")
    assert "same name" in out["notes"][0]
    check_tensor(out["tensors"]["w"], np.load("x.npz")["w"], "x.npz")
    # what is no array is named
    open("x.npz", "wb").write(make([Member("w.npy", w), Member("readme", b"text"),
                                    Member("no.npy", b"text"), Member("w2.npy", w, method=12)],
                                   trailing=b"??"))
    out = good("values", "x.npz")
    assert list(out["tensors"]) == ["w"]
    for word in ("2 bytes after", "readme", "no.npy: no NumPy array", "w2.npy: compressed"):
        assert any(word in n for n in out["notes"]), (word, out["notes"])
    # no CRC
    open("x.npz", "wb").write(make([Member("w.npy", w, crc=0)]))
    assert good("values", "x.npz")["sums"][0]["unknown"]
    # an empty archive is what np.savez() writes
    b = io.BytesIO()
    np.savez(b)
    open("x.npz", "wb").write(b.getvalue())
    assert good("values", "x.npz")["tensors"] == {}
    # damaged members
    refused(make([Member("w.npy", w[:-1])]), "w.npy"[:1], "truncated", path="x.npz")
    refused(make([Member("w.npy", w[:20])]), "w.npy", "truncated", path="x.npz")
    refused(make([Member("w.npy", w[:20], method=8)]), "w.npy", "truncated", path="x.npz")
    refused(archive(np.savez)[:-30], "truncated", "layer.weight.npy", path="x.npz")
    # says that it inflates to 1 TiB: refused by its size alone, the others are fine
    bomb = with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (%d,)}" % 2**38)
    size = len(bomb) + 2**40
    open("x.npz", "wb").write(make([Member("w.npy", w),
                                    Member("bomb.npy", bomb, method=8, size=size,
                                           central64=("size",))]))
    start = time.monotonic()
    out = good("values", "x.npz")
    assert time.monotonic() - start < 5
    assert "1000 times" in out["tensors"]["bomb"]["locked"]
    assert "1000 times" in good("list", "x.npz")["tensors"]["bomb"]["locked"]


def check_large_archives():
    """An array of over 4 GiB in a sparse archive, and one behind it."""
    n = 2**30 + 100
    head = with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % n)
    size = len(head) + 4 * n
    small = npy(np.arange(5.0))
    with open("big.npz", "wb") as f:
        def local(name, size, wide, crc):
            extra = struct.pack("<HHQQ", 1, 16, size, size) if wide else b""
            f.write(struct.pack("<IHHHHHIIIHH", 0x04034b50, 45, 0, 0, 0, 0x21, crc,
                                0xffffffff if wide else size, 0xffffffff if wide else size,
                                len(name), len(extra)) + name + extra)
        local(b"big.npy", size, True, 0)
        f.write(head)
        data = f.tell()
        f.truncate(data + 4 * n)
        behind = f.seek(0, 2)
        local(b"small.npy", len(small), False, zlib.crc32(small))
        f.write(small)
        d = f.tell()
        for name, size_, at, crc in ((b"big.npy", size, 0, 0),
                                     (b"small.npy", len(small), behind, zlib.crc32(small))):
            wide = b"".join(struct.pack("<Q", v) for v in (size_, size_, at) if v >= 0xffffffff)
            extra = struct.pack("<HH", 1, len(wide)) + wide
            f.write(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 45, 45, 0, 0, 0, 0x21, crc,
                                min(size_, 0xffffffff), min(size_, 0xffffffff), len(name),
                                len(extra), 0, 0, 0, 0, min(at, 0xffffffff)) + name + extra)
        e = f.tell()
        f.write(struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, 2, 2, e - d, d))
        f.write(struct.pack("<IIQI", 0x07064b50, 0, e, 1))
        f.write(struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 2, 2, e - d, 0xffffffff, 0))
    with zipfile.ZipFile("big.npz") as z:
        assert [i.file_size for i in z.infolist()] == [size, len(small)]
    assert good("map", "big.npz", "big", n - 1)["offset"] == data + 4 * (n - 1)
    out = good("values", "big.npz")
    assert out["tensors"]["big"]["n_elems"] == n
    assert bytes.fromhex(out["tensors"]["small"]["values"]) == np.arange(5.0).tobytes()
    with open("big.npz", "rb") as f:
        f.seek(out["tensors"]["small"]["offsets"][4])
        assert f.read(8) == np.float64(4).tobytes()
    os.remove("big.npz")


def check_many():
    n = 30000
    one = npy(np.zeros(1, "f4"))
    open("many.npz", "wb").write(make([Member("w%d.npy" % i, one) for i in range(n)]))
    start = time.monotonic()
    assert len(good("list", "many.npz")["tensors"]) == n
    assert time.monotonic() - start < 20
    os.remove("many.npz")


check_types()
check_complex_and_time()
check_locked()
check_structured()
check_versions()
check_damage()
check_golden_big_endian()
check_large()
check_stored()
check_deflated()
check_mixed()
check_odd_archives()
check_large_archives()
check_many()
