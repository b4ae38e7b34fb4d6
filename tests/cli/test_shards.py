#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""safetensors in shards: what an index may and must not say, folders, shards without an index, and a
set against the single file of the same state. Deviations are those of real indexes."""
import json
import os
import shutil
import struct
import subprocess
import sys
import traceback

import jsonschema
import numpy as np
from safetensors.numpy import load_file, save_file

SDCLAB = os.environ["SDCLAB"]
with open(os.path.join(os.environ["SDC_SOURCE_DIR"], "schemas", "record-1.json")) as schema:
    RECORD_LINE = json.load(schema)
STATE = {f"block.{i}.weight": np.arange(12, dtype=np.float32).reshape(3, 4) * (i + 1) for i in range(4)}
NAMES = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def run(*args, code=0, out=None, err=None):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    assert not out or out in p.stdout, f"{out!r} is not in {p.stdout!r}"
    assert not err or err in p.stderr, f"{err!r} is not in {p.stderr!r}"
    return p.stdout


def make(folder, names=NAMES, index="model.safetensors.index.json", total=192, change=None):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    where = {n: names[i % 2] for i, n in enumerate(STATE)}
    for name in names:
        save_file({n: v for n, v in STATE.items() if where[n] == name}, os.path.join(folder, name))
    value = {"metadata": {"total_size": total}, "weight_map": where}
    if change:
        change(value)
    if index:
        with open(os.path.join(folder, index), "w") as f:
            json.dump(value, f)
    return os.path.join(folder, index or "")


def test_paths():
    index = make("set")
    for path in (index, "set", "set/"):
        listing = json.loads(run("inspect", "--json", path))["files"][0]
        assert [t["name"] for t in listing["tensors"]] == sorted(STATE), listing
        assert listing["format"] == "safetensors-set", listing
    assert "note" not in run("inspect", index)
    make("odd", names=["model_00001-of-00002.safetensors", "model_00002-of-00002.safetensors"], index="weights.json")
    run("inspect", "odd/weights.json", out="4 tensors")


def test_against_single():
    make("set")
    save_file(STATE, "single.safetensors")
    run("diff", "set", "single.safetensors", out="same")
    run("alter", "single.safetensors", "-o", "b.safetensors", "--flips", 3, "--force")
    run("diff", "set", "b.safetensors", code=1, out="3 bits")


def test_altered_copy_and_in_place():
    make("set")
    shutil.rmtree("out", ignore_errors=True)
    record = json.loads(run("alter", "set", "-o", "out", "--flips", 9, "--json"))["record"]
    assert sorted(os.listdir("out")) == sorted(os.listdir("set"))
    loaded = {k: v for n in NAMES for k, v in load_file(f"out/{n}").items()}
    bits = sum(bin(int(x)).count("1") for k in STATE for x in (loaded[k].view(np.uint32) ^ STATE[k].view(np.uint32)).flat)
    assert bits == 9, bits
    run("undo", record)
    run("diff", "out", "set", out="identical")
    record = json.loads(run("alter", "set", "--in-place", "--flips", 9, "--json"))["record"]
    run("undo", record)
    for n in NAMES:
        for k, v in load_file(f"set/{n}").items():
            assert np.array_equal(v, STATE[k])


def test_nothing_chosen():
    """No site is a result too, whose record is read and undone like any other."""
    make("set")
    for how in (["--flips", 0], ["--rate", 0], ["--not-tensors", "*"]):
        for where in (["-o", "out"], ["--in-place"]):
            shutil.rmtree("out", ignore_errors=True)
            record = json.loads(run("alter", "set", *where, *how, "--json"))["record"]
            with open(record) as f:
                jsonschema.validate(json.loads(f.readline()), RECORD_LINE)
            run("undo", record, out="0 elements restored")
            run("replay", record, "set", "-o", "again", "--force", "--no-record")
            shutil.rmtree("again")
            os.remove(record)


def test_incomplete():
    index = make("set")
    os.remove("set/" + NAMES[1])
    run("alter", index, "--in-place", "--flips", 1, code=3, err="incomplete set: " + NAMES[1])
    make("set", index=None)
    run("inspect", "set", out="4 tensors")
    os.remove("set/" + NAMES[0])
    run("inspect", "set", code=3, err="incomplete set: shard 1 of 2 is missing")
    os.rename("set/" + NAMES[1], "set/model.safetensors")
    run("inspect", "set", out="2 tensors")  # a file alone is that file
    make("three", names=["m-00001-of-00003.safetensors", "m-00003-of-00003.safetensors"], index=None)
    run("inspect", "three", code=3, err="incomplete set: shard 2 of 3 is missing")
    def lost(v): v["weight_map"]["gone"] = NAMES[0]
    run("inspect", make("set", change=lost), code=3, err="tensor gone is not in its file")
    def moved(v): v["weight_map"]["block.0.weight"] = NAMES[1]
    run("inspect", make("set", change=moved), code=3, err=f"not in its file {NAMES[1]}, but in {NAMES[0]}")


def test_bad_indexes():
    for value, word in (("../x.safetensors", "unsafe path"), ("/etc/passwd", "unsafe path"),
                        ({"file": "x"}, "expected a file name, found"), (3, "expected a file name, found")):
        def change(v): v["weight_map"]["block.0.weight"] = value
        run("inspect", make("set", change=change), code=3, err=word)
    def no_map(v): v["weight_map"] = [1]
    run("inspect", make("set", change=no_map), code=3, err="weight_map: expected an object")
    index = make("set")
    with open(index, "r+") as f:
        f.truncate(60)
    run("inspect", index, code=3, err="model.safetensors.index.json")


def put(path, header, data):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def test_types_in_shards():
    """What a shard lists as NAME:bytes is NAME in the index."""
    shutil.rmtree("types", ignore_errors=True)
    os.makedirs("types")
    put("types/m.safetensors", {"x": {"dtype": "NEW", "shape": [5], "data_offsets": [0, 3]},
                                "y": {"dtype": "F4", "shape": [2], "data_offsets": [3, 4]}}, bytes(4))
    with open("types/m.index.json", "w") as f:
        json.dump({"weight_map": {"x": "m.safetensors", "y": "m.safetensors"}}, f)
    out = run("inspect", "types", out="x:bytes")
    assert "not in the index" not in out, out
    run("alter", "types", "-o", "types-out", "--at", "x:bytes[1]@lsb:7", "--at", "y[1]@lsb:2", "--no-record")
    with open("types-out/m.safetensors", "rb") as f:
        assert f.read()[-4:] == bytes([0, 0x80, 0, 0x40])
    shutil.rmtree("types-out")


def test_large_headers():
    """A header over the reference reader's limit opens when asked to, in bounded time and memory."""
    n = 1_100_000
    header = ("{" + ",".join(f'"model.layers.{i:07}.mlp.experts.weight_{"x" * 5}":'
                             f'{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i in range(n)) + "}").encode()
    assert len(header) > 100_000_000
    put("large.safetensors", header, bytes(n))
    run("inspect", "large.safetensors", code=3, err="over the reference reader's limit of 100000000; --max-header")
    p = subprocess.Popen([SDCLAB, "inspect", "--max-header", "200000000", "large.safetensors"], stdout=subprocess.PIPE)
    last = p.stdout.read()[-80:]
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0 and b"1,100,000  tensors" in last, (p.returncode, last)
    if not os.environ.get("SDC_SANITIZE"):  # a sanitizer's shadow and quarantine are twice what is measured
        assert usage.ru_maxrss < 1000 * 1024 and usage.ru_utime < 30, usage  # a tree of it took 1.7 GB
    os.remove("large.safetensors")


def test_parts_of_distributed_checkpoints():
    """PyTorch's HuggingFaceStorageWriter: each rank's parts in a file of its own, and no index."""
    shutil.rmtree("ranks", ignore_errors=True)
    os.makedirs("ranks")
    for rank in (0, 1):
        put(f"ranks/shard-0000{rank}-model-00001-of-00001.safetensors",
            {"__metadata__": {"DCP_SHARDING_INFO": json.dumps({"w": {"saved_offsets": [2 * rank]}}), "DCP_VERSION": "1.0", "format": "pt"},
             "w": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}, bytes(2))
    run("inspect", "ranks", code=3, err="a distributed checkpoint of PyTorch in safetensors files")
    run("alter", "ranks", "-o", "never", code=3, err="one rank's parts of tensors (shard-00000-model-00001-of-00001.safetensors, ...)")
    run("inspect", "ranks/shard-00001-model-00001-of-00001.safetensors", out="its tensors may be parts of larger ones")
    assert not os.path.exists("never")


def test_notes():
    def unmapped(v): del v["weight_map"]["block.1.weight"]
    out = run("inspect", make("set", change=unmapped))
    assert "not in the index" in out, out
    out = run("inspect", make("set", total=7))
    assert "total_size of 7, the tensors have 192 bytes" in out, out
    run("verify", "set")


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
