#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdclab alter and undo, killed before each system call that changes a file, on every way of altering:
what is left is the old state, the new one, or one that undo restores.

    test_alter_kill.py TRACER [STEP]

STEP: every so many of the calls only. The calls are those that the kernel sees, of the program and of
its helper processes. Prints a table: per way the points tried, and what was found there.
"""
import json
import os
import shutil
import subprocess
import sys
import zipfile

import h5py
import numpy as np
from safetensors.numpy import save_file

SDCLAB = os.environ["SDCLAB"]
TRACER = sys.argv[1]
STEP = int(sys.argv[2]) if len(sys.argv) > 2 else 1
WORK = "kill.d"
rng = np.random.default_rng(5)


# ---- what is altered ----

def arrays(n=3, shape=(60, 70)):
    return {f"layer{i}.weight": rng.standard_normal(shape).astype(np.float32) for i in range(n)}


def one_file(folder):
    save_file(arrays(), folder + "/a.safetensors")


def shards(folder):
    os.mkdir(folder + "/set")
    tensors = arrays(6)
    names = sorted(tensors)
    parts = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    for i, part in enumerate(parts):
        save_file({n: tensors[n] for n in names[2 * i:2 * i + 2]}, f"{folder}/set/{part}")
    where = {n: parts[i // 2] for i, n in enumerate(names)}
    total = sum(t.nbytes for t in tensors.values())
    with open(folder + "/set/model.safetensors.index.json", "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, f)


def bundle(folder):
    """TensorFlow's: an index and data in two shards, with checksums of tensors and of index blocks."""
    os.mkdir(folder + "/set")
    source = os.path.join(os.environ["SDC_SOURCE_DIR"], "tests/data/tensorbundle")
    for name in os.listdir(source):
        if name.startswith("merged."):
            shutil.copy(f"{source}/{name}", folder + "/set")


def shard_folder(folder):
    """PyTorch's distributed checkpoint: an embedded archive with checksums in each file."""
    source = os.path.join(os.environ["SDC_SOURCE_DIR"], "tests/data/dcp/rows")
    shutil.copytree(source, folder + "/set")


def keras_archive(folder):
    with h5py.File(folder + "/model.weights.h5", "w") as f:
        for name, t in arrays().items():
            f["layers/" + name + "/vars/0"] = t
    with zipfile.ZipFile(folder + "/a.keras", "w") as z:
        z.writestr("metadata.json", '{"keras_version": "3.0.0"}')
        z.writestr("config.json", "{}")
        z.write(folder + "/model.weights.h5", "model.weights.h5")
    os.remove(folder + "/model.weights.h5")


def stored_npz(folder):
    np.savez(folder + "/a.npz", **arrays())


def deflated_npz(folder):
    np.savez_compressed(folder + "/a.npz", **{k: np.round(v, 1) for k, v in arrays().items()})


def summed_hdf5(folder):
    with h5py.File(folder + "/a.h5", "w") as f:
        for name, t in arrays().items():
            f.create_dataset(name, data=t, chunks=(20, 35), fletcher32=True)


def gzip_hdf5(folder):
    with h5py.File(folder + "/a.h5", "w") as f:
        for name, t in arrays().items():
            f.create_dataset(name, data=np.round(t, 1), chunks=(20, 35), compression="gzip")


def values(path):
    """The elements, for files whose bytes may differ; None if there is none."""
    if not os.path.exists(path):
        return None
    if path.endswith(".npz"):
        with np.load(path) as z:
            return {n: z[n].tobytes() for n in z.files}
    with h5py.File(path, "r") as f:
        return {n: f[n][()].tobytes() for n in f}


# name, maker, what is named to sdclab, options, compare by values
WAYS = [
    ("file, in place", one_file, "a.safetensors", ["--in-place"], False),
    ("file, copy", one_file, "a.safetensors", ["-o", "out.safetensors"], False),
    ("set, in place", shards, "set", ["--in-place"], False),
    ("set, copy", shards, "set", ["-o", "out"], False),
    ("bundle with checksums, in place", bundle, "set/merged.index", ["--in-place"], False),
    ("bundle with checksums, copy", bundle, "set/merged.index", ["-o", "out"], False),
    ("folder of shards, in place", shard_folder, "set", ["--in-place"], False),
    ("folder of shards, copy", shard_folder, "set", ["-o", "out"], False),
    ("archive in an archive, in place", keras_archive, "a.keras", ["--in-place"], False),
    ("mended CRC, in place", stored_npz, "a.npz", ["--in-place"], False),
    ("mended Fletcher, in place", summed_hdf5, "a.h5", ["--in-place"], False),
    ("deflate, in place", deflated_npz, "a.npz", ["--in-place"], True),
    ("deflate, copy", deflated_npz, "a.npz", ["-o", "out.npz"], True),
    ("deflate, original kept", deflated_npz, "a.npz", ["--in-place", "--keep-original"], True),
    ("HDF5 gzip, in place", gzip_hdf5, "a.h5", ["--in-place"], True),
]


# ---- states ----

def files(folder):
    """Every file by its path: its bytes."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = f.read()
    return found


def inodes(folder):
    """Every file by its path: its identity and size."""
    stats = {p: os.stat(os.path.join(folder, p)) for p in files(folder)}
    return {p: (s.st_ino, s.st_size) for p, s in stats.items()}


def is_temporary(path):
    return any(part.startswith(".sdc-tmp.") for part in path.split("/"))


def is_record(path):
    return path.endswith(".sdc.jsonl")


def data(state):
    return {p: b for p, b in state.items() if not is_temporary(p) and not is_record(p)}


def put_back(state):
    shutil.rmtree(WORK, ignore_errors=True)
    for path, content in state.items():
        target = os.path.join(WORK, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as f:
            f.write(content)


def sdclab(*args, code=0):
    p = subprocess.run([SDCLAB, *args], cwd=WORK, capture_output=True, text=True, timeout=120)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}: {p.stdout}{p.stderr}"
    return p.stdout


def killed(n, *args):
    """Runs sdclab, killed before the n-th call; the call, or None if it ended before."""
    env = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
    p = subprocess.run([TRACER, str(n), SDCLAB, *args], cwd=WORK, capture_output=True, text=True, timeout=120, env=env)
    if p.returncode == 77:
        print("tracing processes is not allowed here")
        sys.exit(77)
    assert p.returncode in (0, 1), f"{args}, call {n}: {p.returncode}: {p.stdout}{p.stderr}"
    return p.stdout.splitlines()[-1] if p.returncode == 0 else None


class Tally:
    def __init__(self):
        self.tried = self.old = self.new = self.between = 0

    def row(self, name):
        print(f"{name:34} {self.tried:5} {self.old:5} {self.new:5} {self.between:8} {0:5}", flush=True)


# ---- alter ----

class Way:
    def __init__(self, name, make, path, options, by_values):
        self.name, self.path, self.by_values = name, path, by_values
        self.copied = options[0] == "-o"
        self.target = options[1] if self.copied else path
        self.args = ("alter", path, *options, "--flips", "5", "--seed", "9")
        shutil.rmtree(WORK, ignore_errors=True)
        os.makedirs(WORK)
        make(WORK)
        self.old = files(WORK)
        before = inodes(WORK)
        sdclab(*self.args)
        self.altered = files(WORK)
        after = inodes(WORK)
        if self.copied or not by_values:  # a reader that has the file mapped keeps its file, of its length
            assert all(after[p] == i for p, i in before.items()), (name, before, after)
        self.new_values = self.values()
        record = [p for p in self.altered if is_record(p)]
        assert record == [self.target.removesuffix(".index") + ".sdc.jsonl"], record  # a bundle goes by its prefix
        self.record = record[0]
        if by_values:
            put_back(self.old)
            self.old_values = values(f"{WORK}/{path}")

    def values(self):
        return values(f"{WORK}/{self.target}") if self.by_values else None

    def is_old(self):
        """The target holds what it held before, or for a copy is not there."""
        now = data(files(WORK))
        if self.by_values and not self.copied:
            return self.values() == self.old_values
        if self.copied:
            return now == self.old
        return {p: now.get(p) for p in self.old} == self.old

    def is_new(self):
        if self.by_values:
            return self.values() == self.new_values
        now = data(files(WORK))
        return now == data(self.altered)

    def source_is_whole(self):
        now = files(WORK)
        return all(now.get(p) == b for p, b in self.old.items())

    def is_restored(self):
        """After undo: the target has the old content, wherever it is."""
        if self.by_values:
            return self.values() == self.old_values
        now = data(files(WORK))
        if not self.copied:
            return {p: now.get(p) for p in self.old} == self.old
        of_source = {os.path.relpath(p, self.path.split("/")[0]): b for p, b in self.old.items()}
        return {os.path.relpath(p, self.target): b for p, b in now.items()
                if p == self.target or p.startswith(self.target + "/")} == of_source

    def kill_alterations(self):
        t = Tally()
        n = 1
        while True:
            put_back(self.old)
            call = killed(n, *self.args)
            if call is None:
                break
            where = f"{self.name}, call {n}: {call}"
            t.tried += 1
            assert not self.copied or self.source_is_whole(), where
            has_record = os.path.exists(f"{WORK}/{self.record}")
            if self.is_old():
                t.old += 1
                if has_record and not self.copied:
                    sdclab("undo", self.record)
                    assert self.is_old(), where
                if has_record:
                    os.remove(f"{WORK}/{self.record}")
            else:
                is_new = self.is_new()
                t.new += is_new
                t.between += not is_new
                assert not self.copied or is_new, f"{where}: a copy is neither absent nor whole"
                assert has_record, f"{where}: altered without a record"
                sdclab("undo", self.record)
                assert self.is_restored(), f"{where}: undo did not restore"
                put_back(self.old) if self.copied or self.by_values else os.remove(f"{WORK}/{self.record}")
            sdclab(*self.args)  # the next run, over what was left
            assert self.is_new(), f"{where}: the next run differs"
            left = [p for p in files(WORK) if is_temporary(p)] + [
                d for _, dirs, _ in os.walk(WORK) for d in dirs if is_temporary(d)]
            assert not left, f"{where}: the next run left {left}"
            n += STEP
        assert t.tried * STEP >= 10 and (STEP > 1 or t.old > 0 and t.new > 0), (self.name, t.__dict__)
        t.row(self.name)

    def kill_undo(self):
        t = Tally()
        n = 1
        while True:
            put_back(self.altered)
            call = killed(n, "undo", self.record)
            if call is None:
                break
            where = f"undo of {self.name}, call {n}: {call}"
            t.tried += 1
            is_new, is_old = self.is_new(), self.is_restored()
            t.new += is_new
            t.old += is_old
            t.between += not is_new and not is_old
            sdclab("undo", self.record)
            assert self.is_restored(), where
            n += STEP
        assert t.tried > 0, self.name
        t.row("undo of " + self.name)


def main():
    print(f"{'':34} {'tried':>5} {'old':>5} {'new':>5} {'undoable':>8} {'lost':>5}")
    for way in WAYS:
        w = Way(*way)
        w.kill_alterations()
        w.kill_undo()
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
