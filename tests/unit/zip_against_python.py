# SPDX-License-Identifier: Apache-2.0
"""The zip reader against Python's zipfile on archives with every freedom of the format, and on
damaged ones that must be refused."""
import io
import os
import subprocess
import sys
import zipfile
import zlib

import numpy as np

from limits import memory_limit
from zipmaker import Member, make

TOOL = sys.argv[1]
LIMIT = memory_limit(TOOL, 4 << 30)


def run(verb, path, *args):
    return subprocess.run([TOOL, verb, path, *map(str, args)], timeout=100, capture_output=True,
                          text=True, preexec_fn=LIMIT)


def listing(verb, data, *args):
    open("z.zip", "wb").write(data)
    r = run(verb, "z.zip", *args)
    assert r.returncode == 0, r.stdout + r.stderr
    lines = r.stdout.splitlines()
    words = lines[1].split()
    top = {k: int(v) for k, v in zip(words[::2], words[1::2])}
    keys = "method crc stored size header data descriptor shadowed whole place0 place1 name".split()
    rows = [dict(zip(keys, line.split(" ", len(keys) - 1))) for line in lines[2:]]
    for row in rows:
        for k in keys[:-1]:
            row[k] = int(row[k], 16 if k == "crc" else 10)
    return lines[0].split()[1], top, rows


def refused(data, *words, args=()):
    open("z.zip", "wb").write(data)
    r = run("list", "z.zip", *args)
    assert r.returncode == 1, (r.stdout, words)
    for word in words:
        assert word in r.stdout, (r.stdout, word)


def same_as_zipfile(data):
    kind, top, rows = listing("list", data)
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        infos = z.infolist()
        assert len(infos) == len(rows)
        for info, row in zip(infos, rows):
            assert (info.filename, info.CRC, info.compress_size, info.file_size,
                    info.header_offset) == (row["name"], row["crc"], row["stored"], row["size"],
                                            row["header"]), (info, row)
            raw = data[row["data"]:row["data"] + row["stored"]]
            whole = zlib.decompress(raw, -15) if row["method"] == 8 else raw
            assert zlib.crc32(whole) == row["crc"]
            for k in ("place0", "place1"):
                assert int.from_bytes(data[row[k]:row[k] + 4], "little") == row["crc"], row
    return kind, top, rows


DATA = bytes(range(256)) * 5


def check_freedoms():
    for width in (4, 8):
        for signature in (True, False):
            for local64 in (False, True):
                for end64 in (False, True):
                    _, top, rows = same_as_zipfile(make(
                        [Member("a", DATA, descriptor=width, signature=signature, local64=local64),
                         Member("b", b"", descriptor=width, signature=signature, local64=local64),
                         Member("c", DATA, method=8, descriptor=width, signature=signature)],
                        end64=end64))
                    # of an empty member the place of the CRC is the same for both widths
                    want = 4 * signature + 4 + 2 * width
                    assert rows[0]["descriptor"] == rows[2]["descriptor"] == want, rows
                    assert rows[1]["descriptor"] in (want, want - 8), rows
                    assert top["zip64"] == end64
    for wide in ((), ("size",), ("stored",), ("offset",), ("size", "stored"), ("stored", "offset"),
                 ("size", "stored", "offset"), ("size", "stored", "offset", "disk")):
        same_as_zipfile(make([Member("first", b"x"), Member("a", DATA, central64=wide, local64=True,
                                                            local_saturated=True)]))
    same_as_zipfile(make([]))
    same_as_zipfile(make([], end64=True))
    same_as_zipfile(make([Member("a", DATA, extra=b"FB\x20\x00" + b"Z" * 32)], comment=b"words"))
    same_as_zipfile(make([Member("a", DATA, comment=b"PK\x01\x02")]))
    # a comment with the signature of the end record, which zipfile itself gives up on
    _, _, rows = listing("list", make([Member("a", DATA)], comment=b"PK\5\6" + b"\0" * 30))
    assert [r["name"] for r in rows] == ["a"]
    # a prefix that the archive's offsets do not count, and one that they do
    for prefix in (b"", b"#!/bin/sh\n", b"\0" * 5000):
        for counted in (False, True):
            for end64 in (False, True):
                open("z.zip", "wb").write(make([Member("a", DATA), Member("b", DATA, method=8)],
                                               prefix=prefix, count_prefix=counted, end64=end64))
                _, top, _ = same_as_zipfile(open("z.zip", "rb").read())
                assert top["prefix"] == (0 if counted else len(prefix))


def check_range():
    """An archive inside a file: the directory is that of the range, offsets are the file's."""
    inner = make([Member("a", DATA), Member("b", DATA, descriptor=8)])
    outer = b"\1" * 777 + inner + make([Member("other", b"")])
    _, top, rows = listing("list", outer, 777, len(inner))
    assert [r["name"] for r in rows] == ["a", "b"]
    assert outer[rows[0]["data"]:rows[0]["data"] + len(DATA)] == DATA
    refused(outer, "not inside", args=(777, len(outer)))


def check_numpy_and_pipes():
    """What NumPy and zipfile write, to files and to pipes (descriptors)."""
    class Pipe(io.BytesIO):
        def seek(self, *args):
            raise io.UnsupportedOperation("seek")

        def seekable(self):
            return False

        def tell(self):
            raise io.UnsupportedOperation("tell")

    for save in (np.savez, np.savez_compressed):
        for target in (io.BytesIO, Pipe):
            b = target()
            save(b, w=np.arange(1000.), **{"a/b": np.zeros(3, "f2")})
            kind, _, rows = same_as_zipfile(b.getvalue())
            assert kind == "npz"
            assert all(bool(r["descriptor"]) == (target is Pipe) for r in rows)


def check_names():
    a = make([Member("a", b"1"), Member("b", b"2"), Member("a", b"3")])
    _, top, rows = listing("list", a)
    assert top["shadowed"] == 1 and [r["shadowed"] for r in rows] == [1, 0, 0]
    kinds = {"torch": ["x/data.pkl", "x/version"], "keras": ["config.json", "model.weights.h5"],
             "npz": ["a.npy"], "other": ["readme"]}
    for kind, names in kinds.items():
        assert listing("list", make([Member(n, b"") for n in names]))[0] == kind


def check_damage():
    few = DATA[:40]
    good = make([Member("a", few), Member("b", few, method=8), Member("c", few, descriptor=4)])
    refused(make([Member("a", DATA, flags=1)]), "UNSUPPORTED", "encrypted")
    refused(make([Member("a", DATA)], disks=1), "UNSUPPORTED", "disks")
    refused(make([Member("a", DATA)], disks=1, end64=True), "UNSUPPORTED", "disks")
    refused(make([Member("a", DATA, local_name="b")]), "another name")
    refused(make([Member("a", DATA, size=7)]), "two sizes differ")
    refused(make([Member("a", DATA, size=1 << 40, stored=1 << 40,
                         central64=("size", "stored"))]), "out of bounds")
    refused(make([Member("a", DATA, offset=5)]), "no local header")
    for offset in (10 ** 6, (1 << 64) - 1, (1 << 64) - 30, 1 << 63):
        refused(make([Member("a", DATA, offset=offset, central64=("offset",))]), "out of bounds")
    for size in ((1 << 64) - 1, 1 << 63, (1 << 64) - 1000):
        refused(make([Member("a", DATA, size=size, stored=size, central64=("size", "stored"))]),
                "out of bounds")
    refused(make([Member("a", b""), Member("b", DATA), Member("b", DATA, offset=31)]), "overlap")
    refused(make([Member("a\0b", DATA)]), "INVALID", "NUL")
    refused(make([Member("a", DATA, comment=b"-" * 60)], n=2), "member 1: no header")
    refused(make([Member("a", DATA)], n=0), "after its last member")
    refused(make([Member("a", DATA)], n=50000), "do not fit")
    refused(make([Member("a", DATA)], n=1 << 63, end64=True), "LIMIT")
    refused(make([Member("a", DATA)], directory_size=1 << 62, end64=True), "truncated")
    refused(make([Member("a", DATA)], directory_offset=1 << 62, end64=True), "truncated")
    refused(make([Member("a", DATA, central64=("size",))]).replace(b"\1\0\x08\0", b"\1\0\x04\0"))
    _, top, _ = listing("list", good + b"tail")
    assert top["trailing"] == 4
    for cut in range(len(good)):  # never accepted, never a crash
        refused(good[:cut], "INVALID")


def check_salvage():
    """A file whose end was never written: the whole members are found, with their places."""
    for kw in ({}, {"descriptor": 4}, {"descriptor": 8}, {"local64": True},
               {"local64": True, "local_saturated": True}):
        # data with a false descriptor inside: signature, but neither size nor CRC right
        traps = b"PK\7\10" + b"\1\2\3\4" + (4).to_bytes(4, "little") * 2 + DATA
        data = make([Member("a", DATA, **kw), Member("x/b", traps, **kw),
                     Member("c", DATA * 200, **kw)], end64=True)
        _, _, rows = listing("list", data)
        for cut, want in ((rows[1]["header"], "a"), (rows[1]["header"] + 900, "a"),
                          (rows[2]["header"] + 40000, "a x/b"), (len(data) - 60, "a x/b c")):
            part = data[:cut]
            _, _, found = listing("salvage", part)
            assert " ".join(r["name"] for r in found if r["whole"]) == want, (kw, cut, found)
            for f, r in zip((f for f in found if f["whole"]), rows):
                assert all(f[k] == r[k] for k in ("data", "stored", "size", "crc", "place0")), f
            refused(part, "truncated", ": " + want.replace(" ", ", "))
    # a writer that computes no CRCs
    data = make([Member("a", DATA, descriptor=4, crc=0), Member("b", DATA, descriptor=4, crc=0)])
    _, _, found = listing("salvage", data[:-100])
    assert [r["whole"] for r in found] == [1, 1]
    # a killed zipfile writer: the last member's sizes were to be filled in at its end
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w") as z:
        z.writestr("a", DATA)
        with z.open("b", "w") as m:
            m.write(DATA)
            m._fileobj.flush()
            cut = b.getvalue()
    _, _, found = listing("salvage", cut)
    assert [(r["name"], r["whole"]) for r in found] == [("a", 1), ("b", 0)]


def check_sparse():
    """Offsets and sizes over 4 GiB: a hole as member, then another member."""
    import struct
    size = (1 << 32) + 12345
    with open("big.zip", "wb") as f:
        f.write(struct.pack("<IHHHHHIIIHH", 0x04034b50, 45, 0, 0, 0, 0x21, 0, 0xffffffff,
                            0xffffffff, 3, 20) + b"big" + struct.pack("<HHQQ", 1, 16, size, size))
        f.truncate(f.tell() + size)
        at = f.seek(0, 2)
        f.write(struct.pack("<IHHHHHIIIHH", 0x04034b50, 20, 0, 0, 0, 0x21, zlib.crc32(b"xyz"), 3, 3,
                            5, 0) + b"after" + b"xyz")
        d = f.tell()
        f.write(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 45, 45, 0, 0, 0, 0x21, 0, 0xffffffff,
                            0xffffffff, 3, 20, 0, 0, 0, 0, 0) + b"big"
                + struct.pack("<HHQQ", 1, 16, size, size))
        f.write(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 45, 45, 0, 0, 0, 0x21,
                            zlib.crc32(b"xyz"), 3, 3, 5, 12, 0, 0, 0, 0, 0xffffffff) + b"after"
                + struct.pack("<HHQ", 1, 8, at))
        e = f.tell()
        f.write(struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, 2, 2, e - d, d))
        f.write(struct.pack("<IIQI", 0x07064b50, 0, e, 1))
        f.write(struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 2, 2, e - d, 0xffffffff, 0))
    r = run("list", "big.zip")
    assert r.returncode == 0, r.stdout
    rows = [line.split() for line in r.stdout.splitlines()[2:]]
    assert [int(x[2]) for x in rows] == [size, 3] and int(rows[1][4]) == at
    with zipfile.ZipFile("big.zip") as z:
        assert z.infolist()[1].header_offset == at
    os.remove("big.zip")


def check_many():
    """Linear in the number of members: 200,000 take well under a few seconds."""
    n = 200000
    data = make([Member("m/%d" % i, b"12345678") for i in range(n)], end64=True)
    open("many.zip", "wb").write(data)
    with open("many.txt", "w") as out:
        subprocess.run([TOOL, "list", "many.zip"], stdout=out, check=True, timeout=60)
    assert sum(1 for _ in open("many.txt")) == n + 2
    os.remove("many.zip")
    os.remove("many.txt")


check_freedoms()
check_range()
check_numpy_and_pipes()
check_names()
check_damage()
check_salvage()
check_sparse()
check_many()
