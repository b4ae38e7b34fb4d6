#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets of files, whatever their format: links in them, the order of undoing, names of records and seals, many
files under few descriptors."""
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import traceback

import numpy as np
from safetensors.numpy import save_file

SDCLAB = os.environ["SDCLAB"]
STATE = {f"block.{i}.weight": np.arange(12, dtype=np.float32).reshape(3, 4) * (i + 1) for i in range(4)}
NAMES = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def run(*args, code=0, out=None, err=None, **more):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=120, **more)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    assert not out or out in p.stdout, f"{out!r} is not in {p.stdout!r}"
    assert not err or err in p.stderr, f"{err!r} is not in {p.stderr!r}"
    return p.stdout


def make(folder):
    """Two shards with an index; tensors 0 and 2 are in the first, 1 and 3 in the second."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    where = {n: NAMES[i % 2] for i, n in enumerate(STATE)}
    for name in NAMES:
        save_file({n: v for n, v in STATE.items() if where[n] == name}, os.path.join(folder, name))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": 192}, "weight_map": where}, f)


def link_out(folder, name):
    """Makes one file of a set a link to a file outside of its folder."""
    os.makedirs("elsewhere", exist_ok=True)
    target = os.path.join("elsewhere", name)
    os.replace(os.path.join(folder, name), target)
    os.symlink(os.path.join("..", target), os.path.join(folder, name))
    return target


def test_links_out_of_the_folder():
    make("set")
    run("inspect", "set")
    target = link_out("set", NAMES[1])
    with open(target, "rb") as f:
        before = f.read()
    out = run("inspect", "set", out="4  tensors")
    assert "1 file is a link out of the folder" in out and NAMES[1] in out, out
    run("verify", "set")
    for more in ([], ["--dry-run"]):
        run("alter", "set", "--in-place", *more, "--tensors", "block.1.weight", "--flips", 1, code=3,
            err=f"set/{NAMES[1]}: unsafe path: a link out of the folder of its set, expected a file in it; alter a copy (-o)")
    with open(target, "rb") as f:
        assert f.read() == before
    assert not [n for n in os.listdir(".") if n.startswith("set.")]
    run("alter", "set", "--in-place", "--tensors", "block.0.weight", "--flips", 1)  # of the other file
    run("undo", "set.sdc.jsonl")
    os.remove("set.sdc.jsonl")
    shutil.rmtree("out", ignore_errors=True)
    run("alter", "set", "-o", "out", "--tensors", "block.1.weight", "--flips", 1)  # a copy has no link
    assert not os.path.islink(f"out/{NAMES[1]}")
    with open(target, "rb") as f:
        assert f.read() == before
    copy = link_out("out", NAMES[1])
    with open(copy, "rb") as f:
        altered = f.read()
    run("undo", "out.sdc.jsonl", code=3, err=f"out/{NAMES[1]}: unsafe path: a link out of the folder of its set")
    with open(copy, "rb") as f:
        assert f.read() == altered
    os.remove("out.sdc.jsonl")
    make("set")  # a link that stays inside is one of the folder's files
    os.makedirs("set/store")
    os.replace(f"set/{NAMES[0]}", "set/store/a")
    os.symlink("store/a", f"set/{NAMES[0]}")
    os.symlink("set", "through")
    assert "security" not in run("inspect", "through")
    run("alter", "through", "--in-place", "--tensors", "block.0.weight", "--flips", 1)
    run("undo", "through.sdc.jsonl")
    os.remove("through.sdc.jsonl")
    os.remove("through")


def contents(folder):
    return {n: open(os.path.join(folder, n), "rb").read() for n in NAMES}


def test_undo_in_the_wrong_order():
    """As for single files: the older alteration is not undone under the newer one."""
    make("set")
    clean = contents("set")
    ways = ["set", "set/model.safetensors.index.json", "set/"]  # whichever way the set was named
    records = [json.loads(run("alter", way, "--in-place", "--seed", i, "--flips", 12, "--json"))["record"]
               for i, way in enumerate(ways)]
    altered = contents("set")
    for record in records[:2]:
        run("undo", record, code=3, err=f"undo {records[2]} first; nothing was changed")
    run("undo", records[0], "set", code=3, err=f"undo {records[2]} first; nothing was changed")
    assert contents("set") == altered
    for record in reversed(records):
        run("undo", record, out="restored")
    assert contents("set") == clean
    # alterations of different files of a set do not depend on each other
    for tensor in ("block.0.weight", "block.1.weight"):
        run("alter", "set", "--in-place", "--tensors", tensor, "--flips", 1, "--record", f"set/{tensor}.sdc.jsonl")
    run("undo", "set/block.0.weight.sdc.jsonl", "set", out="1 element restored")
    run("undo", "set/block.1.weight.sdc.jsonl", "set", out="1 element restored")
    assert contents("set") == clean


def test_one_name_for_all_ways():
    """Seals and records of a set lie in one place, whichever way the set was named."""
    source = os.path.join(os.environ["SDC_SOURCE_DIR"], "tests", "data", "tensorbundle", "adam")
    make("set")
    shutil.copytree(source, "tf")
    with open("tf/checkpoint", "w") as f:
        f.write('model_checkpoint_path: "ckpt-1"\n')
    cases = {"set": ["set", "set/", "set/.", "set/model.safetensors.index.json"],
             "tf/ckpt-1": ["tf", "tf/ckpt-1", "tf/ckpt-1.index", "tf/ckpt-1.data-00000-of-00001"]}
    for name, ways in cases.items():
        for way in ways:
            assert json.loads(run("seal", way, "--json", "--force"))["seal"] == name + ".seal", way
            for other in ways:
                found = json.loads(run("verify", other, "--json"))
                assert found["seal"] == "matches" and found["seal_path"] == name + ".seal", (way, other, found)
        records = [json.loads(run("alter", way, "--in-place", "--flips", 1, "--seed", i, "--json"))["record"]
                   for i, way in enumerate(ways)]
        assert records == [name + ".sdc.jsonl"] + [f"{name}.{i + 1}.sdc.jsonl" for i in range(1, len(ways))], records
        for record in reversed(records):
            run("undo", record, out=f"{name}: 1 element restored")
            os.remove(record)
        assert json.loads(run("verify", ways[0], "--json"))["seal"] == "matches"
        # from inside of the folder, and a seal that was made under another name
        folder, _, prefix = name.partition("/")
        for old in ([f"{folder}/model.safetensors.index.json.seal"] if not prefix else ["tf.seal", "tf/ckpt-1.index.seal"]):
            os.rename(name + ".seal", old)
            for way in ways:
                found = json.loads(run("verify", way, "--json"))
                assert found["seal"] == "matches" and os.path.normpath(found["seal_path"]) == old, (way, old, found)
            os.rename(old, name + ".seal")
        inside = "../set" if not prefix else prefix
        for way in (["."] if not prefix else [".", prefix]):
            assert json.loads(run("verify", way, "--json", cwd=folder))["seal"] == "matches"
            record = json.loads(run("alter", way, "--in-place", "--flips", 1, "--json", cwd=folder))["record"]
            assert record == inside + ".sdc.jsonl", record
            run("undo", record, out="1 element restored", cwd=folder)
            os.remove(os.path.join(folder, record))
        # one file damaged so that the set cannot be opened: the seal says so too
        victim = f"set/{NAMES[0]}" if not prefix else "tf/ckpt-1.index"
        with open(victim, "r+b") as f:
            f.truncate(20)
        for way in ways[:2] + ways[3:]:
            found = json.loads(run("verify", way, "--json", code=1))
            assert not found["opened"] and found["seal"] == "differs", (way, found)
    # two sets in one folder: each has its own name
    make("two")
    shutil.copy("two/model.safetensors.index.json", "two/other.safetensors.index.json")
    for way in ("two/model.safetensors.index.json", "two/other.safetensors.index.json"):
        assert json.loads(run("seal", way, "--json"))["seal"] == way + ".seal"


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


def test_more_files_than_descriptors():
    """1,500 shards under a limit of 256 open files."""
    n = 1500
    names = [f"m-{i:05}-of-{n:05}.safetensors" for i in range(1, n + 1)]
    os.mkdir("many")
    for i, name in enumerate(names):
        header = json.dumps({f"t{i:04}": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
        with open(os.path.join("many", name), "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header + struct.pack("<4f", *range(i, i + 4)))
    shutil.copytree("many", "clean")
    def few(*args, **more):
        return run(*args, **more, preexec_fn=few_descriptors)
    listing = json.loads(few("inspect", "many", "--json"))["files"][0]
    assert len(listing["tensors"]) == n
    few("seal", "many")
    few("alter", "many", "--in-place", "--bits", "lsb:3", "--exhaustive", "--no-sync", out="6,000 altered")
    few("diff", "many", "clean", code=1, out="6,000 bits")
    few("verify", "many", code=1)
    few("undo", "many.sdc.jsonl", "--no-sync", out="6,000 elements restored")
    few("verify", "many", "--require-checksums")
    few("diff", "many", "clean", out="identical")
    few("alter", "many", "-o", "copy", "--bits", "lsb:3", "--exhaustive", "--no-sync", out="6,000 altered")
    few("diff", "copy", "clean", code=1, out="6,000 bits")
    few("undo", "copy.sdc.jsonl", "--no-sync")
    few("diff", "copy", "clean", out="identical")


def test_checksums_that_were_wrong():
    """After stale, mend keeps the CRC wrong by the same difference, and says so."""
    np.savez("a.npz", w=np.arange(100, dtype=np.float32), v=np.arange(5, dtype=np.float32))
    with open("a.npz", "rb") as f:
        clean = f.read()
    run("alter", "a.npz", "--in-place", "--at", "w[3]@lsb:7", "--checksum", "stale", out="1 checksum left stale")
    first = json.loads(run("alter", "a.npz", "-o", "b.npz", "--at", "w[5]@lsb:7", "--json"))
    assert (first["mended"], first["wrong_sums"], first["moved_sums"], first["unchecked_sums"]) == (0, 1, 1, 0), first
    run("alter", "a.npz", "--in-place", "--at", "w[5]@lsb:7", "--at", "v[1]@lsb:2",
        out="1 checksum was wrong before and stays wrong by the same difference")
    run("verify", "a.npz", code=1, out="1 wrong")
    with open("a.npz.2.sdc.jsonl") as f:
        lines = [line for line in map(json.loads, f) if line["type"] == "mended"]
    assert {(line["what"], line.get("was_wrong", False)) for line in lines} == {("zip member w.npy", True), ("zip member v.npy", False)}, lines
    for record in ("a.npz.2.sdc.jsonl", "a.npz.sdc.jsonl"):
        run("undo", record)
    with open("a.npz", "rb") as f:
        assert f.read() == clean
    np.savez("large.npz", w=np.zeros(5_000_000, dtype=np.float32))
    run("alter", "large.npz", "--in-place", "--at", "w[3]@lsb:7",
        out="1 checksum covers too many bytes to look whether right before: one that was wrong stays wrong")
    os.remove("large.npz")


def test_where_outputs_go():
    """Messages name the output and its folder, not a temporary."""
    make("set")
    shutil.copy(f"set/{NAMES[0]}", "a.st")
    run("alter", "a.st", "-o", "no/where/b.st", code=4, err="alter: no/where/b.st: there is no folder no/where\n")
    run("alter", "a.st", "-o", "b.st/", code=2, err="alter: b.st/: ends with a slash, expected the name of a file\n")
    run("alter", "a.st", "-o", "b.st", "--record", "no/r", code=4, err="no/r: there is no folder no\n")
    run("alter", "set", "-o", "no/where/b", code=4, err="alter: no/where/b: there is no folder no/where\n")
    run("seal", "a.st", "-o", "no/s", code=4, err="no/s: there is no folder no\n")
    os.makedirs("set/sub/other")
    with open("set/sub/other/notes", "w") as f:
        f.write("mine")
    run("alter", "set", "-o", "copy/")  # a folder is copied with all it holds
    assert os.path.exists("copy/sub/other/notes") and os.path.exists("copy.sdc.jsonl")


def main():
    failed = 0
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            here = os.getcwd()
            shutil.rmtree(name, ignore_errors=True)
            os.makedirs(name)
            os.chdir(name)
            try:
                test()
            except Exception:
                failed += 1
                print(f"{name}:")
                traceback.print_exc()
            os.chdir(here)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
