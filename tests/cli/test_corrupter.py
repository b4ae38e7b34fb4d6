#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configurations and saved sequences of hdf5_corrupter: what each key does, with right values worked
out by hand or by NumPy, and that none of the tool's defects is there."""
import json
import os
import shutil
import subprocess
import sys
import traceback

import h5py
import numpy as np
from safetensors.numpy import load_file, save_file

SDCLAB = os.environ["SDCLAB"]
UINT = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}


def run(*args, code=0, err=None, out=None):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    assert err is None or err in p.stderr, f"{args}: {err!r} is not in {p.stderr!r}"
    assert out is None or out in p.stdout, f"{args}: {out!r} is not in {p.stdout!r}"
    return p.stdout


def bits(array):
    array = np.ascontiguousarray(array)
    return array.view(UINT[array.dtype.itemsize])


def write(path="in.h5", **more):
    rng = np.random.default_rng(1)
    tensors = {"net/conv1/W": rng.normal(0, 0.05, (8, 3, 5, 5)).astype(np.float32),
               "net/conv1/b": rng.normal(0, 0.05, 10).astype(np.float32),
               "net/conv10/W": rng.normal(0, 0.05, (4, 4)).astype(np.float32), **more}
    with h5py.File(path, "w") as f:
        for name, value in tensors.items():
            f[name] = value
    return tensors


def read(path):
    found = {}
    with h5py.File(path, "r") as f:
        f.visititems(lambda n, o: found.__setitem__(n, o[()]) if isinstance(o, h5py.Dataset) else None)
    return found


def config(text, path="config.yaml"):
    with open(path, "w") as f:
        f.write(text)
    return path


BASE = """hdf5_file: "in.h5"
injection_probability: 1.0
injection_type: "count"
injection_attempts: {attempts}
float_precision: auto
locations_to_corrupt:
  - "/net/conv1"
"""


def alter(text, *args, out="out.h5"):
    """Runs a configuration; the tensors' XOR and what the program says."""
    config(text)
    result = json.loads(run("alter", "in.h5", "-o", out, "--force", "--compat", "hdf5-corrupter", "--config",
                            "config.yaml", "--json", *args))
    a, b = read("in.h5"), read(out)
    xor = {n: bits(a[n]).reshape(-1) ^ bits(b[n]).reshape(-1) for n in a}
    assert sum(np.count_nonzero(x) for x in xor.values()) == result["altered"]
    return xor, result


def header(path="out.h5.sdc.jsonl"):
    with open(path) as f:
        return json.loads(f.readline())


def ones(x):
    return [bin(int(v)).count("1") for v in x]


# ---- configurations ----

def test_bits_count_from_the_sign():
    """Bit 0 is the sign and bit 1 the top of the exponent: 31 and 30 of 32, 63 and 62 of 64, counted
    from the other end."""
    write(**{"net/conv1/d": np.linspace(0.1, 0.9, 7)})
    for bit in (0, 1, 9):
        text = BASE.format(attempts=60) + f"corruption_mode: bit_range\nfirst_bit: {bit}\nlast_bit: {bit}\n"
        xor, result = alter(text, "--no-record")
        assert result["altered"] > 20
        assert set(xor["net/conv1/W"]) == {0, 1 << (31 - bit)}
        assert set(xor["net/conv1/b"]) == {0, 1 << (31 - bit)}
        assert set(xor["net/conv1/d"]) == {0, 1 << (63 - bit)}
        assert not xor["net/conv10/W"].any()


def test_locations_are_whole_names():
    """conv1 is the group conv1, not what begins so; a tensor is itself alone."""
    write()
    xor, _ = alter(BASE.format(attempts=200) + "first_bit: 0\nlast_bit: 31\n")
    assert xor["net/conv1/W"].any() and xor["net/conv1/b"].any() and not xor["net/conv10/W"].any()
    xor, _ = alter(BASE.format(attempts=50).replace("/net/conv1", "net/conv1/b/"), "--no-record")
    assert xor["net/conv1/b"].any() and not xor["net/conv1/W"].any()
    xor, _ = alter(BASE.format(attempts=300) + "use_random_locations: True\n", "--no-record")
    assert all(x.any() for x in xor.values())
    config(BASE.format(attempts=1).replace("/net/conv1", "/net/conv"))
    run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3,
        err="config.yaml:7:3: in.h5: neither a tensor nor a group is called 'net/conv'")
    assert not os.path.exists("x")


def test_tensor_first():
    """Ten elements are hit as often as a hundred thousand: the published bias, under its name."""
    rng = np.random.default_rng(3)
    with h5py.File("in.h5", "w") as f:
        f["net/conv1/big"] = rng.normal(size=100000).astype(np.float32)
        f["net/conv1/small"] = rng.normal(size=10).astype(np.float32)
    xor, _ = alter(BASE.format(attempts=1000) + "first_bit: 9\nlast_bit: 31\n", "--no-record")
    big = np.count_nonzero(xor["net/conv1/big"])
    assert 430 < big < 570  # five standard deviations of 16 about 500
    # sampling by bits hits the small one 0.1 times in 1000
    run("alter", "in.h5", "-o", "by-bits", "--flips", 1000, "--bits", "mantissa")
    small = bits(read("in.h5")["net/conv1/small"]) ^ bits(read("by-bits")["net/conv1/small"])
    assert np.count_nonzero(small) < 5


def test_probability_and_count():
    write()
    text = BASE.format(attempts=400).replace("injection_probability: 1.0", "injection_probability: {}")
    some, result = alter(text.format(0.25), "--no-record")
    assert 60 < result["planned"] < 140  # 100, standard deviation 8.7
    none, result = alter(text.format(0), "--no-record")
    assert result["altered"] == 0 and result["planned"] == 0
    subprocess.run(["cmp", "in.h5", "out.h5"], check=True)


def test_percentage_is_a_share_of_the_locations():
    """Of the 610 entries of conv1, not of the file's 626: a tenth is 61, half a percent 3."""
    write()
    text = BASE.replace('"count"', "percentage")
    for share, attempts in ((0.1, 61), (0.005, 3), (0, 0), (1, 610)):
        alter(text.format(attempts=share))
        assert header()["choice"]["flips"] == attempts
        os.remove("out.h5.sdc.jsonl")
    config(text.format(attempts=50))
    run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3,
        err="config.yaml:4:21: injection_attempts: a percentage is a share, 0 to 1, found 50")


def test_mask():
    """101 at any of its 30 places in 32 bits; XOR of several where an element is hit again."""
    write()
    text = BASE.format(attempts=1) + "corruption_mode: bit_mask\nbit_mask: '101'\nfirst_bit: 0\n"
    places = set()
    for seed in range(40):
        xor, result = alter(text, "--seed", seed, "--no-record")
        (x,) = [int(v) for t in xor.values() for v in t if v]
        low = (x & -x).bit_length() - 1
        assert x == 0b101 << low and low <= 29
        places.add(low)
    assert len(places) > 15


def test_scaling_factor():
    tensors = write()
    text = BASE.format(attempts=30) + "corruption_mode: scaling_factor\nscaling_factor: -1.5\n"
    xor, result = alter(text)
    after = read("out.h5")["net/conv1/W"].reshape(-1)
    before = tensors["net/conv1/W"].reshape(-1)
    hit = np.flatnonzero(xor["net/conv1/W"])
    assert len(hit) > 5
    assert np.array_equal(after[hit], (before[hit].astype(np.float64) * -1.5).astype(np.float32))


def test_bits_per_value():
    write()
    xor, _ = alter(BASE.format(attempts=1) + "burst: 4\nfirst_bit: 9\nlast_bit: 20\n", "--no-record")
    (x,) = [int(v) for t in xor.values() for v in t if v]
    assert bin(x).count("1") == 4 and x & ~(0xfff << 11) == 0


def test_sign_outside_the_range():
    write()
    text = BASE.format(attempts=300) + "first_bit: 20\nlast_bit: 20\nallow_sign_change: {}\n"
    xor, _ = alter(text.format("True"), "--no-record")
    assert set(xor["net/conv1/W"]) == {0, 1 << 11, 1 << 31, 1 << 11 | 1 << 31} or \
        set(xor["net/conv1/W"]) == {0, 1 << 11, 1 << 31}
    xor, _ = alter(text.format("no"), "--no-record")
    assert set(xor["net/conv1/W"]) == {0, 1 << 11}


def test_no_nan():
    """Flips of mantissa bits make NaN of every infinity: nothing is possible, and that is a result."""
    with h5py.File("in.h5", "w") as f:
        f["net/conv1/W"] = np.full((4, 5), np.inf, np.float32)
    text = BASE.format(attempts=50) + "first_bit: 9\nlast_bit: 31\nallow_NaN_values: {}\n"
    _, result = alter(text.format("False"), "--no-record")
    assert result["altered"] == 0 and result["support"] == 0
    _, result = alter(text.format("true"), "--no-record")
    assert result["altered"] > 0 and np.isnan(read("out.h5")["net/conv1/W"]).any()
    # of ordinary weights none becomes NaN or Inf
    write(**{"net/conv1/x": np.full(2000, 1.5, np.float32)})
    text = text.replace("first_bit: 9", "first_bit: 0").replace("/net/conv1", "/net/conv1/x").replace("50", "300")
    xor, result = alter(text.format("False"), "--no-record")
    once = [n == 1 for n in ones(xor["net/conv1/x"])]
    assert sum(once) > 200 and np.isfinite(read("out.h5")["net/conv1/x"][once]).all()
    assert 0 < result["removed"] == 2000  # the top bit of the exponent makes NaN of 1.5


def test_integers_and_any_rank():
    """Integers have all their bits, five dimensions are as good as one."""
    with h5py.File("in.h5", "w") as f:
        f["net/conv1/step"] = np.full(400, 100, np.int64)
        f["net/conv1/deep"] = np.ones((2, 2, 2, 2, 2), np.float32)
    xor, _ = alter(BASE.format(attempts=3000) + "first_bit: 1\nlast_bit: 3\n", "--no-record")
    seen = np.bitwise_or.reduce(xor["net/conv1/step"])
    assert seen == np.uint64(2**64 - 1)
    assert np.bitwise_or.reduce(xor["net/conv1/deep"]) == 0x70000000


def test_width_is_the_files():
    write()
    text = BASE.format(attempts=5).replace("auto", "{}")
    config(text.format(64))
    run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3,
        err="config.yaml:5:18: float_precision: 64, but tensor net/conv1/W is F32: values are altered as they are")
    alter(text.format(32), "--no-record")
    config(BASE.format(attempts=5) + "first_bit: 1\nlast_bit: 32\n")
    run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3,
        err="config.yaml:9:11: bits 1 to 32, but tensor net/conv1/W is F32, whose bits are 0 (the sign) to 31")


def test_a_seed_repeats():
    write()
    text = BASE.format(attempts=50)
    a, _ = alter(text, "--seed", 5, "--no-record")
    b, _ = alter(text, "--seed", 5, "--no-record")
    c, _ = alter(text, "--seed", 6, "--no-record")
    assert all(np.array_equal(a[n], b[n]) for n in a) and any(not np.array_equal(a[n], c[n]) for n in a)


WRONG = [
    ("injection_attempt: 3\n", "config.yaml:1:1: unknown key 'injection_attempt', expected one of hdf5_file, "),
    ("- a\n", "config.yaml:1:1: expected a mapping"),
    ("injection_probability: 1.5\n", "1:24: injection_probability: expected a probability, 0 to 1, found the number 1.5"),
    ("injection_type: some\n", "expected count or percentage, found the text 'some'"),
    ("injection_attempts: 2.5\nlocations: [a]\n", "expected a whole number, found 2.5"),
    ("injection_attempts: ten\n", "expected a number of attempts"),
    ("float_precision: 80\n", "expected 16, 32, 64 or auto"),
    ("corruption_mode: bits\n", "expected bit_range, bit_mask or scaling_factor"),
    ("corruption_mode: bit_mask\ninjection_attempts: 1\nlocations: [a]\n", "corruption_mode: bit_mask is not given"),
    ("bit_mask: '000'\n", "1 to 64 digits 0 and 1 that are not all 0"),
    ("bit_mask: 12\n", "1 to 64 digits 0 and 1"),
    ("bit_mask: '1'\nscaling_factor: 2\n", "2:17: bit_mask and scaling_factor are both given"),
    ("first_bit: 5\nlast_bit: 4\n", "first_bit 5 comes after last_bit 4"),
    ("first_bit: 64\n", "expected a bit, 0 (the sign) to 63"),
    ("bit_range: [1]\n", "a list of two bits"),
    ("burst: 0\n", "1 to 64 bits of a value"),
    ("allow_NaN_values: maybe\n", "expected true or false"),
    ("locations_to_corrupt: a\n", "expected a list of locations, found the text 'a'"),
    ("locations_to_corrupt: [a]\nlocations: [b]\n", "2:1: locations_to_corrupt: is given twice"),
    ("first_bit: 1\n", "injection_attempts is not given"),
    ("injection_attempts: 1\n", "neither locations_to_corrupt nor use_random_locations"),
    ("hdf5_file: !!python/object:os.system x\n", "tags are not allowed"),
    ("hdf5_file: &a x\n", "anchors are not allowed"),
    ("a: [\n", "config.yaml:2:1"),
]


def test_wrong_configurations():
    write()
    for text, message in WRONG:
        config(text)
        run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3, err=message)
    run("alter", "in.h5", "-o", "x", "--config", "none.yaml", code=4, err="none.yaml")
    assert not os.path.exists("x")


def test_spellings_and_notes():
    """Case and separators of keys do not matter; nothing after a colon is as if the key were not there."""
    write()
    text = "HDF5-File: other.h5\nInjections: 3\nbitRange: [9, 31]\nburst:\nprecision: AUTO\n" \
           "use random locations: yes\nsaveInjectionSequence: s.json\nlog_file_path: /tmp/x\n"
    config(text)
    run("alter", "in.h5", "-o", "out.h5", "--config", "config.yaml", err="is for other.h5; used for in.h5")
    assert header()["choice"]["flips"] == 3 and header()["choice"]["compat"] == "hdf5-corrupter"
    assert not os.path.exists("s.json")
    run("alter", "in.h5", "-o", "o2.h5", "--config", "config.yaml", err="no sequence is saved")
    # words of the command line go before those of the configuration
    run("alter", "in.h5", "-o", "o3.h5", "--config", "config.yaml", "--flips", 7)
    assert header("o3.h5.sdc.jsonl")["choice"]["flips"] == 7


# ---- sequences ----

def sequence(value, path="s.json"):
    with open(path, "w") as f:
        json.dump(value, f)
    return path


def replay(value, *args, code=0, err=None):
    sequence(value)
    shutil.rmtree("out.h5", ignore_errors=True)
    run("alter", "in.h5", "-o", "out.h5", "--force", "--compat", "hdf5-corrupter", "--sequence", "s.json", *args,
        code=code, err=err)
    if code:
        return None
    a, b = read("in.h5"), read("out.h5")
    return {n: bits(a[n]) ^ bits(b[n]) for n in a}


def test_a_sequence_with_indexes():
    """Each entry names its element: exactly that, every time, whatever the value."""
    tensors = write(**{"net/step": np.array([100, -1], np.int64), "net/scalar": np.float64(2)})
    value = {"/net/conv1/W": [{"bit": 1, "index": [7, 2, 4, 3]}, {"bits": [0, 31], "index": [0, 0, 0, 0]}],
             "net/conv10/W": [{"bit": 9, "index": [3, 1]}, {"bit": 9, "index": [3, 1]}, {"bit": 8, "index": [0, 0]}],
             "net/conv1/b": [{"bit": 2, "index": 9}],
             "net/step": [{"bit": 0, "index": [0]}, {"bit": 63, "index": [1]}],
             "net/scalar": [{"bit": 1, "index": []}]}
    xor = replay(value)
    want = {n: np.zeros(t.shape, bits(t).dtype) for n, t in tensors.items()}
    want["net/conv1/W"][7, 2, 4, 3] = 1 << 30
    want["net/conv1/W"][0, 0, 0, 0] = 1 << 31 | 1
    want["net/conv10/W"][0, 0] = 1 << 23  # [3,1] was flipped twice
    want["net/conv1/b"][9] = 1 << 29
    want["net/step"][0], want["net/step"][1] = 1 << 63, 1
    want["net/scalar"][()] = 1 << 62
    for name in want:
        assert np.array_equal(xor[name].reshape(-1), want[name].reshape(-1)), name
    assert read("out.h5")["net/step"][0] == 100 - 2**63 and read("out.h5")["net/scalar"] == 0
    assert header()["origin"] == "s.json" and header()["choice"]["flips"] == 9
    run("undo", "out.h5.sdc.jsonl")
    subprocess.run(["cmp", "in.h5", "out.h5"], check=True)
    # the same as a list, and on another format
    flat = [{"location": n, **e} for n, entries in value.items() for e in entries]
    again = replay(flat)
    assert all(np.array_equal(again[n].reshape(-1), want[n].reshape(-1)) for n in want)
    save_file(tensors, "in.st")
    run("alter", "in.st", "-o", "out.st", "--sequence", "s.json")
    st = load_file("out.st")
    assert all(np.array_equal((bits(st[n]) ^ bits(tensors[n])).reshape(-1), want[n].reshape(-1)) for n in want)


def test_a_sequence_without_indexes():
    """Tensor and element are drawn under the location, the bit is kept; a seed repeats it."""
    write()
    value = {"/net/conv1": [1, {"bit": 0}, {"bits": [30, 31]}] * 20, "net/conv10/W": [[5]]}
    xor = replay(value, "--seed", 3)
    values = {int(v) for v in xor["net/conv1/W"].ravel() if v}
    # an element that is drawn again has several of 1 << 30, 1 << 31 and 3
    assert {1 << 30, 1 << 31, 3} <= values and all(v & ~(3 << 30 | 3) == 0 and v & 3 in (0, 3) for v in values)
    assert np.count_nonzero(xor["net/conv1/b"]) >= 8  # 30 of 60 entries, some of them twice
    assert [int(v) for v in xor["net/conv10/W"].ravel() if v] == [1 << 26]
    again, other = replay(value, "--seed", 3), replay(value, "--seed", 4)
    assert all(np.array_equal(xor[n], again[n]) for n in xor)
    assert any(not np.array_equal(xor[n], other[n]) for n in xor)


def test_a_group_with_an_index():
    write()
    xor = replay({"net/conv1": [{"bit": 3, "index": [4]}]})
    assert int(xor["net/conv1/b"][4]) == 1 << 28 and np.count_nonzero(xor["net/conv1/W"]) == 0
    replay({"net": [{"bit": 3, "index": [4, 4]}]}, code=3, err="s.json: net[0]: 0 tensors of group net/ have")
    write(**{"net/conv1/c": np.ones(5, np.float32)})
    replay({"net/conv1": [{"bit": 3, "index": [4]}]}, code=3, err="2 tensors of group net/conv1/ have an element")


def test_a_configuration_names_its_sequence():
    write()
    os.makedirs("conf")
    sequence({"net/conv1/b": [{"bit": 0, "index": [3]}]}, "conf/seq.json")
    config("injection_sequence_path: seq.json\nallow_NaN_values: False\n", "conf/c.yaml")
    run("alter", "in.h5", "-o", "out.h5", "--config", "conf/c.yaml", out="1 altered")
    assert header()["origin"] == "conf/seq.json"
    config("injection_sequence_path: False\ninjection_attempts: 2\nlocations: [net]\n", "conf/c.yaml")
    run("alter", "in.h5", "-o", "out2.h5", "--config", "conf/c.yaml")
    assert "origin" not in header("out2.h5.sdc.jsonl")


WRONG_SEQUENCES = [
    (3, "expected an object of locations or a list of entries"),
    ({"net/conv1/b": 3}, "net/conv1/b: expected a list of entries"),
    ({"net/conv1/b": [{"index": [0]}]}, "net/conv1/b[0]: expected bit or bits"),
    ({"net/conv1/b": [{"bit": 1, "bits": [1]}]}, "expected bit or bits"),
    ({"net/conv1/b": [{"bit": 64}]}, "expected a bit, 0 (the sign) to 63, found 64"),
    ({"net/conv1/b": [{"bit": -1}]}, "net/conv1/b[0]: bit"),
    ({"net/conv1/b": [[]]}, "no bit is named"),
    ({"net/conv1/b": [[1, 1]]}, "bit 1 is named twice"),
    ({"net/conv1/b": [{"bit": 32, "index": [1]}]}, "bit 32, but tensor net/conv1/b is F32, whose bits are 0 to 31"),
    ({"net/conv1/b": [{"bit": 32}]}, "no tensor of net/conv1/b that can be altered has bit 32"),
    ({"net/conv1/b": [{"bit": 1, "index": [10]}]}, "net/conv1/b[0]: tensor net/conv1/b: index 10 in dimension 0"),
    ({"net/conv1/b": [{"bit": 1, "index": [1, 2]}]}, "an index of 2 dimensions, the tensor has 1"),
    ({"net/conv1/W": [{"bit": 1, "index": 7}]}, "an index of 1 dimensions, the tensor has 4"),
    ({"net/conv": [1]}, "s.json: net/conv[0]: in.h5: neither a tensor nor a group is called 'net/conv'"),
    ({"net/conv1/b": [{"bit": 1, "value": 2}]}, "unknown key 'value'"),
    ([{"bit": 1}], "no location is named"),
]


def test_wrong_sequences():
    write()
    for value, message in WRONG_SEQUENCES:
        replay(value, code=3, err=message)
    with open("s.json", "w") as f:
        f.write("{")
    run("alter", "in.h5", "-o", "x", "--sequence", "s.json", code=3, err="s.json")
    assert not os.path.exists("out.h5") and not os.path.exists("x")


def test_the_manual():
    """The page's table of keys is the program's, and its sequence is one."""
    with open(os.path.join(os.environ["SDC_SOURCE_DIR"], "docs", "user", "hdf5-corrupter.md")) as f:
        page = f.read()
    rows = page.split("|---|---|---|---|\n")[1].split("\n\n")[0].splitlines()
    shown = [cell for row in rows for cell in row.split("|")[1].replace("`", "").replace(",", " ").split()]
    write()
    config("none: 1\n")
    text = subprocess.run([SDCLAB, "alter", "in.h5", "-o", "x", "--config", "config.yaml"], capture_output=True,
                          text=True).stderr
    known = text.split("expected one of ")[1].strip().split(", ")
    assert sorted(set(known) - {"bit_range"}) == sorted(shown), (known, shown)
    for row in rows:
        for key in row.split("|")[2].replace("`", "").replace(": [first, last]", "").replace(",", " ").split():
            config(f"{key}: {{}}\n")
            p = subprocess.run([SDCLAB, "alter", "in.h5", "-o", "x", "--config", "config.yaml"], capture_output=True,
                               text=True)
            assert p.returncode == 3 and "unknown key" not in p.stderr, (key, p.stderr)
    with open("s.json", "w") as f:
        f.write(page.split("```json\n")[1].split("```")[0])
    run("alter", "in.h5", "-o", "out.h5", "--sequence", "s.json", out="altered (6 bits)")


def main():
    failed, home = 0, os.getcwd()
    tests = [(n, f) for n, f in list(globals().items()) if n.startswith("test_")]
    for name, function in tests:
        folder = os.path.join(home, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        os.chdir(folder)
        try:
            function()
        except Exception:
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
        os.chdir(home)
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
