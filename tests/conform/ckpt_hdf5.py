#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HDF5 in every way that h5py can store it: an element is changed by us, then h5py sees exactly that
change. Also the damage and the traps that people met with such files."""
import ctypes
import io
import os
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib

try:
    import h5py
    import numpy as np
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

tool, lister = sys.argv[1:3]
rng = np.random.default_rng(4)
hdf5 = ctypes.CDLL("libhdf5_serial.so.103")  # what Debian's h5py runs on: for calls that it does not offer
hdf5.H5Pset_chunk_opts.argtypes = [ctypes.c_int64, ctypes.c_uint]
hdf5.H5Pset_nbit.argtypes = [ctypes.c_int64]


def run(*args, code=0, env=None):
    p = subprocess.run([tool, *map(str, args)], capture_output=True, text=True, timeout=100, env=env)
    assert p.returncode == code and p.stderr == "", (args, p.returncode, p.stdout[-2000:], p.stderr)
    return p.stdout


def fails(word, *args, env=None):
    out = run(*args, code=1, env=env)
    assert word in out, (word, out)
    return out


def tensors(path, *options):
    """name -> (type, why locked) and the notes"""
    found, notes = {}, []
    for line in run("notes", path, *options).splitlines():
        if line.startswith("tensor "):
            _, name, dtype, locked = line.split(" ", 3)
            found[name] = (dtype, locked)
        else:
            notes.append(line)
    return found, notes


def raw(value, dtype):
    """The bits of a value as a number."""
    a = np.array(value, np.dtype(dtype).newbyteorder("="))
    return int(a.view(f"u{a.dtype.itemsize}"))


def fresh(name):
    if os.path.exists(name):
        os.remove(name)
    return name


def altered(path, edits, out="out.h5", how="mend"):
    """edits: (name, flat element, bits)"""
    flat = [x for e in edits for x in e]
    return run("alter", path, fresh(out), how, *flat)


def same(a, b):
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


# ---- every layout, filter, file version and userblock ----

FILTERS = {
    "plain": {}, "shuffle": {"shuffle": True}, "sum": {"fletcher32": True}, "gzip": {"compression": "gzip"},
    "gzip0": {"compression": "gzip", "compression_opts": 0}, "lzf": {"compression": "lzf"},
    "shuffle-sum": {"shuffle": True, "fletcher32": True}, "gzip-sum": {"compression": "gzip", "fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True, "compression_opts": 9},
    "lzf-all": {"compression": "lzf", "shuffle": True, "fletcher32": True},
}


def matrix():
    noise = rng.standard_normal((10, 7, 2))
    flat = np.zeros((10, 7, 2))
    kinds = {  # which chunk index it becomes with libver latest
        "single": ((10, 7, 2), None), "fixed": ((4, 3, 1), None), "extensible": ((4, 3, 2), (None, 7, 2)),
        "tree": ((3, 2, 2), (None, None, 2)), "one-by-one": ((1, 7, 2), None)}
    n = 0
    for libver in ("earliest", "latest"):
        for block in (0, 512, 4096):
            want = {}
            with h5py.File("in.h5", "w", libver=libver, userblock_size=block) as f:
                for kind, (chunks, most) in kinds.items():
                    for i, (name, options) in enumerate(FILTERS.items()):
                        x = (noise, flat)[i % 2].astype(("<f4", ">f8", "<f2", ">f4")[(i + len(kind)) % 4])
                        f.create_dataset(f"{kind}/{name}", data=x, chunks=chunks, maxshape=most, **options)
                        want[f"{kind}/{name}"] = x
                f["contiguous"] = noise.astype(">f4")
                want["contiguous"] = noise.astype(">f4")
                dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                dcpl.set_layout(h5py.h5d.COMPACT)
                d = h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((10, 7)), dcpl=dcpl)
                h5py.Dataset(d)[...] = want["compact"] = noise[:, :, 0].astype("<f4")
                dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)  # an implicit index
                dcpl.set_chunk((4, 3))
                dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
                d = h5py.h5d.create(f.id, b"implicit", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((10, 7)), dcpl=dcpl)
                h5py.Dataset(d)[...] = want["implicit"] = noise[:, :, 0].astype("<f4")
                f["scalar"] = want["scalar"] = np.float64(3)
            if block:
                with open("in.h5", "r+b") as f:
                    f.write(b"u" * block)
            edits = []
            for name, x in want.items():
                x = np.array(x)
                at = int(rng.integers(x.size))
                new = np.array(rng.standard_normal() * 7, x.dtype.newbyteorder("="))
                x.reshape(-1)[at] = new
                want[name] = x
                edits.append((name, at, raw(new, x.dtype)))
            altered("in.h5", edits)
            with h5py.File("out.h5") as f:
                for name, x in want.items():
                    assert same(f[name][()], x), (libver, block, name)
                    n += 1
            found = run("notes", "out.h5")  # sound for us too
            assert "security" not in found and "warning" not in found, found
            with open("out.h5", "rb") as f:
                assert f.read(block) == b"u" * block
    return f"{n} data sets"


def sums():
    """A stale Fletcher-32 and a stale header checksum are seen by libhdf5, mended ones are right."""
    x = np.arange(24, dtype="f4").reshape(4, 6)
    with h5py.File("sums.h5", "w", libver="latest") as f:
        f.create_dataset("sum", data=x, chunks=(2, 6), fletcher32=True)
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_layout(h5py.h5d.COMPACT)
        d = h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((4, 6)), dcpl=dcpl)
        h5py.Dataset(d)[...] = x
    altered("sums.h5", [("sum", 7, raw(5, "f4"))], how="stale")
    with h5py.File("out.h5") as f:
        try:
            f["sum"][()]
        except OSError as e:
            assert "Fletcher32" in str(e), e
        else:
            raise AssertionError("libhdf5 read a chunk with a stale sum")
    altered("sums.h5", [("sum", 7, raw(5, "f4"))])
    with h5py.File("out.h5") as f:
        assert f["sum"][1, 1] == 5 and (f["sum"][()] != x).sum() == 1
    altered("sums.h5", [("compact", 7, raw(5, "f4"))], how="stale")
    with h5py.File("out.h5") as f:
        try:
            f["compact"]
        except KeyError as e:
            assert "checksum" in str(e), e
        else:
            raise AssertionError("libhdf5 opened a data set with a stale header")
    fails("checksum of the object header", "notes", "out.h5")


def masks():
    """Filters are left out chunk by chunk; partial edge chunks may be stored without any."""
    x = np.arange(16, dtype="f4").reshape(4, 4)
    with h5py.File("masks.h5", "w", libver="latest") as f:
        d = f.create_dataset("mixed", shape=(4, 4), dtype="f4", chunks=(1, 4), compression="gzip", shuffle=True)
        planes = lambda row: row.view("u1").reshape(4, 4).T.tobytes()
        d.id.write_direct_chunk((0, 0), zlib.compress(planes(x[0])))
        d.id.write_direct_chunk((1, 0), planes(x[1]), filter_mask=2)
        d.id.write_direct_chunk((2, 0), zlib.compress(x[2].tobytes()), filter_mask=1)
        d.id.write_direct_chunk((3, 0), x[3].tobytes(), filter_mask=3)
        d = f.create_dataset("lzf", shape=(2, 64), dtype="u1", chunks=(1, 64), compression="lzf")
        noise = np.frombuffer(rng.bytes(64), "u1")
        d[...] = y = np.stack([noise, np.zeros(64, "u1")])
        assert d.id.get_chunk_info(0).filter_mask == 1  # noise is stored as it is
        d = f.create_dataset("sum", shape=(2, 4), dtype="f4", chunks=(1, 4), fletcher32=True)
        d[0] = x[0]
        d.id.write_direct_chunk((1, 0), x[1].tobytes(), filter_mask=1)
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_chunk((3, 3))
        dcpl.set_deflate(4)
        assert hdf5.H5Pset_chunk_opts(dcpl.id, 2) == 0
        h5py.Dataset(h5py.h5d.create(f.id, b"edges", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((4, 4)),
                                     dcpl=dcpl))[...] = x
    assert run("read", "masks.h5", "mixed", 0, 16) == x.tobytes().hex()
    assert run("read", "masks.h5", "edges", 0, 16) == x.tobytes().hex()
    assert run("read", "masks.h5", "lzf", 0, 128) == y.tobytes().hex()
    edits = [("mixed", i, raw(100 + i, "f4")) for i in (0, 5, 10, 15)]
    edits += [("edges", i, raw(100 + i, "f4")) for i in (0, 3, 12, 15)]
    edits += [("sum", i, raw(100 + i, "f4")) for i in (1, 6)]
    edits += [("lzf", 3, int(y[0, 3]) ^ 1), ("lzf", 70, 9)]
    altered("masks.h5", edits)
    with h5py.File("out.h5") as f:
        for name, at in (("mixed", (0, 5, 10, 15)), ("edges", (0, 3, 12, 15)), ("sum", (1, 6))):
            want = x.copy().reshape(-1)[:8 if name == "sum" else 16]
            for i in at:
                want[i] = 100 + i
            assert np.array_equal(f[name][()].reshape(-1), want), name
        z = y.copy()
        z[0, 3] ^= 1
        z[1, 6] = 9
        assert np.array_equal(f["lzf"][()], z)


def moved():
    """What became of a chunk whose size changed is told (H28)."""
    with h5py.File("moved.h5", "w") as f:
        f.create_dataset("z", data=np.zeros(4096, "f4"), chunks=(4096,), compression="gzip")
        f["behind"] = np.ones(9)  # so that the chunk cannot grow where it is
        old = f["z"].id.get_chunk_info(0)
    out = altered("moved.h5", [("z", i, raw(v, "f4")) for i, v in enumerate(rng.standard_normal(60).astype("f4"))])
    with h5py.File("out.h5") as f:
        new = f["z"].id.get_chunk_info(0)
        assert np.count_nonzero(f["z"][()]) == 60
    assert new.size != old.size and new.byte_offset != old.byte_offset
    assert f"tensor z, chunk [0]: {old.size} bytes at {old.byte_offset} became {new.size} bytes at {new.byte_offset}" in out


def structured():
    """Fields, nested fields, arrays and complex numbers are tensors of their own."""
    inner = np.dtype([("p", ">f4"), ("q", "<i2", (2,))])
    dt = np.dtype({"names": ["a", "b", "c", "d"], "formats": ["<f4", inner, "<c8", (">f8", (2, 3))],
                   "offsets": [4, 12, 24, 40], "itemsize": 96})
    x = np.zeros((5, 4), dt)
    x["a"] = rng.standard_normal((5, 4))
    x["b"]["p"] = rng.standard_normal((5, 4))
    x["b"]["q"] = rng.integers(-99, 99, (5, 4, 2))
    x["c"] = rng.standard_normal((5, 4)) + 1j * rng.standard_normal((5, 4))
    x["d"] = rng.standard_normal((5, 4, 2, 3))
    z = rng.standard_normal((3, 5)) + 1j
    for libver in ("earliest", "latest"):
        with h5py.File("struct.h5", "w", libver=libver) as f:
            f["plain"] = x
            f.create_dataset("chunks", data=x, chunks=(2, 3))
            f.create_dataset("gzip", data=x, chunks=(2, 3), compression="gzip", shuffle=True)
            f["complex"] = z
            t = h5py.h5t.array_create(h5py.h5t.IEEE_F32BE, (2, 3))
            d = h5py.h5d.create(f.id, b"arrays", t, h5py.h5s.create_simple((4,)))
            a = rng.standard_normal((4, 2, 3)).astype(">f4")
            d.write(h5py.h5s.ALL, h5py.h5s.ALL, a, t)
            f["named"] = np.dtype("f4")
            f.create_dataset("with-named", data=np.arange(3, dtype="f4"), dtype=f["named"])
        names = [f"{d}:{p}" for d in ("plain", "chunks", "gzip") for p in ("a", "b:p", "b:q", "c", "d")]
        found, _ = tensors("struct.h5")
        assert sorted(found) == sorted(names + ["complex", "arrays", "with-named"]), found
        assert all(locked == "" for _, locked in found.values()), found
        for d in ("plain", "chunks", "gzip"):
            for path, part in (("a", x["a"]), ("b:p", x["b"]["p"]), ("b:q", x["b"]["q"]),
                               ("c", np.ascontiguousarray(x["c"]).view("f4")), ("d", x["d"])):
                native = np.ascontiguousarray(part).astype(part.dtype.newbyteorder("="))
                assert run("read", "struct.h5", f"{d}:{path}", 0, native.size) == native.tobytes().hex(), (d, path)
                k = native.itemsize
                assert run("read", "struct.h5", f"{d}:{path}", 3, 9) == native.tobytes()[3 * k:12 * k].hex()
        edits = [(f"{d}:b:q", 2 * 7 + 1, raw(77, "i2")) for d in ("plain", "chunks", "gzip")]
        edits += [(f"{d}:d", 6 * 13 + 4, raw(0.5, "f8")) for d in ("plain", "chunks", "gzip")]
        edits += [(f"{d}:c", 2 * 19 + 1, raw(9, "f4")) for d in ("plain", "chunks", "gzip")]
        edits += [("complex", 2 * 4 + 1, raw(8, "f8")), ("arrays", 6 + 5, raw(3, "f4")), ("with-named", 1, raw(6, "f4"))]
        altered("struct.h5", edits)
        y = x.copy()
        y["b"]["q"][1, 3, 1] = 77
        y["d"][3, 1, 1, 1] = 0.5
        y["c"][4, 3] = y["c"][4, 3].real + 9j
        with h5py.File("out.h5") as f:
            for d in ("plain", "chunks", "gzip"):
                for name in dt.names:
                    assert np.array_equal(f[d][()][name], y[name]), (libver, d, name)
            w = z.copy()
            w[0, 4] = w[0, 4].real + 8j
            assert np.array_equal(f["complex"][()], w)
            b = a.copy()
            b[1, 1, 2] = 3
            assert np.array_equal(f["arrays"][()], b)
            assert list(f["with-named"][()]) == [0, 6, 2]


def types():
    """bfloat16 as Keras stores it, without its label, as a uint16; 8-bit floats (H19)."""
    bits = np.array([0x3f80, 0xc000, 0x7f80], "u2")
    with h5py.File("types.h5", "w") as f:
        for name, label in (("str", "bfloat16"), ("bytes", np.bytes_("bfloat16")), ("none", None),
                            ("odd", "float32"), ("list", ["bfloat16", "x"])):
            f[name] = bits.view("V2")
            if label is not None:
                f[name].attrs["dtype"] = label
        f["u16"] = bits
        t = h5py.h5t.IEEE_F32LE.copy()
        t.set_fields(7, 3, 4, 0, 3)
        t.set_size(1)
        t.set_ebias(7)
        d = h5py.h5d.create(f.id, b"fp8", t, h5py.h5s.create_simple((4,)))
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ones(4, "f4"), h5py.h5t.NATIVE_FLOAT)
        f["flag"] = np.array([True, False])
    found, _ = tensors("types.h5")
    assert found["str"] == found["bytes"] == ("BF16", ""), found
    assert found["u16"][0] == "U16" and found["flag"] == ("BOOL", "")
    for name in ("none", "odd", "list", "fp8"):
        assert found[name][0] == "?" and "unless its type is given" in found[name][1], (name, found[name])
    found, _ = tensors("types.h5", "--as", "*", "bfloat16")
    assert all(found[n] == ("BF16", "") for n in ("str", "none", "odd", "list", "u16")), found
    assert found["fp8"][0] == "?"
    found, _ = tensors("types.h5", "--as", "fp8", "float8_e4m3fn")
    assert found["fp8"] == ("F8_E4M3", "") and found["none"][0] == "?"
    altered("types.h5", [("str", 1, 0x4000)])
    with h5py.File("out.h5") as f:
        assert list(f["str"][()].view("u2")) == [0x3f80, 0x4000, 0x7f80]


def external():
    """Elements in other files of the same folder are altered there; other places are not looked at (H21)."""
    x = np.arange(12, dtype="f4")
    for name in ("one.bin", "two.bin"):
        fresh(name)
    with h5py.File("ext.h5", "w") as f:
        d = f.create_dataset("one", shape=(12,), dtype="f4", external=[("one.bin", 16, 48)])
        d[...] = x
        d = f.create_dataset("two", shape=(3, 4), dtype="f4", external=[("one.bin", 100, 20), ("two.bin", 3, h5py.h5f.UNLIMITED)])
        d[...] = x.reshape(3, 4)
        f["inside"] = x
    assert run("read", "ext.h5", "one", 0, 12) == x.tobytes().hex()
    assert run("read", "ext.h5", "two", 1, 10) == x[1:11].tobytes().hex()
    altered("ext.h5", [("one", 3, raw(99, "f4")), ("two", 2, raw(98, "f4")), ("two", 9, raw(97, "f4")),
                       ("inside", 1, raw(96, "f4"))])
    with h5py.File("out.h5") as f:
        assert f["one"][3] == 99 and f["two"][0, 2] == 98 and f["two"][2, 1] == 97 and f["inside"][1] == 96
        assert (f["one"][()] != x).sum() == 1 and (f["two"][()].reshape(-1) != x).sum() == 2
    shutil.copy("one.bin", "spare.bin")
    os.truncate("one.bin", 40)
    fails("truncated: 48 bytes from 16 on of the external file one.bin", "notes", "ext.h5")
    os.remove("one.bin")
    fails("incomplete set", "notes", "ext.h5")
    for path in ("/etc/passwd", "../spare.bin", "a/../../b"):
        with h5py.File("bad.h5", "w") as f:
            f.create_dataset("x", shape=(4,), dtype="f4", external=[(path, 0, 16)])
            f["y"] = x
        found, notes = tensors("bad.h5")
        assert "unsafe path" in found["x"][1] and found["y"] == ("F32", ""), found
        assert any(n.startswith("security: ") and path in n for n in notes), notes
        fails("unsafe path", "read", "bad.h5", "x", 0, 1)


def security():
    """Links out of the file, virtual data sets and shape bombs are told and not followed (H21)."""
    with h5py.File("sec.h5", "w") as f:
        f["x"] = np.ones(3, "f4")
        f["out"] = h5py.ExternalLink("/etc/other.h5", "/x")
        f["nowhere"] = h5py.SoftLink("/not/here")
        layout = h5py.VirtualLayout(shape=(4,), dtype="f4")
        layout[...] = h5py.VirtualSource("/etc/other.h5", "x", shape=(4,))
        f.create_virtual_dataset("virtual", layout)
        f.create_dataset("bomb", shape=(2 ** 30, 2 ** 29), dtype="u1", chunks=(1024, 1024))
        f.create_dataset("bomb2", shape=(2 ** 59,), dtype="u1", chunks=(2 ** 20,), compression="gzip")
        f.create_dataset("bomb3", shape=(2 ** 59,), dtype="u1")
    found, notes = tensors("sec.h5")
    text = "\n".join(notes)
    for word in ("security: link out leads to another file (/etc/other.h5: /x)", "security: tensor virtual is virtual",
                 "security: tensor bomb claims", "security: tensor bomb2 claims", "security: tensor bomb3 claims",
                 "info: soft link nowhere leads to nothing"):
        assert word in text, (word, notes)
    assert all("never written" in found[b][1] for b in ("bomb", "bomb2", "bomb3")), found
    fails("more than 1000 times", "read", "sec.h5", "bomb", 0, 10)


def addresses():
    """Addresses of 4 bytes; chunk keys stay 64 bits wide (H08)."""
    x = rng.standard_normal((9, 5)).astype("f4")
    for size in (4, 8):
        fcpl = h5py.h5p.create(h5py.h5p.FILE_CREATE)
        fcpl.set_sizes(size, size)
        with h5py.File(h5py.h5f.create(b"sizes.h5", fcpl=fcpl)) as f:
            f["g/c"] = x
            f.create_dataset("g/chunks", data=x, chunks=(2, 3))
            f.create_dataset("g/gzip", data=x, chunks=(4, 5), compression="gzip")
        altered("sizes.h5", [(f"g/{n}", 17, raw(5, "f4")) for n in ("c", "chunks", "gzip")])
        y = x.copy().reshape(-1)
        y[17] = 5
        with h5py.File("out.h5") as f:
            for n in ("c", "chunks", "gzip"):
                assert np.array_equal(f["g"][n][()].reshape(-1), y), (size, n)


def damage():
    """Sizes that contradict each other are refused, with no crash (H06, H11, H13)."""
    with h5py.File("compact.h5", "w") as f:
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_layout(h5py.h5d.COMPACT)
        d = h5py.h5d.create(f.id, b"c", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((3,)), dcpl=dcpl)
        h5py.Dataset(d)[...] = np.array([1.5, 2.5, 3.5])
    b = bytearray(open("compact.h5", "rb").read())
    at = b.index(struct.pack("<3d", 1.5, 2.5, 3.5))
    assert b[at - 2:at] == struct.pack("<H", 24)
    for size in (0, 23, 25, 65535):
        b[at - 2:at] = struct.pack("<H", size)
        open("bad.h5", "wb").write(b)
        out = run("notes", "bad.h5", code=1)
        assert out.startswith("INVALID") and ("out of bounds" in out or "longer" in out), (size, out)
    with h5py.File("trail.h5", "w", libver="latest") as f:
        f["x"] = np.ones(3)
    whole = open("trail.h5", "rb").read()
    open("bad.h5", "wb").write(whole + b"more")
    assert f"warning: trailing bytes: 4 after the {len(whole)}" in run("notes", "bad.h5")
    flagged = bytearray(whole)
    flagged[11] |= 1
    for fix in (False, True):
        if fix:  # as a writer that died leaves it
            flagged[44:48] = struct.pack("<I", lookup3(bytes(flagged[:44])))
        open("bad.h5", "wb").write(flagged)
        fails("open for writing", "notes", "bad.h5")
        found, notes = tensors("bad.h5", "--unclean")
        assert "not closed" in found["x"][1] and any("died" in n for n in notes), (found, notes)
    with h5py.File("gz.h5", "w") as f:
        f.create_dataset("z", data=np.arange(4000.0), chunks=(4000,), compression="gzip")
        info = f["z"].id.get_chunk_info(0)
    b = bytearray(open("gz.h5", "rb").read())
    refused = 0
    for i in range(0, info.size, 37):
        c = bytearray(b)
        c[info.byte_offset + i] ^= 0x10
        open("bad.h5", "wb").write(c)
        p = subprocess.run([tool, "read", "bad.h5", "z", "0", "4000"], capture_output=True, text=True, timeout=60)
        assert p.returncode in (0, 1), p
        refused += p.returncode == 1
    assert refused > info.size // 37 - 5, refused


def lookup3(data):
    """Bob Jenkins's hashlittle with initial value 0."""
    rot = lambda x, k: ((x << k) | (x >> (32 - k))) & 0xffffffff
    m = 0xffffffff
    a = b = c = (0xdeadbeef + len(data)) & m
    while len(data) > 12:
        x, y, z = struct.unpack("<3I", data[:12])
        a, b, c = (a + x) & m, (b + y) & m, (c + z) & m
        a = (a - c) & m; a ^= rot(c, 4); c = (c + b) & m
        b = (b - a) & m; b ^= rot(a, 6); a = (a + c) & m
        c = (c - b) & m; c ^= rot(b, 8); b = (b + a) & m
        a = (a - c) & m; a ^= rot(c, 16); c = (c + b) & m
        b = (b - a) & m; b ^= rot(a, 19); a = (a + c) & m
        c = (c - b) & m; c ^= rot(b, 4); b = (b + a) & m
        data = data[12:]
    x, y, z = struct.unpack("<3I", data.ljust(12, b"\0"))
    a, b, c = (a + x) & m, (b + y) & m, (c + z) & m
    c ^= b; c = (c - rot(b, 14)) & m
    a ^= c; a = (a - rot(c, 11)) & m
    b ^= a; b = (b - rot(a, 25)) & m
    c ^= b; c = (c - rot(b, 16)) & m
    a ^= c; a = (a - rot(c, 4)) & m
    b ^= a; b = (b - rot(a, 14)) & m
    c ^= b; c = (c - rot(b, 24)) & m
    return c


def other_filters():
    """What only libhdf5 decodes can be read; what nobody here decodes is told by name and id (H07, H17)."""
    x = np.arange(64, dtype="i4").reshape(8, 8)
    with h5py.File("filters.h5", "w") as f:
        f.create_dataset("scale", data=x, chunks=(4, 8), scaleoffset=0)
        f.create_dataset("szip", data=x, chunks=(4, 8), compression="szip")
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_chunk((4, 8))
        assert hdf5.H5Pset_nbit(dcpl.id) == 0
        h5py.Dataset(h5py.h5d.create(f.id, b"nbit", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((8, 8)), dcpl=dcpl))[...] = x
        for name, number in (("nobody", 32099), ("blosc", 32001), ("zstd", 32015)):
            dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            dcpl.set_chunk((4, 8))
            dcpl.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (1, 2))
            d = h5py.h5d.create(f.id, name.encode(), h5py.h5t.STD_I32LE, h5py.h5s.create_simple((8, 8)), dcpl=dcpl)
            d.write_direct_chunk((0, 0), bytes(128))
            d.write_direct_chunk((4, 0), bytes(128))
        f["free"] = x
    found, _ = tensors("filters.h5")
    for name, word in (("scale", "scaleoffset"), ("szip", "szip"), ("nbit", "nbit")):
        assert word in found[name][1] and "not alterable" in found[name][1], found[name]
        assert run("read", "filters.h5", name, 0, 64) == x.tobytes().hex(), name
        assert run("read", "filters.h5", name, 13, 20) == x.tobytes()[52:132].hex(), name
    for name, word in (("nobody", "id 32099"), ("blosc", "blosc (id 32001)"), ("zstd", "zstd (id 32015)")):
        assert word in found[name][1], found[name]
        fails(word, "read", "filters.h5", name, 0, 1)
    assert found["free"] == ("I32", "")


def keras2():
    """layer_names and weight_names in every kind of string that h5py eras wrote, whole and split (H24)."""
    w = np.ones((3, 2), "f4")
    kinds = {
        "fixed": lambda names: np.array([n.encode() for n in names], "S"),
        "variable": lambda names: np.array(names, h5py.string_dtype()),
        "ascii": lambda names: np.array([n.encode() for n in names], h5py.string_dtype("ascii")),
        "utf8-fixed": lambda names: np.array([n.encode() for n in names], h5py.string_dtype("utf-8", 40)),
    }
    first = None
    for kind, make in kinds.items():
        with h5py.File("keras.h5", "w") as f:
            g = f.create_group("model_weights")
            g.attrs["layer_names"] = make(["dense", "dense_1"])
            for layer in ("dense", "dense_1"):
                names = [f"{layer}/kernel:0", f"{layer}/bias:0"]
                g.create_group(layer).attrs["weight_names"] = make(names)
                g[layer][names[0]] = w
                g[layer][names[1]] = w[0]
            o = f.create_group("optimizer_weights")
            o.attrs["weight_names"] = make(["training/Adam/dense/kernel/m:0"])
            o["training/Adam/dense/kernel/m:0"] = w
        listing = run("notes", "keras.h5")
        assert "info: Keras lists 2 layers and 5 weights" in listing and "warning" not in listing, listing
        first = first or listing
        assert listing == first, (kind, listing)
    with h5py.File("keras.h5", "r+") as f:
        f["model_weights"].attrs["layer_names0"] = f["model_weights"].attrs["layer_names"][:1]
        f["model_weights"].attrs["layer_names1"] = f["model_weights"].attrs["layer_names"][1:]
        del f["model_weights"].attrs["layer_names"]
        del f["model_weights/dense/dense/bias:0"]
    listing = run("notes", "keras.h5")
    assert "Keras lists 2 layers and 5 weights" in listing
    assert 'warning: group model_weights/dense lists the weight "dense/bias:0", which is not there' in listing


def keras3():
    """The HDF5 file inside of a .keras archive, with the archive's CRC in both places."""
    x = np.arange(24, dtype="f4").reshape(4, 6)
    for libver in ("earliest", "latest"):
        inner = io.BytesIO()
        with h5py.File(inner, "w", libver=libver) as f:
            f["layers/dense/vars/0"] = x
            f.create_dataset("layers/dense/vars/1", data=x, chunks=(3, 4), fletcher32=True)
            f["optimizer/vars/0"] = np.int64(7)
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with zipfile.ZipFile("m.keras", "w", method) as z:
                z.writestr("metadata.json", "{}")
                z.writestr("config.json", "{}" * 100)
                z.writestr("model.weights.h5", inner.getvalue())
            for i in (0, 1):
                assert run("read", "m.keras", f"layers/dense/vars/{i}", 0, 24) == x.tobytes().hex()
            if method == zipfile.ZIP_DEFLATED:
                fails("deflated inside of an archive", "alter", "m.keras", fresh("out.keras"), "mend",
                      "layers/dense/vars/0", 5, 0)
                continue
            edits = [("layers/dense/vars/0", 5, raw(50, "f4")), ("layers/dense/vars/1", 7, raw(70, "f4"))]
            altered("m.keras", edits, "out.keras")
            assert os.path.getsize("m.keras") == os.path.getsize("out.keras")
            with zipfile.ZipFile("out.keras") as z:
                assert z.testzip() is None
                with h5py.File(io.BytesIO(z.read("model.weights.h5"))) as f:
                    a, b = f["layers/dense/vars/0"][()], f["layers/dense/vars/1"][()]
            assert a[0, 5] == 50 and (a != x).sum() == 1 and b[1, 1] == 70 and (b != x).sum() == 1
            altered("m.keras", edits[:1], "out.keras", "stale")
            with zipfile.ZipFile("out.keras") as z:
                assert z.testzip() == "model.weights.h5"


def keras_bomb():
    """A deflated member far beyond its stored size is refused before it is inflated (H22)."""
    z = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = bytes(1 << 24)
    start = z.compress(zeros) + z.flush(zlib.Z_FULL_FLUSH)
    again = z.compress(zeros) + z.flush(zlib.Z_FULL_FLUSH)
    n = 300
    body = start + again * (n - 1) + z.flush()
    size = n << 24
    name = b"model.weights.h5"
    extra = struct.pack("<HHQQ", 1, 16, size, len(body))
    with zipfile.ZipFile("bomb.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    data = open("bomb.keras", "rb").read()
    first = data[:data.index(b"PK\x01\x02")]
    central = data[data.index(b"PK\x01\x02"):data.index(b"PK\x05\x06")]
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, 0, 8, 0, 33, 0, 0xffffffff, 0xffffffff, len(name), len(extra))
    central += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 45, 45, 0, 8, 0, 33, 0, 0xffffffff, 0xffffffff, len(name),
                           len(extra), 0, 0, 0, 0, len(first)) + name + extra
    front = first + local + name + extra + body
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 2, 2, len(central), len(front), 0)
    open("bomb.keras", "wb").write(front + central + end)
    fails("more than 1000 times", "notes", "bomb.keras")


def large():
    """Offsets over 4 GiB (H12); the time to map does not grow with the weights (H23)."""
    import time
    with h5py.File("large.h5", "w") as f:
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        dcpl.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        n = 5 << 28
        d = h5py.h5d.create(f.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((n,)), dcpl=dcpl)
        at = d.get_offset()
        f["small"] = np.ones(3)
    import json
    p = subprocess.run([lister, "map", "large.h5", "x", str(n - 1)], capture_output=True, text=True, timeout=60)
    assert json.loads(p.stdout)["offset"] == at + 4 * (n - 1), p.stdout
    with open("large.h5", "r+b") as f:
        f.seek(at + 4 * (n - 1))
        f.write(struct.pack("<f", 2.5))
    with h5py.File("large.h5") as f:
        assert f["x"][n - 1] == 2.5
    assert run("read", "large.h5", "x", n - 1, 1) == struct.pack("<f", 2.5).hex()
    size = os.path.getsize("large.h5")
    with open("large.keras", "wb") as out, open("large.h5", "rb") as h5:
        name = b"model.weights.h5"
        extra = struct.pack("<HHQQ", 1, 16, size, size)
        head = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, 0, 0, 0, 33, 0, 0xffffffff, 0xffffffff, len(name), len(extra)) + name + extra
        out.write(head)
        blocks = [(0, h5.read(1 << 16))]
        h5.seek(size - (1 << 16))
        blocks.append((size - (1 << 16), h5.read()))
        for where, data in blocks:
            out.seek(len(head) + where)
            out.write(data)
        front = len(head) + size
        config = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 0, 0, 0, 33, zlib.crc32(b"{}"), 2, 2, 11, 0) + b"config.json{}"
        extra2 = struct.pack("<HHQ", 1, 8, front)
        central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 45, 45, 0, 0, 0, 33, 1, 0xffffffff, 0xffffffff,
                              len(name), len(extra), 0, 0, 0, 0, 0) + name + extra
        central += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 0, 0, 0, 33, zlib.crc32(b"{}"), 2, 2, 11,
                               len(extra2), 0, 0, 0, 0, 0xffffffff) + b"config.json" + extra2
        where = front + len(config)
        out.seek(front)
        out.write(config + central)
        out.write(struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 2, 2, len(central), where))
        out.write(struct.pack("<4sIQI", b"PK\6\7", 0, where + len(central), 1))
        out.write(struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 2, 2, len(central), 0xffffffff, 0))
    begin = time.monotonic()
    assert run("read", "large.keras", "x", n - 1, 1) == struct.pack("<f", 2.5).hex()
    taken = time.monotonic() - begin
    assert taken < 2, taken
    for name in ("large.h5", "large.keras"):
        os.remove(name)
    return f"{taken * 1000:.0f} ms"


def many():
    """Tens of thousands of small data sets: a listing without reopening (H16)."""
    import time
    x = np.zeros(16, "f4")
    with h5py.File("many.h5", "w") as f:
        g = f.create_group("model")
        space, name = h5py.h5s.create_simple((16,)), "layer%d.weight"
        for i in range(50000):
            h5py.h5d.create(g.id, (name % i).encode(), h5py.h5t.IEEE_F32LE, space).write(h5py.h5s.ALL, h5py.h5s.ALL, x)
    begin = time.monotonic()
    out = run("notes", "many.h5")
    taken = time.monotonic() - begin
    assert out.count("\n") == 50000 and taken < 10, taken
    os.remove("many.h5")
    return f"{taken * 1000:.0f} ms"


def chainer():
    """Chainer's save_hdf5: gzip level 4 for arrays of more than one element, Empty for None."""
    with h5py.File("chainer.h5", "w") as f:
        w = rng.standard_normal((30, 20)).astype("f4")
        f.create_dataset("predictor/l1/W", data=w, compression=4)
        f.create_dataset("predictor/l1/b", data=np.zeros(30, "f4"), compression=4)
        f.create_dataset("count", data=np.int32(4))
        f["none"] = h5py.Empty("f")
    altered("chainer.h5", [("predictor/l1/W", 33, raw(2, "f4")), ("count", 0, 5)])
    with h5py.File("out.h5") as f:
        assert f["predictor/l1/W"][1, 13] == 2 and (f["predictor/l1/W"][()] != w).sum() == 1 and f["count"][()] == 5
        assert not f["predictor/l1/b"][()].any()


def threads():
    """Several threads read chunks of one checkpoint."""
    x = rng.standard_normal((300, 50))
    with h5py.File("threads.h5", "w") as f:
        f.create_dataset("z", data=x, chunks=(7, 11), compression="gzip", shuffle=True)
        f.create_dataset("raw", data=x, chunks=(7, 11))
    for name in ("z", "raw"):
        assert run("read", "threads.h5", name, 0, 15000, 8) == x.tobytes().hex()
        assert run("read", "threads.h5", name, 1234, 5000, 4) == x.tobytes()[1234 * 8:6234 * 8].hex()


def helper():
    """A helper that is missing, does not run, dies, babbles or is of another version."""
    x = np.ones((4, 4), "f4")
    with h5py.File("h.h5", "w") as f:
        f["x"] = x

    def with_helper(text):
        if text.startswith("#!"):
            with open("fake-helper", "w") as f:
                f.write(text)
            os.chmod("fake-helper", 0o755)
            text = os.path.abspath("fake-helper")
        return dict(os.environ, SDCLAB_HDF5_HELPER=text)

    out = fails("the helper program for HDF5 is not installed", "notes", "h.h5", env=with_helper("/nowhere/x"))
    assert out.startswith("NOT_FOUND") and "/nowhere/x" in out and "SDCLAB_HDF5_HELPER" in out
    fails("the helper program for HDF5 does not run", "notes", "h.h5", env=with_helper("/bin/false"))
    python = f"#!{sys.executable}\nimport os, struct, signal, sys, time\n"
    hello = python + "b = b'dsdclab-hdf5' + struct.pack('<H6I', 1, 1, 10, 8, 1, 10, 8)\nos.write(1, struct.pack('<I', len(b)) + b)\n"
    for body, words in (
            (python + "os.write(1, b'hello world, this is no frame')", "IO not of this version"),
            (hello.replace("'<H6I', 1", "'<H6I', 999"), "IO not of this version"),
            (hello + "os.kill(os.getpid(), signal.SIGSEGV)", "INVALID libhdf5 died on this file (signal 11"),
            (hello + "os.abort()", "INVALID libhdf5 died on this file (signal 6"),
            (hello + "sys.exit(3)", "INVALID libhdf5 died on this file (exit status 3"),
            (hello + "os.write(1, b'\\xff' * 100)", "INVALID made no sense (a frame of impossible length)"),
            (hello + "os.write(1, struct.pack('<IB', 1, 102)); time.sleep(1)", "INVALID made no sense"),
            (hello + "os.write(1, struct.pack('<IBQ', 9, 103, 1 << 62)); time.sleep(1)", "INVALID not inside the file")):
        status, word = words.split(" ", 1)
        out = fails(word, "notes", "h.h5", env=with_helper(body))
        assert out.startswith(status), out


def crashes():
    """Files that end libhdf5 1.10 with a signal are refused, and no more: an index that contains itself."""
    with h5py.File("loop.h5", "w") as f:
        f["x"] = np.ones(3)
    b = bytearray(open("loop.h5", "rb").read())
    at = b.index(b"TREE")
    b[at + 5] = 1  # not a leaf, and its child is itself
    b[at + 32:at + 40] = struct.pack("<Q", at)
    open("loop.h5", "wb").write(b)
    p = subprocess.run([tool, "notes", "loop.h5"], capture_output=True, text=True, timeout=100)
    assert p.returncode == 1 and p.stdout.startswith("INVALID loop.h5: "), p
    # groups that are linked in a number of ways that no list can hold
    with h5py.File("ways.h5", "w") as f:
        g = f
        for i in range(40):
            g["a"] = h = g.create_group("b")
            g = h
        g["x"] = np.ones(3)
    out = run("notes", "ways.h5")
    assert "not all names" in out and out.count("tensor ") == 1, out[-500:]


def from_python():
    """libsdclab in another program's process: helpers are found beside it, run side by side and leave no zombie."""
    lib = os.path.join(os.environ["SDC_BINARY_DIR"], "libsdclab.so")
    if not os.path.exists(lib) or os.environ.get("SDC_SANITIZE"):
        return "not looked at"
    x = rng.standard_normal((40, 30)).astype("f4")
    with h5py.File("py.h5", "w") as f:
        f.create_dataset("z", data=x, chunks=(7, 11), compression="gzip")
    script = f"""
import ctypes, os, sys
lib = ctypes.CDLL({lib!r})
open_, read = lib.sdc_ckpt_open, lib.sdc_ckpt_read
opened = []
for i in range(5):
    c = ctypes.c_void_p()
    assert open_(b"py.h5", None, ctypes.byref(c), None) == 0
    opened.append(c)
want = bytes.fromhex(sys.argv[1])
for c in opened:
    out = ctypes.create_string_buffer(4800)
    assert read(c, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(1200), out, None) == 0
    assert out.raw == want
children = lambda: open(f"/proc/self/task/{{os.getpid()}}/children").read().split()
assert len(children()) == 5, children()
if os.fork() == 0:  # a fork that closes its copies ends no helper of its parent
    for c in opened:
        lib.sdc_ckpt_close(c)
    os._exit(0)
os.wait()
out = ctypes.create_string_buffer(4800)
assert len(children()) == 5
for c in opened:
    assert read(c, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(1200), out, None) == 0
    lib.sdc_ckpt_close(c)
assert children() == [], children()
"""
    env = {k: v for k, v in os.environ.items() if k != "SDCLAB_HDF5_HELPER"}
    p = subprocess.run([sys.executable, "-c", script, x.tobytes().hex()], capture_output=True, text=True, timeout=60, env=env)
    assert p.returncode == 0, p.stderr


def main():
    for part in (matrix, sums, masks, moved, structured, types, external, security, addresses, damage, other_filters,
                 keras2, keras3, keras_bomb, large, many, chainer, threads, helper, crashes, from_python):
        note = part()
        print(part.__name__, "ok", note or "")


main()
