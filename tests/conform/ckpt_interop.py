#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of h5py and of the safetensors package read by us, and the other way round; offsets
compared with the raw bytes of the file."""
import json
import os
import struct
import subprocess
import sys

try:
    import h5py
    import numpy as np
    import safetensors.numpy
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

tool = sys.argv[1]
rng = np.random.default_rng(1)
NAMES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
         "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "?", "BF16": "u2"}


def call(*args):
    p = subprocess.run([tool, *args], capture_output=True, text=True, timeout=100)
    assert p.returncode in (0, 1), (args, p.returncode, p.stderr)
    assert p.stderr == "", (args, p.stderr)  # libhdf5 prints its error stack unless told not to
    return json.loads(p.stdout)


def refused(path, status, *words):
    answer = call("list", path)
    assert answer.get("error") == status, (path, answer)
    for word in words:
        assert word in answer["message"], (word, answer["message"])
    return answer


def values(tensor):
    return np.frombuffer(bytes.fromhex(tensor["values"]), "=" + NAMES[tensor["dtype"]]).reshape(tensor["shape"])


def check(path, want, locked=()):
    """Every tensor of want is listed, read, and mapped to the bytes that hold it."""
    listing = call("values", path)
    assert "error" not in listing, listing
    got = listing["tensors"]
    assert sorted(got) == sorted(want), (path, sorted(got), sorted(want))
    raw = open(path, "rb").read()
    for name, array in want.items():
        t = got[name]
        array = np.asarray(array)
        assert tuple(t["shape"]) == array.shape, (name, t)
        native = array.astype(array.dtype.newbyteorder("="))
        assert values(t).tobytes() == native.tobytes(), (path, name)
        if name in locked:
            assert t["locked"] and t["unmapped"], (name, t)
            assert t["locked"] in t["unmapped"]
            continue
        assert t["locked"] is None, (name, t)
        offsets = t.get("offsets", [])
        stored = native.astype(native.dtype.newbyteorder(">" if t.get("big_endian") else "<")).tobytes()
        item = native.dtype.itemsize
        for e, offset in enumerate(offsets):
            assert raw[offset:offset + item] == stored[e * item:(e + 1) * item], (path, name, e, offset)
        assert len(set(offsets)) == array.size, (path, name)
    return got


def arrays():
    out = {}
    for kind in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"):
        out[f"type/{kind}"] = np.frombuffer(rng.bytes(24 * np.dtype(kind).itemsize), kind).reshape(4, 6)
    out["type/bool"] = rng.integers(0, 2, 5).astype(bool)
    for rank in range(6):
        shape = (3, 2, 4, 1, 5)[:rank]
        out[f"rank/{rank}"] = rng.standard_normal(shape).astype("f4")
    out["empty"] = np.zeros((3, 0), "f4")
    return out


def write_h5(path, data, **kw):
    with h5py.File(path, "w", **kw) as f:
        for name, array in data.items():
            f.create_dataset(name, data=array)


def from_h5py():
    """Userblocks, both library versions, both byte orders (H01, H08)."""
    plain = arrays()
    for libver in ("earliest", "latest"):
        for block in (0, 512, 4096):
            path = f"plain-{libver}-{block}.h5"
            write_h5(path, plain, libver=libver, **({"userblock_size": block} if block else {}))
            check(path, plain)
    big = {k: v.astype(v.dtype.newbyteorder(">")) for k, v in plain.items()}
    write_h5("big.h5", big)
    got = check("big.h5", big)
    assert got["type/f4"]["big_endian"] and got["type/f4"]["dtype_text"] == "H5T_IEEE_F32BE", got["type/f4"]
    # addresses of 4 bytes
    fcpl = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    fcpl.set_sizes(4, 4)
    fid = h5py.h5f.create(b"small.h5", fcpl=fcpl)
    with h5py.File(fid) as f:
        f["c"] = plain["rank/2"]
        f.create_dataset("k", data=plain["rank/3"], chunks=(2, 1, 3))
    check("small.h5", {"c": plain["rank/2"], "k": plain["rank/3"]})


def chunked():
    """Edge chunks, every chunk index of both file versions, userblocks (H01, H02)."""
    a = rng.standard_normal((10, 7)).astype("f4")
    b = rng.standard_normal((5, 6, 7)).astype(">f8")
    for libver in ("earliest", "latest"):
        for block in (0, 512, 4096):
            path = f"chunked-{libver}-{block}.h5"
            with h5py.File(path, "w", libver=libver, **({"userblock_size": block} if block else {})) as f:
                f.create_dataset("edge", data=a, chunks=(4, 3))
                f.create_dataset("big", data=b, chunks=(2, 6, 3))
                f.create_dataset("one", data=a, chunks=(10, 7))
                f.create_dataset("grow", data=a, chunks=(4, 3), maxshape=(None, 7))
                f.create_dataset("grow2", data=a, chunks=(4, 3), maxshape=(None, None))
                d = f.create_dataset("shrunk", data=np.concatenate([a, a]), chunks=(3, 7), maxshape=(None, 7))
                d.resize((10, 7))
                f.create_dataset("none", shape=(0, 7), chunks=(3, 7), maxshape=(None, 7), dtype="f4")
            want = {k: a for k in ("edge", "one", "grow", "grow2", "shrunk")}
            want |= {"big": b, "none": np.zeros((0, 7), "f4")}
            got = check(path, want)
            assert got["edge"]["storage"] == "chunked 4x3", got["edge"]


def locked():
    """What cannot be altered yet is listed with the reason; the rest of the file stays usable (H04, H17)."""
    x = rng.standard_normal((20, 6)).astype("f4")
    with h5py.File("locked.h5", "w") as f:
        f["free"] = x
        f.create_dataset("gzip", data=x, compression="gzip")
        f.create_dataset("both", data=x, compression="gzip", shuffle=True, fletcher32=True)
        f.create_dataset("lzf", data=np.zeros((20, 60), "f4"), compression="lzf")  # noise would be stored as it is
        f.create_dataset("sum", data=x, fletcher32=True)
        f.create_dataset("never", shape=(3, 4), dtype="f4")
        f.create_dataset("neverfill", shape=(3, 4), dtype="f4", fillvalue=2.5)
        d = f.create_dataset("sparse", shape=(20, 6), dtype="f4", chunks=(5, 6), fillvalue=7)
        d[3:8] = x[3:8]
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_layout(h5py.h5d.COMPACT)
        s = h5py.h5s.create_simple((4,))
        h5py.Dataset(h5py.h5d.create(f.id, b"compact", h5py.h5t.NATIVE_FLOAT, s, dcpl=dcpl))[...] = x[0, :4]
        f.create_dataset("external", shape=(4,), dtype="f4", external=[("/etc/passwd", 0, 16)])
        f["string"] = "text"
        f["bytes"] = np.array([b"ab", b"cd"])
        f["complex"] = np.zeros(3, "c8")
        f["struct"] = np.zeros(3, [("a", "f4"), ("b", "i4")])
        f["void"] = np.zeros(3, "V2")
        f["array"] = h5py.Empty("f4")
        f.create_dataset("ref", shape=(1,), dtype=h5py.ref_dtype)
        f.create_dataset("vlen", shape=(1,), dtype=h5py.vlen_dtype("f4"))
        f.create_dataset("enum", data=np.array([0, 1, 2], "i1"), dtype=h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, "i1"))
        f["long"] = np.zeros(3, "longdouble")
        f.create_dataset("f8", data=np.zeros(3, "u1"))
        layout = h5py.VirtualLayout(shape=(20, 6), dtype="f4")
        layout[...] = h5py.VirtualSource("elsewhere.h5", "x", shape=(20, 6))
        f.create_virtual_dataset("virtual", layout)
        f["outside"] = h5py.ExternalLink("big.h5", "/type/f4")
        f["dangling"] = h5py.SoftLink("/nowhere")
        f["soft-outside"] = h5py.SoftLink("/outside")
    got = call("values", "locked.h5")["tensors"]
    want = {"never": "never written", "neverfill": "never written",
            "sparse": "not fully allocated: 2 of 4 chunks are stored",
            "external": 'external: unsafe path: "/etc/passwd"',
            "virtual": "virtual: its elements are in other datasets",
            "string": "type variable-length string", "bytes": "type string of 2 bytes",
            "void": "type opaque of 2 bytes",
            "array": "empty", "ref": "type reference", "vlen": "type variable-length sequence",
            "enum": "type enumeration", "long": "type floating-point number of unknown layout of 16 bytes"}
    free = {"free", "f8", "compact", "complex", "struct:a", "struct:b", "sum"}
    recoded = {"gzip": "gzip", "both": "shuffle, gzip, fletcher32", "lzf": "lzf"}
    assert set(got) == set(want) | free | set(recoded), sorted(got)
    for name, word in want.items():
        assert got[name]["locked"].startswith(word), (name, got[name]["locked"])
        if got[name]["n_elems"]:
            answer = call("map", "locked.h5", name, "0")
            assert answer["error"] == "UNSUPPORTED" and word in answer["message"], answer
    for name, filters in recoded.items():
        assert got[name]["locked"] is None and got[name]["recoded"] == filters, (name, got[name])
    for name in free:
        assert got[name]["locked"] is None and got[name]["recoded"] is None, (name, got[name])
    for name in ("gzip", "both", "free", "sum"):
        assert values(got[name]).tobytes() == x.tobytes(), name
    assert values(got["lzf"]).tobytes() == bytes(20 * 60 * 4)
    assert values(got["compact"]).tobytes() == x[0, :4].tobytes()
    assert np.all(values(got["never"]) == 0) and np.all(values(got["neverfill"]) == 2.5)
    y = np.full((20, 6), 7, "f4")
    y[3:8] = x[3:8]
    assert values(got["sparse"]).tobytes() == y.tobytes()
    for name in ("external", "virtual"):
        assert got[name]["locked"] in got[name]["unreadable"], got[name]


def other_floats():
    """bfloat16 by its properties, in both byte orders; an 8-bit float is nobody's (H19)."""
    with h5py.File("floats.h5", "w") as f:
        for name, order in (("bf", h5py.h5t.ORDER_LE), ("bb", h5py.h5t.ORDER_BE)):
            t = h5py.h5t.IEEE_F32LE.copy()
            t.set_fields(15, 7, 8, 0, 7)
            t.set_size(2)
            t.set_ebias(127)
            t.set_order(order)
            d = h5py.h5d.create(f.id, name.encode(), t, h5py.h5s.create_simple((4,)))
            d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, -2, 0.5, 1e30], "f4"), h5py.h5t.NATIVE_FLOAT)
        t = h5py.h5t.IEEE_F32LE.copy()
        t.set_fields(7, 3, 4, 0, 3)
        t.set_size(1)
        t.set_ebias(7)
        h5py.h5d.create(f.id, b"fp8", t, h5py.h5s.create_simple((4,)))
    got = call("values", "floats.h5")["tensors"]
    top = np.array([1, -2, 0.5, 1e30], "f4").view("u4")
    rounded = ((top + 0x7fff + ((top >> 16) & 1)) >> 16).astype("u2")
    for name in ("bf", "bb"):
        assert got[name]["dtype"] == "BF16", got[name]
        assert values(got[name]).tobytes() == rounded.tobytes(), (name, values(got[name]), rounded)
    assert got["bb"]["big_endian"] and not got["bf"]["big_endian"]
    raw = open("floats.h5", "rb").read()
    assert raw[got["bb"]["offsets"][0]:][:2] == b"\x3f\x80"
    assert got["fp8"]["dtype"] is None and "unknown layout of 1 bytes" in got["fp8"]["locked"]


def links():
    """Hard and soft links are names of one tensor; groups that contain each other end (formats 2.2)."""
    x = np.arange(6, dtype="f4")
    with h5py.File("links.h5", "w") as f:
        f["b/x"] = x
        f["a"] = f["b/x"]
        f["soft"] = h5py.SoftLink("/b/x")
        f["b/soft"] = h5py.SoftLink("x")
        f["b/loop"] = f["/"]
        f["c"] = f["b"]
        f["circle1"] = h5py.SoftLink("/circle2")
        f["circle2"] = h5py.SoftLink("/circle1")
        f["deep"] = h5py.SoftLink("/c/loop/b/x")
        f["b/named-type"] = np.dtype("f4")
    got = call("values", "links.h5")["tensors"]
    assert list(got) == ["a"], got
    assert got["a"]["aliases"] == ["b/x", "c/x", "b/soft", "deep", "soft"], got["a"]["aliases"]
    assert "offset" in call("map", "links.h5", "b/x", "5")
    # a chain of groups deeper than any stack frame count
    with h5py.File("deep.h5", "w") as f:
        g = f
        for _ in range(500):
            g = g.create_group("g")
        g["x"] = x
    got = call("list", "deep.h5")["tensors"]
    assert list(got) == ["g/" * 500 + "x"]


def superblock():
    """Truncation, trailing bytes, open flags (H11, H13)."""
    x = np.arange(1000, dtype="f4")
    for libver, block in (("earliest", 0), ("earliest", 512), ("latest", 0), ("latest", 512)):
        path = f"super-{libver}-{block}.h5"
        write_h5(path, {"x": x}, libver=libver, **({"userblock_size": block} if block else {}))
        raw = open(path, "rb").read()
        for cut in (1, 100, 2000):
            open("cut.h5", "wb").write(raw[:-cut])
            refused("cut.h5", "INVALID", "truncated", f"says {len(raw)} bytes, found {len(raw) - cut}")
        open("long.h5", "wb").write(raw + b"x")
        assert list(call("list", "long.h5")["tensors"]) == ["x"]
        if libver == "latest":
            for flags in (1, 4, 5):
                flagged = bytearray(raw)
                assert flagged[block + 8] == 3
                flagged[block + 11] = flags  # the checksum is then wrong too, as our message must not say
                open("flagged.h5", "wb").write(flagged)
                refused("flagged.h5", "INVALID", "open for writing", f"0x{flags:02x}", "h5clear")
    # a real writer that was killed
    subprocess.run([sys.executable, "-c", "import h5py,os; f=h5py.File('killed.h5','w',libver='latest'); f['x']=1.0;"
                    "f.flush(); os._exit(1)"], timeout=60)
    refused("killed.h5", "INVALID", "open for writing")


def large():
    """Places beyond 2 and 4 GiB (H12); the file is sparse."""
    n = 1_200_000_000
    for libver in ("earliest", "latest"):
        with h5py.File("large.h5", "w", libver=libver) as f:
            dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            dcpl.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            d = h5py.Dataset(h5py.h5d.create(f.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((n,)), dcpl=dcpl))
            d[n - 1] = 1.5
            f["after"] = np.float32(2.5)
        with open("large.h5", "rb") as f:
            for name, elem, value in (("x", n - 1, 1.5), ("after", 0, 2.5)):
                where = call("map", "large.h5", name, str(elem))
                assert where["offset"] > 1 << 32 or name == "after", where
                f.seek(where["offset"])
                assert struct.unpack("<f", f.read(4))[0] == value
    os.remove("large.h5")
    # a shape far beyond what is stored is listed, and not read
    with h5py.File("bomb.h5", "w") as f:
        f.create_dataset("x", shape=(1 << 60,), dtype="f4")
    got = call("list", "bomb.h5")["tensors"]["x"]
    assert got["n_elems"] == 1 << 60 and "never written" in got["locked"]
    answer = call("diff", "bomb.h5", "bomb.h5")
    assert "1000 times" in answer["tensors"]["x"]["why"], answer


def many():
    """Tens of thousands of small datasets in linear time (H16)."""
    import time
    n = 20000
    with h5py.File("many.h5", "w", libver="latest") as f:
        for i in range(n):
            f.create_dataset(f"layer{i % 100}/w{i}", data=np.float32(i))
    start = time.monotonic()
    got = call("list", "many.h5")["tensors"]
    took = time.monotonic() - start
    assert len(got) == n
    assert took < 20, took
    return f"{n} datasets listed in {took:.2f} s"


def ours_read_by_them():
    """Files that we write, read by h5py and safetensors, with equal bits; and equal bytes to theirs."""
    data = arrays()
    data["type/nan"] = np.array([0x7f800001, 0xffc12345, 0x80000000, 1], "u4").view("f4")
    safetensors.numpy.save_file(data, "theirs.safetensors")
    call("copy", "theirs.safetensors", "ours.safetensors", "safetensors")
    assert open("ours.safetensors", "rb").read() == open("theirs.safetensors", "rb").read()
    call("copy", "theirs.safetensors", "ours.h5", "hdf5")
    back = safetensors.numpy.load_file("ours.safetensors")
    with h5py.File("ours.h5") as f:
        assert f.userblock_size == 0
        for name, array in data.items():
            d = f[name]
            assert d.dtype == array.dtype and d.shape == array.shape, (name, d)
            assert d[()].tobytes() == array.tobytes() == back[name].tobytes(), name
            assert d.chunks is None
    assert open("ours.h5", "rb").read(9)[8] == 0  # the earliest superblock
    call("copy", "ours.h5", "again.h5", "hdf5")
    assert open("ours.h5", "rb").read() == open("again.h5", "rb").read()
    answer = call("diff", "ours.h5", "theirs.safetensors")
    assert answer["same_values"] and not answer["same_container"], answer
    # bfloat16, which NumPy has not: made by hand, through HDF5 and back
    bits = np.array([0x3f80, 0xc000, 0x7fc0, 0x0001], "u2")
    header = json.dumps({"b": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    header += b" " * (-len(header) % 8)
    open("bf.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + bits.tobytes())
    call("copy", "bf.safetensors", "bf.h5", "hdf5")
    got = call("values", "bf.h5")["tensors"]["b"]
    assert got["dtype"] == "BF16" and values(got).tobytes() == bits.tobytes()
    with h5py.File("bf.h5") as f:
        as_f32 = np.zeros(4, "f4")
        f["b"].id.read(h5py.h5s.ALL, h5py.h5s.ALL, as_f32, h5py.h5t.NATIVE_FLOAT)
        want = (bits.astype("u4") << 16).view("f4")
        same = (as_f32 == want) | (np.isnan(as_f32) & np.isnan(want))
        assert np.all(same), (as_f32, want)


def distances():
    """The comparison's numbers against NumPy's."""
    a = {"w": rng.standard_normal((300, 70)).astype("f4"), "v": rng.standard_normal(9).astype("f8")}
    b = {k: v.copy() for k, v in a.items()}
    b["w"][5:9] += rng.standard_normal((4, 70)).astype("f4") * 1e-3
    safetensors.numpy.save_file(a, "a.safetensors")
    write_h5("b.h5", b)
    t = call("diff", "a.safetensors", "b.h5")["tensors"]
    x, y = a["w"].astype("f8"), b["w"].astype("f8")
    bits = a["w"].view("u4") ^ b["w"].view("u4")
    assert t["w"]["n_differ"] == np.count_nonzero(bits)
    assert t["w"]["n_bits"] == int(np.unpackbits(bits.view("u1")).sum())
    assert abs(t["w"]["distance"] / (np.linalg.norm(y - x) / np.linalg.norm(x)) - 1) < 1e-12
    assert abs(t["w"]["max_relative"] / np.max(np.abs(y - x) / np.abs(x)) - 1) < 1e-12
    assert t["v"]["n_differ"] == 0 and t["v"]["distance"] == 0


def in_libhdf5(report):
    """Is the innermost frame of a sanitizer's report, but for its own, libhdf5's?"""
    frames = [line for line in report.split(b"\n") if line.startswith(b"    #") and b"__interceptor_" not in line]
    return bool(frames) and b"libhdf5" in frames[0]


def damage():
    """Chunk indexes and links of h5py's files changed byte by byte. libhdf5 may end; we may not answer wrongly."""
    ended = tried = 0
    for libver in ("earliest", "latest"):
        with h5py.File("d.h5", "w", libver=libver) as f:
            f.create_dataset("k", data=np.arange(30, dtype="f4").reshape(5, 6), chunks=(2, 4))
            f.create_dataset("g/z", data=np.arange(30, dtype="f4"), chunks=(10,), compression="gzip")
            f["a"] = f["k"]
            f["s"] = h5py.SoftLink("/g/z")
        raw = open("d.h5", "rb").read()
        used = [i for i, byte in enumerate(raw) if byte]
        for i in used[::max(1, len(used) // 150)]:
            changed = bytearray(raw)
            changed[i] ^= 1 << (i % 8)
            open("damaged.h5", "wb").write(changed)
            # libhdf5 leaks on some of them, which is not ours to find
            p = subprocess.run([tool, "values", "damaged.h5"], capture_output=True, timeout=60,
                               env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
            tried += 1
            if p.returncode < 0 or in_libhdf5(p.stderr):
                ended += 1
                continue
            # what libhdf5 prints when the process ends, if it could not let go of a damaged object
            assert p.stderr == b"" or p.stderr.startswith(b"HDF5: infinite loop closing library"), p.stderr
            answer = json.loads(p.stdout)
            assert p.returncode == ("error" in answer), answer
            for t in answer.get("tensors", {}).values():
                assert all(o + 4 <= len(raw) for o in t.get("offsets", [])), (i, t)
    assert ended * 50 <= tried, (ended, tried)
    return f"{tried} changes, {ended} ended libhdf5"


def main():
    for part in (from_h5py, chunked, locked, other_floats, links, superblock, large, many, ours_read_by_them,
                 distances, damage):
        for old in os.listdir("."):
            if old.endswith((".h5", ".safetensors")):
                os.remove(old)
        if part is links or part is locked:
            write_h5("big.h5", {"type/f4": np.zeros(3, "f4")})
        note = part()
        print(part.__name__, "ok", note or "")


main()
