# SPDX-License-Identifier: Apache-2.0
"""Checksums against zlib, and against those that libhdf5 stores: Fletcher-32 of chunks, lookup3 of
the superblock."""
import random
import struct
import subprocess
import sys
import zlib

import h5py
import numpy as np

TOOL = sys.argv[1]


def sums(path, offset, length):
    out = subprocess.run([TOOL, path, str(offset), str(length)], check=True, timeout=60,
                         capture_output=True, text=True).stdout
    return {k: int(v, 16) for k, v in (line.split() for line in out.splitlines())}


def check_zlib():
    rng = random.Random(5)
    for length in (0, 1, 2, 3, 7, 8, 9, 359, 360, 361, 719, 720, 721, 1000, 65537):
        data = rng.randbytes(length + 3)
        open("data.bin", "wb").write(data)
        assert sums("data.bin", 3, length)["crc32"] == zlib.crc32(data[3:]), length


def check_fletcher():
    rng = np.random.default_rng(1)
    for k, (dtype, n) in enumerate([("f4", 7), ("u1", 1), ("u1", 721), ("u1", 33333), ("u1", 65535),
                                    ("f8", 4096), ("u1", 2)]):
        data = rng.integers(0, 256, n * np.dtype(dtype).itemsize, dtype="u1").view(dtype)
        if n == 65535:
            data[:] = 255
        with h5py.File("f.h5", "w") as f:
            f.create_dataset("x", data=data, chunks=(n,), fletcher32=True)
        with h5py.File("f.h5") as f:
            info = f["x"].id.get_chunk_info(0)
        size = data.nbytes
        assert info.size == size + 4
        raw = open("f.h5", "rb").read()
        stored, = struct.unpack_from("<I", raw, info.byte_offset + size)
        assert sums("f.h5", info.byte_offset, size)["fletcher32"] == stored, (k, n)


def check_lookup3():
    with h5py.File("latest.h5", "w", libver="latest") as f:
        f["a"] = np.arange(5)
    raw = open("latest.h5", "rb").read()
    assert raw[8] == 3
    stored, = struct.unpack_from("<I", raw, 44)
    assert sums("latest.h5", 0, 44)["lookup3"] == stored
    # an object header: its size is in the byte after the flags (chunk 0 size of one byte)
    at = raw.index(b"OHDR")
    flags = raw[at + 5]
    skip = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
    width = 1 << (flags & 3)
    size = int.from_bytes(raw[at + skip:at + skip + width], "little")
    end = at + skip + width + size
    stored, = struct.unpack_from("<I", raw, end)
    assert sums("latest.h5", at, end - at)["lookup3"] == stored


check_zlib()
check_fletcher()
check_lookup3()
