#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every format by every command, each judged by the format's own library: a file that the library
wrote is inspected, altered, compared, verified and restored, and after each alteration the library
must see the planned elements changed as planned and no others. Where a format stores checksums,
they are right after `--checksum mend` and wrong after `--checksum stale`; where the library checks
them, it agrees.

Prints the table (docs/user/formats.md shows it). Arguments: names of rows; none: all.
"""
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import zipfile

import gguf
import h5py
import numpy as np
import tensorbundle
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file as load_torch_file
from safetensors.torch import save_file as save_torch_file

SDCLAB = os.environ["SDCLAB"]
UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
COLUMNS = ["inspect", "alter", "undo", "diff", "verify"]
FLIPS = 40


def run(*args, codes=(0,)):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert p.returncode in codes, f"{args}: exit {p.returncode}, expected {codes}\n{p.stdout}{p.stderr}"
    return p


def bits(array):
    """The elements as unsigned integers, so that NaN is compared like any other value."""
    a = np.asarray(array)
    a = a.astype(a.dtype.newbyteorder("=")) if a.dtype.byteorder == ">" else a
    return np.ascontiguousarray(a).reshape(a.shape).view(UINT[a.dtype.itemsize]).reshape(a.shape)


def state(seed=7):
    rng = np.random.default_rng(seed)
    return {
        "conv1.weight": rng.normal(0, 0.05, (6, 3, 5, 5)).astype(np.float32),
        "conv1.bias": rng.normal(size=6).astype(np.float32),
        "fc.weight": rng.normal(0, 0.05, (33, 20)).astype(np.float16),
        "fc.wide": rng.normal(0, 0.05, (9, 11)),
        "steps": np.array(300, np.int64),
    }


def torch_state():
    out = {k: torch.from_numpy(v.copy()) for k, v in state().items()}
    out["half"] = torch.arange(60, dtype=torch.float32).mul(0.37).to(torch.bfloat16).reshape(5, 12)
    return out


def torch_bits(t):
    size = t.element_size()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return t.detach().contiguous().view(kind).numpy().view(UINT[size]).reshape(tuple(t.shape))


class Row:
    """One kind of file. make(path) writes it; read(path) gives {name as sdclab lists it: bits}, and
    raises where the library finds a checksum wrong (checks=True). A set of files has folder=True."""
    folder = False
    sums = False    # the format stores checksums of tensor data
    checks = False  # and its library checks them when reading
    recoded = False  # undo restores values, not bytes
    options = ()     # of every command
    flips = FLIPS    # well below the number of elements

    def path(self, folder):
        return os.path.join(folder, self.file)


class Hdf5(Row):
    def __init__(self, name, file="a.h5", libver="earliest", sums=False, recoded=False, userblock=0, **how):
        self.name, self.file, self.libver, self.how = name, file, libver, how
        self.sums = self.checks = sums
        self.recoded, self.userblock = recoded, userblock

    def make(self, path):
        with h5py.File(path, "w", libver=self.libver, userblock_size=self.userblock) as f:
            for name, value in state().items():
                how = self.how if value.ndim else {}
                f.create_dataset(name, data=value.astype(value.dtype.newbyteorder(self.how.get("order", "="))),
                                 **{k: v for k, v in how.items() if k != "order"})

    def read(self, path):
        with h5py.File(path, "r") as f:
            return {name: bits(f[name][()]) for name in f}


class Compact(Hdf5):
    """h5py's low-level interface alone can ask for it."""

    def make(self, path):
        with h5py.File(path, "w", libver=self.libver) as f:
            for name, value in state().items():
                if value.nbytes > 2000:
                    f[name] = value
                    continue
                plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                plist.set_layout(h5py.h5d.COMPACT)
                space = h5py.h5s.create_simple(value.shape) if value.ndim else h5py.h5s.create(h5py.h5s.SCALAR)
                d = h5py.h5d.create(f.id, name.encode(), h5py.h5t.py_create(value.dtype), space, plist)
                d.write(h5py.h5s.ALL, h5py.h5s.ALL, value)


def write_keras3(f):
    """The layout that Keras 3 writes: positions instead of names under vars."""
    rng = np.random.default_rng(3)
    for layer, shapes in {"conv2d": [(5, 5, 1, 6), (6,)], "dense": [(84, 10), (10,)]}.items():
        for i, shape in enumerate(shapes):
            f[f"layers/{layer}/vars/{i}"] = rng.normal(0, 0.05, shape).astype(np.float32)
    f["optimizer/vars/0"] = np.array(7, np.int64)


def read_h5(f):
    out = {}
    f.visititems(lambda name, o: out.__setitem__(name, bits(o[()])) if isinstance(o, h5py.Dataset) else None)
    return out


class Keras(Row):
    name, file, sums, checks = "Keras 3 .keras", "a.keras", True, True

    def make(self, path):
        with tempfile.TemporaryDirectory() as d, zipfile.ZipFile(path, "w") as z:
            with h5py.File(f"{d}/w.h5", "w") as f:
                write_keras3(f)
            z.writestr("metadata.json", '{"keras_version": "3.5.0", "date_saved": "2026-01-01"}')
            z.writestr("config.json", "{}")
            z.write(f"{d}/w.h5", "model.weights.h5")

    def read(self, path):
        with tempfile.TemporaryDirectory() as d, zipfile.ZipFile(path) as z:
            with h5py.File(z.extract("model.weights.h5", d), "r") as f:
                return read_h5(f)


class Keras3H5(Row):
    name, file = "Keras 3 .weights.h5", "a.weights.h5"

    def make(self, path):
        with h5py.File(path, "w") as f:
            write_keras3(f)

    def read(self, path):
        with h5py.File(path, "r") as f:
            return read_h5(f)


class Safetensors(Row):
    name, file = "safetensors", "a.safetensors"

    def make(self, path):
        save_torch_file(torch_state(), path)

    def read(self, path):
        return {k: torch_bits(v) for k, v in load_torch_file(path).items()}


class Sharded(Row):
    name, file, folder = "safetensors, sharded", "model.safetensors.index.json", True

    def path(self, folder):
        return os.path.join(folder, "set", self.file)

    def make(self, path):
        os.makedirs(os.path.dirname(path))
        where = {}
        for i, (name, value) in enumerate(state().items()):
            shard = f"model-{i % 2 + 1:05d}-of-00002.safetensors"
            where.setdefault(shard, {})[name] = value
        for shard, tensors in where.items():
            save_file(tensors, os.path.join(os.path.dirname(path), shard))
        with open(path, "w") as f:
            json.dump({"metadata": {"total_size": sum(v.nbytes for v in state().values())},
                       "weight_map": {n: s for s, t in where.items() for n in t}}, f)

    def read(self, path):
        out = {}
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        with open(os.path.join(folder, self.file)) as f:
            for name, shard in json.load(f)["weight_map"].items():
                out[name] = torch_bits(load_torch_file(os.path.join(folder, shard))[name])
        return out


class Npy(Row):
    file, flips = "a.npy", 12

    def __init__(self, name, make):
        self.name, self.array = name, make

    def make(self, path):
        np.save(path, self.array(np.random.default_rng(5)))

    def read(self, path):
        a = np.load(path)
        if a.dtype.names:
            return {f"array:{n}": bits(a[n]) for n in a.dtype.names}
        return {"array": bits(a)}


class Npz(Row):
    file, sums, checks = "a.npz", True, True

    def __init__(self, name, save, recoded=False):
        self.name, self.save, self.recoded = name, save, recoded

    def make(self, path):
        self.save(path, **state())

    def read(self, path):
        with np.load(path) as z:
            return {n: bits(z[n]) for n in z.files}


class Torch(Row):
    file, sums = "a.pt", True  # torch.load checks no CRC; zipfile does

    def __init__(self, name, **how):
        self.name, self.how = name, how
        self.sums = how.get("_use_new_zipfile_serialization", True)
        self.checks = self.sums

    def make(self, path):
        net = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.BatchNorm1d(5))
        torch.manual_seed(4)
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.randn(6, 7)).square().sum().backward()
        optimizer.step()
        extra = torch_state()
        extra["turned"] = torch.arange(24.0).reshape(4, 6).t()
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "extra": extra}, path, **self.how)

    def read(self, path):
        if self.checks:
            with zipfile.ZipFile(path) as z:
                bad = z.testzip()
                assert bad is None, f"CRC of {bad}"
        out = {}

        def walk(prefix, x):
            if isinstance(x, torch.Tensor):
                out[prefix] = torch_bits(x)
            elif isinstance(x, dict):
                for k, v in x.items():
                    walk(f"{prefix}/{k}" if prefix else str(k), v)
        walk("", torch.load(path))
        return out


class TorchDeflated(Torch):
    """Packed again by another tool, as PyTorch accepts it."""
    recoded = True

    def __init__(self, name):
        super().__init__(name)
        self.sums = False  # writing a member anew mends its CRC, and so there is none to keep stale

    def make(self, path):
        super().make(path + ".stored")
        with zipfile.ZipFile(path + ".stored") as z, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as d:
            for i in z.infolist():
                d.writestr(i.filename, z.read(i))


class TorchDcp(Row):
    """Folders of real PyTorch 2.9, kept with the tests; the archive of each chunk is loaded by the PyTorch
    that is here, its CRCs checked by zipfile. dcp_real.py asks torch.distributed.checkpoint itself."""
    file, folder, sums, checks, flips = "", True, True, True, 8

    def __init__(self, name, source, boxes):
        self.name, self.source, self.boxes = name, source, boxes  # file: the boxes of its tensors in order

    def path(self, folder):
        return os.path.join(folder, "set")

    def make(self, path):
        shutil.copytree(os.path.join(os.environ["SDC_SOURCE_DIR"], "tests", "data", "dcp", self.source), path)

    def read(self, path):
        out = {}
        for file, boxes in self.boxes.items():
            data = open(os.path.join(path, file), "rb").read()
            ends = [i + 22 for i in range(len(data)) if data[i:i + 4] == b"PK\5\6"]
            for begin, end, (name, shape, box) in zip([0, *ends], ends, boxes):
                archive = io.BytesIO(data[begin:end])
                with zipfile.ZipFile(archive) as z:
                    assert z.testzip() is None, "CRC"
                archive.seek(0)
                part = torch_bits(torch.load(archive))
                out.setdefault(name, np.zeros(shape, part.dtype))[box] = part
        return out


class Gguf(Row):
    """Written by the package gguf. It reads blocks as bytes; what stands where in them is spelt out."""
    name, file = "GGUF", "a.gguf"

    def make(self, path):
        rng = np.random.default_rng(6)
        w = gguf.GGUFWriter(path, "test")
        weights = rng.normal(0, 0.05, (6, 64)).astype(np.float32)
        w.add_tensor("norm.weight", weights[0])
        w.add_tensor("half.weight", weights.astype(np.float16))
        for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0):
            w.add_tensor(f"{kind.name}.weight", gguf.quants.quantize(weights, kind), raw_dtype=kind)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    def read(self, path):
        out = {}
        for t in gguf.GGUFReader(path).tensors:
            data = np.array(t.data)
            if not t.name.startswith("Q"):
                out[t.name] = bits(data)
                continue
            blocks = data.reshape(6, 2, -1)  # of 32 weights: an f16, then 32 bytes or 16 of two each
            out[t.name + ":scale"] = np.ascontiguousarray(blocks[..., :2]).view(np.uint16).reshape(6, 2)
            q = blocks[..., 2:]
            if t.name.startswith("Q4"):
                q = np.concatenate([q & 15, q >> 4], axis=2)
            out[t.name + ":quants"] = np.ascontiguousarray(q).reshape(6, 64)
        return out


class TensorFlow(Row):
    """Files of real TensorFlow, kept with the tests, read by a second reader that checks every
    checksum; tensorflow_real.py asks TensorFlow itself."""
    folder = sums = checks = True

    def __init__(self, name, prefix):
        self.name, self.file = name, prefix

    def path(self, folder):
        return os.path.join(folder, "set", self.file)

    def make(self, path):
        source = os.path.join(os.environ["SDC_SOURCE_DIR"], "tests", "data", "tensorbundle")
        os.makedirs(os.path.dirname(path))
        for f in os.listdir(source):
            if f.startswith(self.file + "."):
                shutil.copy(os.path.join(source, f), os.path.dirname(path))

    def read(self, path):
        prefix = os.path.join(path, self.file) if os.path.isdir(path) else path
        kinds = {1: np.uint32, 3: np.uint32, 9: np.uint64}  # float, int32, int64
        return {name: np.frombuffer(data, kinds[dtype]).reshape(shape)
                for name, (dtype, shape, data) in tensorbundle.read_tensors(prefix).items()}


class TensorFlowWritten(TensorFlow):
    """What TensorFlow writes on a big-endian machine, in two data files."""

    def make(self, path):
        os.makedirs(os.path.dirname(path))
        b = tensorbundle.Bundle(shards=2, big_endian=True)
        kinds = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.float64): "F64",
                 np.dtype(np.int64): "I64"}
        for i, (name, a) in enumerate(state().items()):
            b.add(name, kinds[a.dtype], a.shape, a.astype(a.dtype.newbyteorder(">")).tobytes(), shard=i % 2)
        b.save(path)

    def read(self, path):
        prefix = os.path.join(path, self.file) if os.path.isdir(path) else path
        kinds = {1: ">u4", 19: ">u2", 2: ">u8", 9: ">u8"}  # float, half, double, int64
        return {name: bits(np.frombuffer(data, kinds[dtype]).reshape(shape))
                for name, (dtype, shape, data) in tensorbundle.read_tensors(prefix).items()}


def structured(rng):
    a = np.zeros(30, [("w", "<f4"), ("big", ">f8"), ("n", "<i2")])
    a["w"], a["big"], a["n"] = rng.normal(size=30), rng.normal(size=30), rng.integers(-99, 99, 30)
    return a


ROWS = [
    Hdf5("HDF5 contiguous"),
    Hdf5("HDF5 contiguous, latest, userblock", libver="latest", userblock=512),
    Hdf5("HDF5 big-endian", order=">"),
    Hdf5("HDF5 chunked", chunks=True),
    Hdf5("HDF5 chunked, latest", libver="latest", chunks=True),
    Compact("HDF5 compact"),
    Compact("HDF5 compact, latest", libver="latest", sums=True),
    Hdf5("HDF5 fletcher32", chunks=True, fletcher32=True, sums=True),
    Hdf5("HDF5 gzip", chunks=True, compression="gzip", shuffle=True, recoded=True),
    Hdf5("HDF5 gzip, fletcher32", chunks=True, compression="gzip", fletcher32=True, recoded=True),
    Hdf5("HDF5 lzf", chunks=True, compression="lzf", recoded=True),
    Keras3H5(),
    Keras(),
    Safetensors(),
    Sharded(),
    Npy("NumPy .npy", lambda rng: rng.normal(size=(7, 9)).astype(np.float32)),
    Npy("NumPy .npy, Fortran order", lambda rng: np.asfortranarray(rng.normal(size=(7, 9, 3)))),
    Npy("NumPy .npy, big-endian", lambda rng: rng.normal(size=(7, 9)).astype(">f4")),
    Npy("NumPy .npy, structured", structured),
    Npz("NumPy .npz", np.savez),
    Npz("NumPy .npz, deflated", np.savez_compressed, recoded=True),
    Torch("PyTorch zip"),
    Torch("PyTorch zip, pickle protocol 4", pickle_protocol=4),
    TorchDeflated("PyTorch zip, deflated"),
    Torch("PyTorch legacy", _use_new_zipfile_serialization=False),
    TensorFlow("TensorFlow, partitioned variable", "names"),
    TensorFlowWritten("TensorFlow, big-endian, two data files", "ckpt-1"),
    TorchDcp("PyTorch DCP, rows", "rows",
             {f"__{r}_0.distcp": [("w", (10, 6), np.s_[3 * r:3 * r + 3, :])] + [("rep", (3, 3), np.s_[:])] * (r == 1) for r in range(4)}),
    TorchDcp("PyTorch DCP, columns", "columns",
             {f"__{r}_0.distcp": [("w", (4, 9), np.s_[:, 5 * r:5 * r + 5]), ("turned", (6, 8), np.s_[:, 4 * r:4 * r + 4])] for r in range(2)}),
    Gguf(),
]


# ---- what every row must do ----

def files_of(path):
    """Bytes of a file, or of all files of a folder."""
    if not os.path.isdir(path):
        return {"": open(path, "rb").read()}
    return {n: open(os.path.join(path, n), "rb").read() for n in sorted(os.listdir(path))}


def whole(row, path):
    return os.path.dirname(path) if row.folder and not os.path.isdir(path) else path


def changes_of(record):
    lines = [json.loads(line) for line in open(record)]
    assert lines[0]["type"] == "header" and lines[-1]["type"] == "verified", (lines[0], lines[-1])
    return [line for line in lines if line["type"] == "change"]


def check_values(row, before, after, changes):
    """after differs from before in exactly the recorded elements, by exactly the recorded bits."""
    want = {name: a.copy() for name, a in before.items()}
    for c in changes:
        index = tuple(json.loads(c["index"])) if isinstance(c["index"], str) else tuple(c["index"])
        mask = sum(1 << b for b in c["bits"])
        a = want[c["tensor"]]
        a[index] ^= a.dtype.type(mask)
    assert sorted(after) == sorted(before)
    for name, a in want.items():
        assert a.dtype == after[name].dtype and np.array_equal(a, after[name]), f"{row.name}: {name} differs from the plan"


SUB_BYTE = {"F4": 4, "U4": 4, "U2": 2, "U1": 1}


def check_bytes(row, path, out, record):
    """The altered files are the old ones but for the recorded bytes: same lengths, every change and every
    mended checksum at its place, nothing else."""
    want, got = ({n: bytearray(d) for n, d in files_of(whole(row, p)).items()} for p in (path, out))
    if row.folder:
        want = {n: d for n, d in want.items() if n in got}
    seen = {n: 0 for n in want}
    for line in open(record):
        c = json.loads(line)
        if c["type"] not in ("change", "mended"):
            continue
        name = c.get("file", "") or next(n for n in want if not row.folder)
        data, at, old, new = want[name], c["offset"], bytes.fromhex(c["old"]), bytes.fromhex(c["new"])
        if c.get("dtype") in SUB_BYTE:
            shift, mask = c.get("shift", 0), (1 << SUB_BYTE[c["dtype"]]) - 1
            assert data[at] >> shift & mask == old[0], c
            data[at] = data[at] & ~(mask << shift) & 255 | new[0] << shift
        else:
            assert data[at:at + len(old)] == old, c
            data[at:at + len(new)] = new
        seen[name] += 1
    assert sum(seen.values()) >= row.flips / 32
    for name, data in want.items():
        assert len(data) == len(got[name]) and data == got[name], f"{row.name}: {name} has other bytes than the record says"


def alter(row, path, out, seed, *more):
    p = run("alter", path, "-o", out, "--flips", row.flips, "--seed", seed, "--json", *row.options, *more)
    result = json.loads(p.stdout)
    return result["record"]


def check_row(row, folder, done):
    path = row.path(folder)
    row.make(path)
    before = row.read(path)
    listing = json.loads(run("inspect", "--json", path, *row.options).stdout)["files"][0]["tensors"]
    shapes = {t["name"]: tuple(t["shape"]) for t in listing}
    assert shapes == {n: a.shape for n, a in before.items()}, (shapes, {n: a.shape for n, a in before.items()})
    assert all(t["alterable"] for t in listing), [t for t in listing if not t["alterable"]]
    done("inspect")

    out = os.path.join(folder, "out" if row.folder else "out-" + row.file)
    record = alter(row, path, out, 1)
    changes = changes_of(record)
    assert sum(len(c["bits"]) for c in changes) == row.flips, changes
    check_values(row, before, row.read(out), changes)
    if not row.recoded:
        check_bytes(row, path, out, record)
    done("alter")

    run("diff", path, path, *row.options)
    d = json.loads(run("diff", path, out, "--json", *row.options, codes=(1,)).stdout)
    assert d["differing_elements"] == len(changes) and d["differing_bits"] == sum(len(c["bits"]) for c in changes), d
    done("diff")

    run("verify", path, *row.options)
    run("verify", out, *row.options)
    if row.sums:
        stale = os.path.join(folder, "stale-" + row.file)
        alter(row, path, stale, 2, "--checksum", "stale")
        assert "checksum" in run("verify", stale, *row.options, codes=(1,)).stdout.lower()
        if row.checks:
            try:
                row.read(stale)
            except Exception:
                pass
            else:
                raise AssertionError("the library read a stale file without complaint")
    done("verify")

    run("undo", record)
    check_values(row, before, row.read(out), [])
    if not row.recoded:
        assert files_of(whole(row, out)) == files_of(whole(row, path)), "undo left other bytes"
    done("undo")


MANUAL = "docs/user/formats.md"


def in_manual(lines):
    with open(os.path.join(os.environ["SDC_SOURCE_DIR"], MANUAL)) as f:
        return "\n".join(lines) in f.read()


def main():
    wanted = sys.argv[1:]
    rows = [r for r in ROWS if not wanted or r.name in wanted]
    width = max(len(r.name) for r in rows)
    failed = 0
    lines = [f"| {'format':{width}} | " + " | ".join(COLUMNS) + " |",
             f"|{'-' * (width + 2)}|" + "|".join("-" * (len(c) + 2) for c in COLUMNS) + "|"]
    for row in rows:
        folder = tempfile.mkdtemp(dir=".")
        passed = set()
        try:
            check_row(row, folder, passed.add)
        except Exception:
            failed += 1
            traceback.print_exc()
        cells = ["yes" if c in passed else "NO" for c in COLUMNS]
        lines.append(f"| {row.name:{width}} | " + " | ".join(f"{x:{len(c)}}" for x, c in zip(cells, COLUMNS)) + " |")
        shutil.rmtree(folder)
    print("\n".join(lines))
    if not wanted and not failed and not in_manual(lines):
        print(f"{MANUAL} shows another table")
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
