# SPDX-License-Identifier: Apache-2.0
"""Writes zip archives with every freedom that the format leaves, and every violation that a reader
must refuse. No library does: zipfile and miniz each know one way.

    archive = make([Member("a", b"data", descriptor=8)], end64=True, prefix=b"#!/bin/sh\\n")
"""
import struct
import zlib
from dataclasses import dataclass


@dataclass
class Member:
    name: str
    data: bytes
    method: int = 0
    descriptor: int = 0          # width of its size fields: 4 or 8; 0: none
    signature: bool = True       # of the descriptor
    local64: bool = False        # a zip64 field in the local header
    local_saturated: bool = False  # ... and 0xffffffff in its 32-bit fields
    central64: tuple = ()        # which of "size", "stored", "offset", "disk" are in the zip64 field
    extra: bytes = b""           # further extra fields of the local header
    crc: int = None              # in all places, instead of the right one
    flags: int = 0
    local_name: str = None
    size: int = None             # in the directory, instead of the right one
    stored: int = None
    offset: int = None
    gap: int = 0                 # bytes of no member in front of it
    comment: bytes = b""


def raw_deflate(data, level=6):
    c = zlib.compressobj(level, zlib.DEFLATED, -15)
    return c.compress(data) + c.flush()


def make(members, end64=False, prefix=b"", count_prefix=False, comment=b"", trailing=b"", n=None,
         directory_offset=None, directory_size=None, disks=0):
    out = bytearray(prefix)
    shift = 0 if count_prefix else len(prefix)
    central = bytearray()
    for m in members:
        out += b"\xee" * m.gap
        body = raw_deflate(m.data) if m.method == 8 else m.data
        crc = zlib.crc32(m.data) if m.crc is None else m.crc
        name = m.name.encode()
        local_name = name if m.local_name is None else m.local_name.encode()
        flags = m.flags | (8 if m.descriptor else 0)
        at = len(out) - shift
        here = (0, 0, 0) if m.descriptor else (crc, len(body), len(m.data))
        extra = m.extra
        if m.local64:
            extra = struct.pack("<HHQQ", 1, 16, here[2], here[1]) + extra
        sizes = (0xffffffff, 0xffffffff) if m.local_saturated else here[1:]
        out += struct.pack("<IHHHHHIIIHH", 0x04034b50, 45 if m.local64 else 20, flags, m.method, 0,
                           0x21, here[0], *sizes, len(local_name), len(extra))
        out += local_name + extra + body
        if m.descriptor:
            out += b"PK\x07\x08" if m.signature else b""
            out += struct.pack("<IQQ" if m.descriptor == 8 else "<III", crc, len(body), len(m.data))
        fields = {"size": len(m.data) if m.size is None else m.size,
                  "stored": len(body) if m.stored is None else m.stored,
                  "offset": at if m.offset is None else m.offset, "disk": 0}
        wide = b"".join(struct.pack("<I" if k == "disk" else "<Q", fields[k])
                        for k in ("size", "stored", "offset", "disk") if k in m.central64)
        full = {"size": 0xffffffff, "stored": 0xffffffff, "offset": 0xffffffff, "disk": 0xffff}
        small = {k: full[k] if k in m.central64 else fields[k] for k in fields}
        extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
        central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 20, 20, flags, m.method, 0, 0x21,
                               crc, small["stored"], small["size"], len(name), len(extra),
                               len(m.comment), small["disk"], 0, 0, small["offset"])
        central += name + extra + m.comment
    at = len(out) - shift if directory_offset is None else directory_offset
    size = len(central) if directory_size is None else directory_size
    n = len(members) if n is None else n
    out += central
    if end64:
        where = len(out) - shift
        out += struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, disks, 0, n, n, size, at)
        out += struct.pack("<IIQI", 0x07064b50, 0, where, 1)
        out += struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff,
                           len(comment))
    else:
        out += struct.pack("<IHHHHIIH", 0x06054b50, disks, 0, n, n, size, at, len(comment))
    return bytes(out) + comment + trailing
