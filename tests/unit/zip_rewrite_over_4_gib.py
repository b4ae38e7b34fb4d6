# SPDX-License-Identifier: Apache-2.0
"""Rewritten archives in which sizes or offsets pass 4 GiB: zip64 fields and end records where there were
none, read back by Python's zipfile. Sparse files: gigabytes on paper, megabytes on the disk.

Usage: zip_rewrite_over_4_gib.py ZIP_REWRITE_TOOL ZIP_TOOL
"""
import os
import random
import struct
import subprocess
import sys
import zipfile
import zlib

from zipmaker import Member, make

TOOL, LIST = sys.argv[1:3]
GIB4 = 1 << 32
RNG = random.Random(5)


def put_behind(hole, archive, path):
    """Writes the archive with a stored member "hole" of so many zeros, of unknown CRC, in front of the
    others, without any zip64 field: the archive's own offsets must leave room for it."""
    name = b"hole"
    head = struct.pack("<IHHHHHIIIHH", 0x04034b50, 20, 0, 0, 0, 0x21, 0, hole, hole, len(name), 0) + name
    central = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 20, 20, 0, 0, 0, 0x21, 0, hole, hole, len(name), 0, 0, 0, 0, 0, 0) + name
    shift = len(head) + hole
    end = archive.rindex(b"PK\5\6")
    n, size, at = struct.unpack_from("<H2I", archive, end + 10)
    directory = bytearray(archive[at:at + size])
    place = 0
    for _ in range(n):
        old = struct.unpack_from("<I", directory, place + 42)[0]
        struct.pack_into("<I", directory, place + 42, old + shift)
        place += 46 + sum(struct.unpack_from("<3H", directory, place + 28))
    with open(path, "wb") as f:
        f.write(head)
        f.seek(hole, os.SEEK_CUR)
        f.write(archive[:at] + central + directory)
        f.write(struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, n + 1, n + 1, size + len(central), at + shift, 0))
    return at + shift


def rewrite(*args, code=0):
    if os.path.exists("to.zip"):
        os.remove("to.zip")
    r = subprocess.run([TOOL, "from.zip", "to.zip", *map(str, args)], timeout=800, capture_output=True, text=True)
    assert r.returncode == code, r.stdout
    return r.stdout


def listed():
    s = subprocess.run([LIST, "list", "to.zip"], timeout=60, capture_output=True, text=True)
    assert s.returncode == 0, s.stdout
    return s.stdout


def end_records(path):
    with open(path, "rb") as f:
        f.seek(-4096, os.SEEK_END)
        tail = f.read()
    return b"PK\6\6" in tail, b"PK\6\7" in tail


def check_directory_passes():
    """The directory, then headers as well, move past 4 GiB."""
    text = b"weights " * 5000
    long = RNG.randbytes(3 << 20)  # deflates to more than the room that is left
    open("long", "wb").write(long)
    for more in ({}, {"descriptor": 4}, {"descriptor": 8}):
        archive = make([Member("a", text, method=8, **more), Member("b", text, method=8, **more), Member("c", b"stored", **more)])
        at = put_behind(GIB4 - (1 << 20), archive, "from.zip")
        assert at < GIB4 and end_records("from.zip") == (False, False)
        with zipfile.ZipFile("from.zip") as z:
            assert z.read("a") == text and len(z.infolist()) == 4
        rewrite("a", "with", "long", "b", 7, "58")
        assert end_records("to.zip") == (True, True)
        with zipfile.ZipFile("to.zip") as z:
            assert [i.filename for i in z.infolist()] == ["hole", "a", "b", "c"]
            offsets = {i.filename: i.header_offset for i in z.infolist()}
            assert offsets["a"] < GIB4 < offsets["b"] < offsets["c"], offsets
            assert z.read("a") == long and z.read("b") == text[:7] + b"X" + text[8:] and z.read("c") == b"stored"
        assert " hole" in listed()
        # and back below: what was widened may stay so
        os.replace("to.zip", "from.zip")
        open("short", "wb").write(b"short")
        rewrite("a", "with", "short")
        with zipfile.ZipFile("to.zip") as z:
            assert z.read("a") == b"short" and z.read("b")[7:8] == b"X" and z.read("c") == b"stored"
            assert all(i.header_offset < GIB4 for i in z.infolist())
        listed()


def check_end_records_stay():
    """An archive that has zip64 end records with small numbers keeps them, and they are right."""
    text = b"weights " * 5000
    archive = make([Member("a", text, method=8), Member("b", text)], end64=True)
    open("from.zip", "wb").write(archive)
    rewrite("a", 0, "57")
    with zipfile.ZipFile("to.zip") as z:
        assert z.read("a") == b"W" + text[1:] and z.read("b") == text
    data = open("to.zip", "rb").read()
    at = data.rindex(b"PK\6\6")
    n, total, size, directory = struct.unpack_from("<4Q", data, at + 24)
    assert n == total == 2 and directory + size == at and data[directory:directory + 4] == b"PK\1\2"
    assert struct.unpack_from("<Q", data, data.rindex(b"PK\6\7") + 8)[0] == at


def check_member_passes():
    """A member itself grows past 4 GiB, stored in a few megabytes."""
    size = GIB4 + 12345
    with open("huge", "wb") as f:
        f.truncate(size)
        f.seek(GIB4 + 77)
        f.write(b"beyond")
    for more in ({}, {"descriptor": 8}):
        open("from.zip", "wb").write(make([Member("m", b"small " * 100, method=8, **more), Member("after", b"text")]))
        rewrite("m", "with", "huge")
        with zipfile.ZipFile("to.zip") as z:
            i = z.getinfo("m")
            assert i.file_size == size and i.compress_size < 1 << 24 and z.read("after") == b"text"
            with z.open("m") as f:  # to its end, so that zipfile compares the CRC
                crc = tail = 0
                while block := f.read(1 << 24):
                    crc, tail = zlib.crc32(block, crc), block
            assert crc == i.CRC and b"beyond" in tail
        assert f" {size} " in listed()
        if not more:  # a bit behind 4 GiB of what is there now
            os.replace("to.zip", "from.zip")
            rewrite("m", GIB4 + 79, "59")
            with zipfile.ZipFile("to.zip") as z, z.open("m") as f:
                assert z.getinfo("m").file_size == size
                while block := f.read(1 << 24):
                    tail = block
                assert b"beYond" in tail
    # a descriptor of 32 bits cannot say it
    open("from.zip", "wb").write(make([Member("m", b"small " * 100, method=8, descriptor=4)]))
    said = rewrite("m", "with", "huge", code=1)
    assert "would grow past 4 GiB, its descriptor holds 32 bits" in said, said


check_directory_passes()
check_end_records_stay()
check_member_passes()
for name in ("huge", "long", "short", "from.zip", "to.zip"):
    if os.path.exists(name):
        os.remove(name)
