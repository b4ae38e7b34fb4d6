#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The SSTable reader against a writer and reader in Python (tests/harness/tensorbundle.py): settings of
the table format, snappy blocks, and every kind of damage. Usage: sst_against_python.py TOOL"""
import random
import struct
import subprocess
import sys

import tensorbundle as tb


def run(data):
    with open("t.sst", "wb") as f:
        f.write(data)
    p = subprocess.run([sys.argv[1], "t.sst"], capture_output=True, text=True, timeout=60)
    assert p.returncode in (0, 1), (p.returncode, p.stderr)
    return p


def unhex(text):
    return b"" if text == "-" else bytes.fromhex(text)


def listing(data):
    p = run(data)
    assert p.returncode == 0, p.stderr
    blocks, entries = [], []
    for line in p.stdout.splitlines():
        words = line.split()
        if words[0] == "block":
            blocks.append((" ".join(words[1:-3]), int(words[-3]), int(words[-2]), words[-1] == "1"))
        else:
            entries.append((unhex(words[1]), int(words[2]), int(words[3]), unhex(words[4])))
    return blocks, entries


def settings():
    rng = random.Random(4)
    names = {f"layer{rng.randrange(40)}/{w}/{rng.randrange(9)}".encode() for w in ("kernel", "bias", "m") for _ in range(40)}
    content = {n: rng.randbytes(rng.choice((0, 3, 20, 300))) for n in names}
    content[b""] = b"header"
    content[b"\x00sl\x00\xffice"] = b"\x00" * 50
    for interval in (1, 2, 16):
        for size in (64, 1000, 262144):
            for compress in (False, True):
                data = tb.Table(interval, size, compress).write(content)
                blocks, entries = listing(data)
                want = [(k, v, -1 if at is None else at, b) for k, v, at, b in tb.read_table(data)]
                got = [(k, v, at, (blocks[b][1], blocks[b][2])) for k, b, at, v in entries]
                assert got == want, (interval, size, compress)
                assert {k: v for k, _, _, v in entries} == content
                assert all(b[3] == compress for b in blocks)
                for _, offset, n, _ in blocks:  # the sums lie where the reader says blocks end
                    stored = struct.unpack_from("<I", data, offset + n + 1)[0]
                    assert stored == tb.masked(data[offset:offset + n + 1])
                assert (len(blocks) == 3) == (size == 262144), len(blocks)
    print("settings ok")


def refused(data, *words):
    p = run(data)
    assert p.returncode == 1, p.stdout
    for w in words:
        assert w in p.stderr, (w, p.stderr)


def damage():
    content = {f"key{i:03d}".encode(): bytes([i]) * 30 for i in range(20)}
    good = tb.Table(block_size=200).write(content)
    for n in (0, 10, 47):  # shorter than a footer
        refused(good[-n:] if n else b"", "truncated", str(n))
    refused(good[:48], "not a table")
    refused(good[:-1], "not a table")
    assert listing(tb.Table().write({}))[1] == []
    meta_at = tb.read_varint(good, len(good) - 48)[0]

    def footer(*handles):
        return good[:-48] + b"".join(tb.varint(x) for x in handles).ljust(40, b"\0") + good[-8:]
    refused(footer(0, 1 << 63, 0, 8), "bounds")
    refused(footer(meta_at, 8, (1 << 64) - 1, 2), "bounds")
    refused(footer(meta_at, 8, len(good) - 48, 0), "bounds")
    refused(good[:-48] + b"\xff" * 40 + good[-8:], "footer")

    def with_block(block, kind=0):
        """A table whose only data block is this."""
        data = block + bytes([kind]) + b"\0" * 4
        meta = tb.make_block([])
        index = tb.make_block([(b"z", tb.varint(0) + tb.varint(len(block)))])
        at = len(data)
        data += meta + b"\0" * 5 + index + b"\0" * 5
        ends = [at, len(meta), at + len(meta) + 5, len(index)]
        return data + b"".join(tb.varint(x) for x in ends).ljust(40, b"\0") + good[-8:]
    tail = struct.pack("<II", 0, 1)
    assert listing(with_block(b"\0\1\1kv" + tail))[1] == [(b"k", 2, 4, b"v")]
    refused(with_block(b"\1\1\1kv" + tail), "damaged")  # shares a byte with no key
    refused(with_block(b"\0\5\1kv" + tail), "damaged")
    refused(with_block(b"\0\1\5kv" + tail), "damaged")
    refused(with_block(b"\0\1\xff\xff\xff\xff\xffkv" + tail), "damaged")
    refused(with_block(b"\0\1\1kv" + struct.pack("<I", 9)), "damaged")  # more restarts than room
    refused(with_block(b"\0"), "damaged")
    refused(with_block(b"\0\1\1kv\0\1\1kv" + tail), "do not ascend")
    refused(with_block(b"\0\1\1kv" + tail, 2), "type 2")
    refused(with_block(b"\0\1\1kv" + tail, 1), "snappy")
    refused(with_block(tb.varint(1 << 31) + b"\0a", 1), "snappy")  # claims 2 GiB
    overlap = tb.make_block([(b"a", tb.varint(0) + tb.varint(8)), (b"b", tb.varint(0) + tb.varint(8))], 1)
    meta = tb.make_block([])
    data = meta + b"\0" * 5
    twice = data + overlap + b"\0" * 5 + b"".join(tb.varint(x) for x in (0, 8, 13, len(overlap))).ljust(40, b"\0") + good[-8:]
    refused(twice, "damaged")  # the same block again and again
    # each byte of the table, changed: an answer or a refusal
    rng = random.Random(5)
    for at in rng.sample(range(len(good)), 150):
        bad = bytearray(good)
        bad[at] ^= rng.randrange(1, 256)
        run(bytes(bad))
    print("damage ok")


settings()
damage()
