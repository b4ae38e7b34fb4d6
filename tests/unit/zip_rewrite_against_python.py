# SPDX-License-Identifier: Apache-2.0
"""Rewritten archives, read back by Python's zipfile: the planned bytes of the planned members are
new, everything else is as it was."""
import io
import os
import random
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np

from zipmaker import Member, make

TOOL, LIST = sys.argv[1:3]
RNG = random.Random(11)


def rewrite(data, *args):
    for name in ("from.zip", "to.zip"):
        if os.path.exists(name):
            os.remove(name)
    open("from.zip", "wb").write(data)
    r = subprocess.run([TOOL, "from.zip", "to.zip", *map(str, args)], timeout=60,
                       capture_output=True, text=True)
    return r, open("to.zip", "rb").read()


def contents(data):
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return [(i, z.read(i)) for i in z.infolist()]


SAME = ("filename date_time compress_type comment create_system create_version "
        "flag_bits volume internal_attr external_attr").split()


def check(data, edits):
    """edits: {member: {offset: bytes} or bytes of a new content}"""
    args = []
    for name, edit in edits.items():
        if isinstance(edit, bytes):
            open("content." + str(len(args)), "wb").write(edit)
            args += [name, "with", "content." + str(len(args))]
            continue
        for at, new in sorted(edit.items()):
            args += [name, at, new.hex()]
    r, new = rewrite(data, *args)
    assert r.returncode == 0, r.stdout
    before, after = contents(data), contents(new)
    assert len(before) == len(after)
    for (i, old), (j, now) in zip(before, after):
        for k in SAME:
            assert getattr(i, k) == getattr(j, k), (k, i, j)
        edit = edits.get(i.filename)
        want = bytearray(old)
        if isinstance(edit, bytes):
            want = edit
        elif edit:
            for at, b in edit.items():
                want[at:at + len(b)] = b
        assert now == bytes(want), i.filename
        strip = lambda x: [f for f in fields(x.extra) if f[0] != 1]
        assert strip(i) == strip(j)
        if edit is None:
            a, b = raw(data, i), raw(new, j)
            assert a == b, i.filename
    # and by our own reader, which checks every header
    s = subprocess.run([LIST, "list", "to.zip"], timeout=60, capture_output=True, text=True)
    assert s.returncode == 0, s.stdout
    return new


def fields(extra):
    out = []
    while len(extra) >= 4:
        kind, n = struct.unpack_from("<HH", extra)
        out.append((kind, extra[4:4 + n]))
        extra = extra[4 + n:]
    return out


def raw(data, info):
    n_name, n_extra = struct.unpack_from("<HH", data, info.header_offset + 26)
    at = info.header_offset + 30 + n_name + n_extra
    return data[info.header_offset:at + info.compress_size]


def check_numpy():
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def seek(self, *args):
            raise io.UnsupportedOperation("seek")

        def tell(self):
            raise io.UnsupportedOperation("tell")

    for save in (np.savez, np.savez_compressed):
        for target in (io.BytesIO, Pipe):
            b = target()
            arrays = {"w%d" % k: np.random.default_rng(k).normal(size=400 * k) for k in range(5)}
            save(b, **arrays)
            new = check(b.getvalue(), {"w1.npy": {130: b"\x55"}, "w3.npy": {
                200: b"\1\2\3\4\5\6\7\x40", 3000: b"\7"}})
            with np.load(io.BytesIO(new)) as z:
                for name, a in arrays.items():
                    assert int((z[name].view("u8") != a.view("u8")).sum()) <= 3
                    assert (z[name].tobytes() == a.tobytes()) == (name not in ("w1", "w3"))
            open("cut.zip", "wb").write(new)


def check_freedoms():
    blob = RNG.randbytes(300000) + bytes(300000)  # patches on both sides of a block's end
    edits = {"b": {0: b"\xff", 262140: b"ABCDEFGH", 599999: b"\1"}}
    for kw in ({}, {"descriptor": 4}, {"descriptor": 8}, {"descriptor": 4, "signature": False},
               {"descriptor": 8, "local64": True}, {"local64": True},
               {"local64": True, "local_saturated": True, "central64": ("size", "stored")},
               {"central64": ("offset",)}, {"central64": ("size", "stored", "offset", "disk")},
               {"comment": b"about b", "extra": b"FB\4\0ZZZZ"}):
        for end in ({}, {"end64": True}, {"prefix": b"#!prefix"}, {"comment": b"the end"},
                    {"prefix": b"12", "count_prefix": True, "end64": True}):
            for method in (0, 8):
                data = make([Member("a", blob[:1000]), Member("b", blob, method=method, **kw),
                             Member("c", b"tail" * 100, method=8, **kw)], **end)
                new = check(data, edits)
                check(data, {"b": b"shorter", "c": blob})
                if end.get("comment"):
                    assert new.endswith(b"the end")
                if "prefix" in end:
                    assert new.startswith(end["prefix"])
    # the directory is not in the order of the file
    data = make([Member("a", blob, method=8), Member("b", blob, method=8)])
    at = data.index(b"PK\1\2")
    one = data[at:at + 47]
    check(data[:at] + data[at + 47:at + 94] + one + data[at + 94:], edits)
    # hidden members, gaps
    check(make([Member("b", b"first"), Member("x", blob, method=8, gap=7), Member("b", blob)]),
          {"x": {5: b"z"}})


def check_crcs():
    """A right CRC stays right, a wrong one wrong by the same amount, an absent one absent."""
    text = b"weights " * 1000
    for method in (0, 8):
        for crc, want in ((zlib.crc32(text) ^ 0x1234, None), (0, 0)):
            data = make([Member("b", text, method=method, crc=crc)])
            r, new = rewrite(data, "b", 3, "41")
            assert r.returncode == 0
            changed = bytearray(text)
            changed[3] = 0x41
            if want is None:
                want = zlib.crc32(bytes(changed)) ^ 0x1234
            with zipfile.ZipFile(io.BytesIO(new)) as z:
                assert z.infolist()[0].CRC == want


def check_damage():
    text = RNG.randbytes(1000) + bytes(5000)
    good = make([Member("b", text, method=8)])
    at = good.index(b"b", 30) + 1
    r, _ = rewrite(make([Member("b", text, method=8, size=7000)]), "b", 0, "00")
    assert "truncated" in r.stdout and "zip member b" in r.stdout, r.stdout
    r, _ = rewrite(make([Member("b", text, method=8, size=5000)]), "b", 0, "00")
    assert "more than 5000 bytes" in r.stdout, r.stdout
    r, _ = rewrite(good[:at] + b"\xff" * 8 + good[at + 8:], "b", 0, "00")
    assert "damaged deflated data" in r.stdout, r.stdout
    r, _ = rewrite(make([Member("b", text, method=12)]), "b", 0, "00")
    assert "UNSUPPORTED" in r.stdout and "method 12" in r.stdout, r.stdout


check_numpy()
check_freedoms()
check_crcs()
check_damage()
