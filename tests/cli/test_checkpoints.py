#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""inspect, alter, undo and diff as a user runs them, on files that h5py and safetensors wrote; what
these two see afterwards must be what the record says."""
import json
import os
import shutil
import stat
import subprocess
import sys
import traceback

import h5py
import jsonschema
import numpy as np
from safetensors.numpy import load_file, save_file

SDCLAB = os.environ["SDCLAB"]
NUMPY = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32,
         "U8": np.uint8}
UINT = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}


def run(*args, code=0, err=None, out=None):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    assert "\n\n" not in p.stderr and (code or not err or err in p.stderr), p.stderr
    if code > 1:
        assert p.stderr.startswith("sdclab"), p.stderr
    if err:
        assert err in p.stderr, f"{args}: {err!r} is not in {p.stderr!r}"
    if out:
        assert out in p.stdout, f"{args}: {out!r} is not in {p.stdout!r}"
    return p.stdout


def as_json(*args, code=0):
    found = json.loads(run(*args, "--json", code=code))
    if args[0] in ("alter", "undo", "seal"):
        with open(os.path.join(os.environ["SDC_SOURCE_DIR"], "schemas", found["schema"][7:].replace("/", "-") + ".json")) as f:
            jsonschema.validate(found, json.load(f))
    return found


def state():
    """A small state of every type; sorted names as in the program's own checkpoints."""
    rng = np.random.default_rng(7)
    return {
        "loop/step": np.array(300, np.int64),
        "model/conv1.bias": rng.normal(size=6).astype(np.float32),
        "model/conv1.weight": rng.normal(0, 0.05, (6, 1, 5, 5)).astype(np.float32),
        "model/fc.weight": rng.normal(0, 0.05, (84, 120)).astype(np.float16),
        "model/wide.weight": rng.normal(0, 0.05, (30, 40)),
        "optimizer/conv1.weight/momentum": np.zeros((6, 1, 5, 5), np.float32),
    }


def write_h5(path):
    with h5py.File(path, "w", libver="earliest") as f:
        for name, value in state().items():
            chunks = (7, 9) if name == "model/wide.weight" else None
            f.create_dataset(name, data=value, chunks=chunks)


def write_st(path):
    save_file(state(), path)


def read_h5(path):
    found = {}
    with h5py.File(path, "r") as f:
        f.visititems(lambda n, o: found.__setitem__(n, o[()]) if isinstance(o, h5py.Dataset) else None)
    return {n: np.asarray(v) for n, v in found.items()}


FORMATS = {"hdf5": (write_h5, read_h5), "safetensors": (write_st, load_file)}


def bits(array):
    array = np.ascontiguousarray(array)
    return array.reshape(-1).view(UINT[array.dtype.itemsize])


def contents(path):
    with open(path, "rb") as f:
        return f.read()


with open(os.path.join(os.environ["SDC_SOURCE_DIR"], "schemas", "record-1.json")) as schema:
    RECORD = jsonschema.Draft202012Validator(json.load(schema))


def record_of(path):
    """Its lines, each checked against the schema."""
    with open(path) as f:
        lines = [json.loads(line) for line in f]
    for line in lines:
        RECORD.validate(line)
    assert [line["type"] for line in lines] == ["header"] + ["change"] * (len(lines) - 2) + ["verified"]
    return lines


def check_against_libraries(fmt, before, after, changes):
    """The other library sees the altered values where the changes say, and the old ones elsewhere."""
    read = FORMATS[fmt][1]
    old, new = read(before), read(after)
    assert old.keys() == new.keys()
    left = {}
    for c in changes:
        left.setdefault(c["tensor"], {})[c["elem"]] = c
    for name in old:
        a, b = bits(old[name]), bits(new[name])
        differing = set(np.flatnonzero(a != b))
        planned = left.get(name, {})
        assert differing == {e for e, c in planned.items() if c["old"] != c["new"]}, name
        for e, c in planned.items():
            assert int(a[e]) == int.from_bytes(bytes.fromhex(c["old"]), "little"), c
            assert int(b[e]) == int.from_bytes(bytes.fromhex(c["new"]), "little"), c
            index = tuple(json.loads(c["index"]))
            assert np.ravel_multi_index(index, old[name].shape) == e if index else e == 0, c


CHOICES = [
    ["--flips", 1],
    ["--flips", 100, "--seed", 5],
    ["--flips", 50, "--sample", "tensors"],
    ["--flips", 10, "--bits", "exponent", "--part", "model", "--dtype", "F32,F16"],
    ["--flips", 4, "--op", "value=nan", "--role", "momentum"],
    ["--exhaustive", "--tensors", "model/conv1.*", "--bits", "sign", "--not-tensors", "*bias"],
    ["--at", "model/conv1.weight[5,0,4,4]@lsb:30", "--at", "loop/step@lsb:3"],
]


def test_libraries_agree_with_the_record(fmt):
    FORMATS[fmt][0]("in")
    for n, choice in enumerate(CHOICES):
        out = f"out{n}"
        result = as_json("alter", "in", "-o", out, *choice)
        lines = record_of(out + ".sdc.jsonl")
        changes = lines[1:-1]
        assert result["record"] == out + ".sdc.jsonl" and result["changes"] == changes
        check_against_libraries(fmt, "in", out, changes)
        # byte for byte: cmp lists exactly the bytes that the changes change
        want = bytearray(contents("in"))
        for c in changes:
            old, new = bytes.fromhex(c["old"]), bytes.fromhex(c["new"])
            assert want[c["offset"]:c["offset"] + len(old)] == old
            want[c["offset"]:c["offset"] + len(new)] = new
        assert bytes(want) == contents(out)
        cmp = subprocess.run(["cmp", "-l", "in", out], capture_output=True, text=True)
        different = sum(a != b for c in changes
                        for a, b in zip(bytes.fromhex(c["old"]), bytes.fromhex(c["new"])))
        assert len(cmp.stdout.splitlines()) == different
        run("undo", out + ".sdc.jsonl", out=f"{out}: {result['altered']} element")
        subprocess.run(["cmp", "in", out], check=True)


def test_in_place_and_undo(fmt):
    FORMATS[fmt][0]("in")
    shutil.copy("in", "original")
    assert run("alter", "in", "--in-place", "--flips", 30, out="in: 30 altered").count("lsb:") >= 20
    run("diff", "original", "in", code=1)
    run("undo", "in.sdc.jsonl")
    subprocess.run(["cmp", "in", "original"], check=True)
    assert as_json("undo", "in.sdc.jsonl")["already"] == 30
    as_json("seal", "in")
    run("alter", "in", "-o", "x", "--not-tensors", "nobody", code=2, err="no tensor of it is called 'nobody'")
    run("alter", "in", "-o", "x", "--force", "--not-tensors", "nobody*")
    run("predict", "in", "--not-tensors", "nobody", code=2, err="is called 'nobody'")
    run("undo", "in.sdc.jsonl", out="0 elements restored, 30 held the old value already")


def test_diff_finds_exactly_the_sites(fmt):
    FORMATS[fmt][0]("in")
    result = as_json("alter", "in", "-o", "out", "--flips", 200, "--seed", 11)
    diff = as_json("diff", "in", "out", "--sites", 1000, code=1)
    found = {(t["name"], s["elem"]): (s["a"]["bits"], s["b"]["bits"])
             for t in diff["tensors"] for s in t["sites"]}
    order = lambda h: bytes.fromhex(h)[::-1].hex()
    want = {(c["tensor"], c["elem"]): (order(c["old"]), order(c["new"])) for c in result["changes"]}
    assert found == want
    assert diff["differing_elements"] == result["altered"]
    assert diff["differing_bits"] == result["altered_bits"]
    per_bit = {}
    for t in diff["tensors"]:
        assert sum(t["bit_counts"].values()) == t["bits"]
        for bit, n in t["bit_counts"].items():
            per_bit[bit] = per_bit.get(bit, 0) + n
    flipped = {}
    for c in result["changes"]:
        x = int.from_bytes(bytes.fromhex(c["old"]), "little") ^ int.from_bytes(bytes.fromhex(c["new"]), "little")
        for bit in range(64):
            if x >> bit & 1:
                flipped[str(bit)] = flipped.get(str(bit), 0) + 1
    assert per_bit == flipped
    run("diff", "in", "in", out="byte-identical")


def test_no_flips_is_identical(fmt):
    FORMATS[fmt][0]("in")
    run("alter", "in", "-o", "out", "--flips", 0, out="out: 0 altered")
    subprocess.run(["cmp", "in", "out"], check=True)
    run("alter", "in", "-o", "out2", "--flips", 3, "--not-tensors", "*", out="0 altered (0 bits); the support is empty")
    subprocess.run(["cmp", "in", "out2"], check=True)


def test_inspect(fmt):
    FORMATS[fmt][0]("in")
    text = run("inspect", "in")
    values = state()
    for name, value in values.items():
        assert name in text
    found = as_json("inspect", "in")["files"][0]
    assert found["format"] == fmt and found["size"] == os.path.getsize("in")
    assert [t["name"] for t in found["tensors"]] == sorted(values)
    for t in found["tensors"]:
        value = values[t["name"]]
        assert NUMPY[t["type"]] == value.dtype.type
        assert tuple(t["shape"]) == value.shape and t["elements"] == value.size
        assert t["alterable"] and t["locked"] is None
        assert t["part"] == t["name"].split("/")[0]
    roles = {t["name"]: t["role"] for t in found["tensors"]}
    assert roles["model/conv1.weight"] == "weight" and roles["model/conv1.bias"] == "bias"
    assert roles["optimizer/conv1.weight/momentum"] == "momentum"


def test_same_seed_same_list(fmt):
    FORMATS[fmt][0]("in")
    a = as_json("alter", "in", "-o", "a", "--flips", 40, "--seed", 2022)
    b = as_json("alter", "in", "-o", "b", "--flips", 40, "--seed", 2022)
    c = as_json("alter", "in", "-o", "c", "--flips", 40, "--seed", 2023)
    dry = as_json("alter", "in", "--dry-run", "--flips", 40, "--seed", 2022)
    assert a["changes"] == b["changes"] == dry["changes"] != c["changes"]
    assert dry["record"] is None and dry["altered"] == 0
    assert sorted(os.listdir(".")) == ["a", "a.sdc.jsonl", "b", "b.sdc.jsonl", "c", "c.sdc.jsonl", "in"]


def test_the_same_sites_in_both_formats():
    write_h5("h")
    write_st("s")
    a = as_json("alter", "h", "-o", "h2", "--flips", 40)
    b = as_json("alter", "s", "-o", "s2", "--flips", 40)
    strip = lambda r: [{k: v for k, v in c.items() if k not in ("offset", "file")} for c in r["changes"]]
    assert strip(a) == strip(b)
    run("diff", "h2", "s2", out="all values are the same; the files differ in layout or metadata")
    run("diff", "h", "s2", code=1)


def test_golden_vectors():
    save_file({"w": np.array([0.05, 1.0, 0.0, 2.0], np.float32)}, "in")
    sites = [a for i in range(4) for a in ("--at", f"w[{i}]@top-exponent")]
    text = run("alter", "in", "-o", "out", *sites)
    for was, now in (("0.05", "1.7014119e+37"), ("1", "inf"), ("0", "2"), ("2", "0")):
        assert f" {was}  ->  {now} " in text, (was, now, text)
    assert "lsb:30 msb:1 exponent" in text
    values = load_file("out")["w"]
    assert values[0] == np.float32(1.7014119e37) and np.isinf(values[1])
    assert values[2] == 2 and values[3] == 0
    for name in ("F64", "F16"):
        save_file({"w": np.zeros(1, NUMPY[name])}, "zero")
        run("alter", "zero", "-o", name, "--at", "w[0]@top-exponent", out="0  ->  2")


def test_messages():
    """Every message says the object, what was found and what was expected; exit codes as documented."""
    write_h5("in.h5")
    write_st("in.st")
    run("inspect", "missing.h5", code=4, err="missing.h5")
    run("alter", "missing.h5", "-o", "x", code=4, err="missing.h5")
    run("diff", "in.h5", "missing.h5", code=4, err="missing.h5")
    whole = contents("in.h5")
    open("short.h5", "wb").write(whole[:len(whole) // 2])
    run("inspect", "short.h5", code=3, err="truncated")
    run("alter", "short.h5", "-o", "x", code=3, err="short.h5")
    header = b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    open("outside.st", "wb").write(len(header).to_bytes(8, "little") + header + bytes(8))
    run("inspect", "outside.st", code=3, err="outside.st")
    open("text", "w").write("no checkpoint at all\n")
    run("inspect", "text", code=3, err="text")
    run("inspect", "in.h5", "missing.h5", "in.st", code=4, out="in.st")

    run("alter", "in.st", code=2, err="-o FILE or --in-place")
    run("alter", "in.st", "-o", "x", "--in-place", code=2, err="exclude each other")
    run("alter", "in.st", "-o", "in.st", code=2, err="same file")
    run("alter", "in.st", "-o", "in.st", "--force", code=2, err="same file")
    run("alter", "in.st", "-o", "in.h5", code=4, err="in.h5: exists already")
    run("alter", "in.st", "-o", "x", "--flip", 3, code=2, err="did you mean '--flips'")
    run("alter", "in.st", "-o", "x", "--flips", "many", code=2, err="alter: --flips: expected")
    run("alter", "in.st", "-o", "x", "--flips", 10 ** 7, code=2, err="the support holds")
    run("alter", "in.st", "-o", "x", "--bits", "lsb:64", code=2, err="64")
    run("alter", "in.st", "-o", "x", "--at", "model/conv1.wieght[0,0,0,0]@lsb:0", code=2,
        err="did you mean 'model/conv1.weight'")
    run("alter", "in.st", "-o", "x", "--at", "model/conv1.weight[6,0,0,0]@lsb:0", code=2,
        err="model/conv1.weight[6,0,0,0]")
    run("alter", "in.st", "-o", "x", "--at", "model/conv1.weight[0,0]@lsb:0", code=2,
        err="model/conv1.weight[0,0]")
    run("alter", "in.st", "-o", "x", "--at", "model/conv1.weight[0,0,0,0]@lsb:40", code=2, err="F32")
    run("alter", "in.st", "-o", "x", "--at", "loop/step@lsb:1", "--flips", 2, code=2)
    run("alter", "in.st", "-o", "no/such/folder/x", code=4, err="no/such/folder")
    assert not os.path.exists("x") and not os.path.exists("x.sdc.jsonl")

    run("alter", "in.st", "-o", "out.st", "--at", "model/conv1.bias[2]@lsb:30")
    change = record_of("out.st.sdc.jsonl")[1]
    with open("out.st", "r+b") as f:
        f.seek(change["offset"])
        f.write(b"\x01\x02\x03\x04")
    run("undo", "out.st.sdc.jsonl", code=3, err="model/conv1.bias[2]: found")
    run("undo", "out.st.sdc.jsonl", "in.h5", code=3, err="in.h5")
    run("undo", "out.st.sdc.jsonl", "missing", code=4, err="missing")
    run("undo", "missing", code=4, err="missing")
    run("undo", "text", code=3, err="text")
    run("undo", code=2, err="RECORD")
    run("diff", "in.st", code=2, err="A B")
    run("difff", code=2, err="did you mean 'diff'")


def test_full_disk():
    """Output that cannot be written is no success, and leaves nothing behind."""
    if not os.path.exists("/dev/full"):
        return
    write_st("in")
    before = contents("in")
    for command in (["inspect", "in"], ["alter", "in", "--dry-run"], ["diff", "in", "in"]):
        with open("/dev/full", "w") as full:
            p = subprocess.run([SDCLAB, *command], stdout=full, stderr=subprocess.PIPE, text=True)
        assert p.returncode == 4 and "standard output" in p.stderr, (command, p)
    # a limit on file size stands for a disk that is full
    for size in (0, 1, 8):
        for where in ("-o out", "--in-place --at model/wide.weight[29,39]@lsb:1"):
            p = subprocess.run(["bash", "-c", f"ulimit -f {size}; {SDCLAB} alter in {where}"],
                               capture_output=True, text=True)
            assert p.returncode == 4 and "File too large" in p.stderr, p
            assert os.listdir(".") == ["in"] and contents("in") == before, os.listdir(".")


def test_names_are_shown_harmlessly():
    save_file({"evil\x1b[31m\nname": np.zeros(2, np.float32)}, "in")
    text = run("inspect", "in")
    assert "\x1b" not in text and "evil?[31m?name" in text
    p = subprocess.run([SDCLAB, "alter", "in", "-o", "x", "--at", "evil\x1b[31m\nname[7]@lsb:0"],
                       capture_output=True, text=True)
    assert p.returncode == 2 and "\x1b" not in p.stderr and "evil?[31m?name[7]" in p.stderr, p
    with h5py.File("linked.h5", "w") as f:
        f["model/a.weight"] = np.zeros(3, np.float32)
        f["model/b.weight"] = f["model/a.weight"]
    run("inspect", "linked.h5", out="model/b.weight is another name of model/a.weight")
    assert as_json("inspect", "in")["files"][0]["tensors"][0]["name"] == "evil\x1b[31m\nname"


def test_sites_are_named_by_any_name():
    with h5py.File("in.h5", "w") as f:
        f["a/weight"] = np.arange(6, dtype=np.float32)
        f["tied"] = f["a/weight"]
    changes = [as_json("alter", "in.h5", "-o", f"{n}.h5", "--at", f"{name}[3]@lsb:5", "--at", "a/weight[1]@lsb:5")
               for n, name in enumerate(("a/weight", "tied"))]
    assert contents("0.h5") == contents("1.h5") != contents("in.h5")
    assert record_of(changes[1]["record"])[1]["tensor"] == "a/weight"
    run("undo", changes[1]["record"])
    assert contents("1.h5") == contents("in.h5")
    run("alter", "in.h5", "-o", "2.h5", "--at", "a/weight[3]@lsb:5", "--at", "tied[3]@lsb:5", code=2, err="named twice")


def test_tensors_are_chosen_by_any_name():
    """Hard and soft links, tied weights and views are names like any other; one that fits nothing is wrong usage."""
    with h5py.File("in.h5", "w") as f:
        f["a/weight"] = np.arange(6, dtype=np.float32)
        f["hard"] = f["a/weight"]
        f["soft"] = h5py.SoftLink("/a/weight")
        f["b"] = np.arange(6, dtype=np.float32)
    for name in ("hard", "soft", "so*"):
        for i, words in enumerate((["--tensors", name], ["--not-tensors", "b"])):
            changes = as_json("alter", "in.h5", "--dry-run", "--flips", 20, *words)["changes"]
            assert {c["tensor"] for c in changes} == {"a/weight"}, (words, changes)
        assert as_json("predict", "in.h5", "--tensors", name)["sites"] == 6 * 32
        assert [t["name"] for t in as_json("scan", "in.h5", "--tensors", name)["tensors"]] == ["a/weight"]
        run("alter", "in.h5", "-o", "out.h5", "--force", "--no-record", "--tensors", name, "--flips", 1)
        run("diff", "in.h5", "out.h5", "--tensors", name, code=1, out="a/weight")
    assert {c["tensor"] for c in as_json("alter", "in.h5", "--dry-run", "--flips", 20, "--not-tensors", "soft")["changes"]} == {"b"}
    for args in (["alter", "in.h5", "--dry-run"], ["predict", "in.h5"], ["scan", "in.h5"], ["diff", "in.h5", "out.h5"],
                 ["diff", "in.h5", "in.h5"]):
        for more in ([], ["--tensors", "b"]):
            run(*args, "--tensors", "w*ght", *more, code=2, err="is called 'w*ght'")


def test_undo_takes_the_file_beside_its_record():
    """A relative name must not lead to another file of that name where undo happens to be run."""
    for folder in ("run1", "run2"):
        os.mkdir(folder)
        write_st(os.path.join(folder, "ck"))
    shutil.copy("run1/ck", "clean")
    home = os.getcwd()
    os.chdir("run1")
    run("alter", "ck", "--in-place", "--flips", 3)
    os.chdir("../run2")
    run("undo", "../run1/ck.sdc.jsonl", out="../run1/ck: 3 elements restored")
    os.chdir(home)
    assert contents("run1/ck") == contents("clean")
    # a record that was put elsewhere means the file as it was named
    run("alter", "run1/ck", "-o", "run2/out", "--flips", 3, "--record", "out.jsonl")
    shutil.copy("clean", "out")
    run("undo", "out.jsonl", out="run2/out: 3 elements restored")


def test_undo_of_a_prefix():
    """The prefix of a set is no file; its record lies beside the files, and the folder may be moved."""
    source = os.path.join(os.environ["SDC_SOURCE_DIR"], "tests", "data", "tensorbundle", "adam")
    os.mkdir("run")
    for name in os.listdir(source):
        shutil.copy(os.path.join(source, name), "run")
    before = {name: contents(f"run/{name}") for name in os.listdir("run")}
    for where in ("run", "moved"):
        records = [as_json("alter", "run/ckpt-1", "--in-place", "--flips", 3, "--seed", s)["record"] for s in (1, 2)]
        assert {name: contents(f"run/{name}") for name in before} != before
        if where != "run":
            os.rename("run", where)
            records = [r.replace("run", where) for r in records]
        run("undo", records[0], code=3, err="nothing was changed")
        for record in reversed(records):
            run("undo", record, out="3 elements restored")
        assert {name: contents(f"{where}/{name}") for name in before} == before
        for record in records:
            os.remove(record)
    record = as_json("alter", "moved/ckpt-1", "--in-place")["record"]
    os.rename("moved/ckpt-1.data-00000-of-00001", "away")
    run("undo", record, code=4, err="moved/ckpt-1.data-00000-of-00001")


def test_undo_goes_by_the_name_of_the_record():
    """A name that JSON cannot hold, and one that was changed together with the record's."""
    write_st("in")
    odd = b"caf\xe9"
    subprocess.run([SDCLAB.encode(), b"alter", b"in", b"-o", odd], check=True, capture_output=True)
    record_of(odd + b".sdc.jsonl")
    subprocess.run([SDCLAB.encode(), b"undo", odd + b".sdc.jsonl"], check=True, capture_output=True)
    assert contents(odd) == contents("in")
    run("alter", "in", "-o", "old")
    os.rename("old", "new")
    os.rename("old.sdc.jsonl", "new.2.sdc.jsonl")
    run("undo", "new.2.sdc.jsonl", out="new: 1 element restored")
    p = subprocess.run([SDCLAB, "alter", "in", "-o", "it's; here"], capture_output=True, text=True)
    line = p.stderr.splitlines()[-1].removeprefix("restore with: sdclab")
    subprocess.run(["bash", "-c", SDCLAB + line], check=True, capture_output=True)
    assert contents("it's; here") == contents("in")


def test_undo_in_the_wrong_order():
    """Undoing an older alteration first would leave a file that the newer record no longer fits."""
    write_st("in")
    shutil.copy("in", "clean")
    for seed in (1, 2, 3):
        run("alter", "in", "--in-place", "--seed", seed, "--flips", 5)
    altered = contents("in")
    run("undo", "in.sdc.jsonl", code=3, err="undo in.3.sdc.jsonl first; nothing was changed")
    run("undo", "in.2.sdc.jsonl", code=3, err="undo in.3.sdc.jsonl first")
    assert contents("in") == altered
    for record in ("in.3.sdc.jsonl", "in.2.sdc.jsonl", "in.sdc.jsonl"):
        run("undo", record, out="5 elements restored")
    assert contents("in") == contents("clean")


def test_undo_refuses_a_record_that_is_cut_short():
    write_st("in")
    run("alter", "in", "-o", "out", "--flips", 9)
    altered = contents("out")
    lines = contents("out.sdc.jsonl").splitlines(keepends=True)
    for keep in (1, 5, len(lines) - 2):
        open("short", "wb").write(b"".join(lines[:keep]))
        run("undo", "short", "out", code=3, err="9 of its header")
        open("short", "ab").write(lines[-1])
        run("undo", "short", "out", code=3, err="9 of its header")
    assert contents("out") == altered
    open("short", "wb").write(b"".join(lines[:-1]))  # killed before the last line: complete
    run("undo", "short", "out", out="out: ")
    assert contents("out") == contents("in")
    run("undo", "in", code=3, err="in: no alteration record")
    open("short", "wb").write(contents("out.sdc.jsonl").replace(b'"offset":', b'"offset":-', 1))
    run("undo", "short", "out", code=3, err="expected an integer of at least 0, found -")


def test_only_regular_files_are_replaced():
    write_st("in")
    os.mkfifo("pipe")
    os.mkdir("folder")
    for name in ("pipe", "folder"):
        run("alter", "in", "-o", name, "--force", code=4, err=f"{name}: ")
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    assert sorted(os.listdir(".")) == ["folder", "in", "pipe"]
    run("alter", "in", "-o", "", code=2, err="--output: found ''")


def test_diff_counts_what_it_compared():
    with h5py.File("a", "w") as f:
        f["w"] = np.ones(3, np.float32)
        f["only.here"] = np.ones(3, np.float32)
        f["pair"] = np.array([b"ab", b"cd"])
        f["lone"] = np.array([b"ab", b"cd"])
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_chunk((4,))
        dcpl.set_filter(32099, h5py.h5z.FLAG_OPTIONAL, ())  # a filter that nobody has
        d = h5py.h5d.create(f.id, b"filtered", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((4,)), dcpl=dcpl)
        d.write_direct_chunk((0,), bytes(32))
    shutil.copy("a", "b")
    with h5py.File("b", "r+") as f:
        f["w"][0] = 2
        f["only.there"] = f["only.here"][()]
        del f["only.here"], f["lone"]
    text = run("diff", "a", "b", code=1, out="4 of 6 tensors differ, 2 could not be compared: 1 element, ")
    assert "type string of 2 bytes: its values are not understood" in text
    assert "filter id 32099" in text
    found = as_json("diff", "a", "b", code=1)
    assert (found["differing_tensors"], found["unreadable_tensors"]) == (4, 2)
    run("diff", "a", "a", "--all", out="the files are byte-identical")
    run("diff", "a", "b", "--tensors", "wight", code=2, err="no tensor of a or b is called 'wight'")


def test_permissions():
    """Nobody may read the copy, or the old values in its record, who may not read the original."""
    write_st("in")
    os.chmod("in", 0o600)
    open("out", "w").close()
    os.chmod("out", 0o644)
    old = os.umask(0)
    run("alter", "in", "-o", "out", "--force")
    run("alter", "in", "-o", "new")
    run("alter", "in", "--in-place", "--flips", 0)
    os.umask(old)
    for name in ("out", "out.sdc.jsonl", "new", "new.sdc.jsonl", "in", "in.sdc.jsonl"):
        assert os.stat(name).st_mode & 0o777 == 0o600, (name, oct(os.stat(name).st_mode))


def test_closed_streams():
    """A file must not get the number of a closed standard stream, and with it the talk."""
    write_st("in")
    trains = os.access(os.path.join(os.path.dirname(SDCLAB), "sdclab-train"), os.X_OK)
    for close in (">&-", "2>&-", ">&- 2>&- <&-") if trains else ():
        command = f"{SDCLAB} train --model mlp --data synthetic --steps 2 -o run --save ck {close}"
        subprocess.run(["bash", "-c", command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=60)
        for line in contents("run/events.jsonl").splitlines():
            json.loads(line)
        shutil.rmtree("run")
    p = subprocess.run(["bash", "-c", f"{SDCLAB} inspect in >&-"], capture_output=True, text=True)
    assert p.returncode == 4 and "standard output" in p.stderr, p


def test_version_asks_the_trainer():
    trainer = os.path.join(os.path.dirname(SDCLAB), "sdclab-train")
    text = run("version", "--full")
    assert text.startswith("sdclab ")
    if os.access(trainer, os.X_OK):
        assert "does not run" not in text and "\nkernels.ref " in text, text
    else:
        assert "not found" in text


def test_a_tensor_without_a_name():
    save_file({"": np.ones(2, np.float32), "w": np.ones(2, np.float32)}, "in")
    run("inspect", "in", out="no: its name is empty")
    result = as_json("alter", "in", "-o", "out", "--exhaustive", "--op", "value=0")
    assert result["altered"] == 2 and {c["tensor"] for c in result["changes"]} == {"w"}


def test_long_names_do_not_widen_the_table():
    save_file({"n" * 300: np.ones(2, np.float32), "w": np.ones(2, np.float32)}, "in")
    lines = run("inspect", "in").splitlines()
    assert any("n" * 300 in line for line in lines)
    assert max(len(line) for line in lines if "n" * 300 not in line) < 130


def main():
    tests = []
    for name, function in list(globals().items()):
        if name.startswith("test_"):
            takes = function.__code__.co_argcount
            tests += [(name, function, (f,)) for f in FORMATS] if takes else [(name, function, ())]
    failed, home = 0, os.getcwd()
    for name, function, args in tests:
        folder = os.path.join(home, "_".join((name, *args)))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        os.chdir(folder)
        try:
            function(*args)
        except Exception:
            failed += 1
            print(f"FAILED {name}{args}")
            traceback.print_exc(file=sys.stdout)
        os.chdir(home)
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
