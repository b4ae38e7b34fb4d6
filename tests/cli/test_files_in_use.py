#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Altering files that another process has open or mapped: in place nothing is truncated, so that its
mapping stays whole, and it is told of; what is replaced stays as it was for who has it open."""
import json
import mmap
import os
import subprocess
import sys
import threading
import traceback
import zipfile

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

SDCLAB = os.environ["SDCLAB"]
WARNING = f"is mapped by process {os.getpid()}, which"


def run(*args, code=0):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    return p


def fresh(*paths):
    for path in paths:
        for name in (path, path + ".sdc.jsonl"):
            if os.path.exists(name):
                os.remove(name)


def contents(path):
    with open(path, "rb") as f:
        return f.read()


def mapped(path):
    """Mapped by this process, its descriptor closed again."""
    with open(path, "rb") as f:
        return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)


def test_a_mapped_file():
    fresh("a.safetensors", "b.safetensors", "unmapped.safetensors")
    for path in ("a.safetensors", "unmapped.safetensors"):
        save_file({"w": np.arange(5000, dtype=np.float32)}, path)
    before, inode = contents("a.safetensors"), os.stat("a.safetensors").st_ino
    with mapped("a.safetensors") as m:
        out = run("alter", "a.safetensors", "--in-place", "--at", "w[7]@msb:0")
        assert f"warning: a.safetensors {WARNING} sees the change at once" in out.stderr, out.stderr
        assert os.stat("a.safetensors").st_ino == inode and len(m) == len(before)
        assert [i for i in range(len(before)) if m[i] != before[i]] == [len(before) - 20000 + 31]
        assert "would see" in run("alter", "a.safetensors", "--in-place", "--dry-run", "--flips", 1).stderr
        run("undo", "a.safetensors.sdc.jsonl")
        assert m[:] == before
        for quiet in (["--flips", 0], ["--flips", 1, "--no-sync"]):
            assert "is mapped" not in run("alter", "a.safetensors", "--in-place", "--no-record", *quiet).stderr
        m_now = m[:]
        assert "is mapped" not in run("alter", "a.safetensors", "-o", "b.safetensors", "--flips", 9).stderr
        assert m[:] == m_now and os.stat("b.safetensors").st_ino != inode
        assert "is mapped" not in run("alter", "a.safetensors", "-o", "b.safetensors", "--force", "--flips", 9, "--dry-run").stderr
        # a file beside it that nobody maps
        assert "is mapped" not in run("alter", "unmapped.safetensors", "--in-place", "--flips", 1).stderr
    assert "is mapped" not in run("alter", "a.safetensors", "--in-place", "--flips", 1).stderr


def test_a_mapped_file_of_a_set():
    os.makedirs("set", exist_ok=True)
    names = [f"set/m-0000{i}-of-00002.safetensors" for i in (1, 2)]
    fresh(*names)
    for i, path in enumerate(names):
        save_file({f"w{i}": np.zeros(100, np.float32)}, path)
    with mapped(names[1]):
        assert "is mapped" not in run("alter", "set", "--in-place", "--no-record", "--flips", 3, "--tensors", "w0").stderr
        assert WARNING in run("alter", "set", "--in-place", "--no-record", "--flips", 3, "--tensors", "w1").stderr


def test_readers_go_on():
    """A reader that touches all of the mapping again and again is never hit by a file cut short."""
    fresh("r.safetensors")
    save_file({"w": np.zeros(1 << 18, np.float32)}, "r.safetensors")
    stop, passes = threading.Event(), [0]
    with safe_open("r.safetensors", "np") as f, mapped("r.safetensors") as m:
        def read():
            while not stop.is_set():
                assert len(m[:]) == size
                passes[0] += 1
        size = len(m)
        reader = threading.Thread(target=read)
        reader.start()
        for i in range(5):
            record = json.loads(run("alter", "r.safetensors", "--in-place", "--flips", 50, "--seed", i, "--json").stdout)["record"]
            assert np.count_nonzero(f.get_tensor("w").view(np.uint32)) > 40  # the library maps it, too
            run("undo", record)
            os.remove(record)
        stop.set()
        reader.join()
        assert passes[0] > 5 and not f.get_tensor("w").any()


def test_an_archive_that_is_read_lazily():
    state = {"a": np.arange(1000, dtype=np.float32), "b": np.arange(500, dtype=np.float64)}
    for save in (np.savez, np.savez_compressed):
        fresh("l.npz")
        save("l.npz", **state)
        size, inode = os.path.getsize("l.npz"), os.stat("l.npz").st_ino
        with np.load("l.npz") as reader:
            run("alter", "l.npz", "--in-place", "--at", "a[999]@msb:0")
            assert np.array_equal(reader["b"], state["b"])
            try:
                old = reader["a"]
            except zipfile.BadZipFile:  # its directory, read before, has the checksum from before
                assert save is np.savez
            else:
                assert save is np.savez_compressed and np.array_equal(old, state["a"])
        with np.load("l.npz") as reader:
            assert reader["a"][999] == -999 and np.array_equal(reader["a"][:999], state["a"][:999])
        same = os.stat("l.npz").st_ino == inode
        assert same == (save is np.savez)  # written anew, and renamed
        assert save is np.savez_compressed or os.path.getsize("l.npz") == size


def main():
    failed = 0
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            try:
                test()
            except Exception:
                failed += 1
                print(f"{name}:")
                traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
