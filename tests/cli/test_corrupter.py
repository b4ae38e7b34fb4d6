#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configurations and saved sequences of hdf5_corrupter: what each key does, with right values worked
out by hand or by NumPy, and that none of the tool's defects is there. Sequences are written here in
the form that version 676c62a saves, by a generator that draws and alters as its source says."""
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
injection_tries: {attempts}
float_precision: auto
allow_NaN_values: True
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
        text = BASE.format(attempts=60) + f"first_bit: {bit}\nlast_bit: {bit}\n"
        xor, result = alter(text, "--no-record")
        assert result["altered"] > 20
        assert set(xor["net/conv1/W"]) == {0, 1 << (31 - bit)}
        assert set(xor["net/conv1/b"]) == {0, 1 << (31 - bit)}
        assert set(xor["net/conv1/d"]) == {0, 1 << (63 - bit)}
        assert not xor["net/conv10/W"].any()


def test_locations_are_whole_names():
    """conv1 is the group conv1, not what begins so; a tensor is itself alone. A full stop separates as
    well as a slash: names of PyTorch are not nested."""
    write()
    xor, _ = alter(BASE.format(attempts=200) + "first_bit: 0\nlast_bit: 31\n")
    assert xor["net/conv1/W"].any() and xor["net/conv1/b"].any() and not xor["net/conv10/W"].any()
    xor, _ = alter(BASE.format(attempts=50).replace("/net/conv1", "net/conv1/b/"), "--no-record")
    assert xor["net/conv1/b"].any() and not xor["net/conv1/W"].any()
    xor, _ = alter(BASE.format(attempts=300) + "use_random_locations: True\n", "--no-record")
    assert all(x.any() for x in xor.values())
    config(BASE.format(attempts=1).replace("/net/conv1", "/net/conv"))
    run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3,
        err="config.yaml:8:3: in.h5: neither a tensor nor a group is called 'net/conv'")
    assert not os.path.exists("x")
    write(**{f"model/layer{i}.0.bn.{k}": np.ones(6, np.float32) for i in (1, 10) for k in ("weight", "bias")})
    for location in ("/model/layer1", "/model/layer1.", "model/layer1.0/", "/model/layer1.0.bn"):
        xor, _ = alter(BASE.format(attempts=90).replace("/net/conv1", location), "--no-record")
        assert {n for n, x in xor.items() if x.any()} == {"model/layer1.0.bn.weight", "model/layer1.0.bn.bias"}
    xor, _ = alter(BASE.format(attempts=90).replace("/net/conv1", "/"), "--no-record")
    assert all(x.any() for x in xor.values())


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


def test_percentage():
    """Of the 610 entries of conv1, not of the file's 626, and of a hundred: 1 is 6 attempts, 0.5 is 3."""
    write()
    text = BASE.replace('"count"', "percentage")
    for percent, attempts in ((1, 6), (0.5, 3), (0, 0), ('"0.82"', 5)):
        alter(text.format(attempts=percent))
        assert header()["choice"]["flips"] == attempts
        os.remove("out.h5.sdc.jsonl")
    config(text.format(attempts=50))
    run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3,
        err="config.yaml:4:18: injection_tries: a percentage is 0 to 1, of a hundred, found 50")


def test_mask():
    """101 at any of its 30 places in 32 bits; XOR of several where an element is hit again."""
    write()
    text = BASE.format(attempts=1) + "bit_mask: '101'\n"
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
    text = BASE.format(attempts=30) + "scaling_factor: -1.5\n"
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
    text = BASE.format(attempts=50).replace("values: True", "values: {}") + "first_bit: 9\nlast_bit: 31\n"
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
    for width in ("32", '"32"'):  # in quotes is all that the tool takes from a file
        alter(text.format(width), "--no-record")
    config(BASE.format(attempts=5) + "first_bit: 1\nlast_bit: 32\n")
    run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3,
        err="config.yaml:10:11: bits 1 to 32, but tensor net/conv1/W is F32, whose bits are 0 (the sign) to 31")


def test_a_seed_repeats():
    write()
    text = BASE.format(attempts=50)
    a, _ = alter(text, "--seed", 5, "--no-record")
    b, _ = alter(text, "--seed", 5, "--no-record")
    c, _ = alter(text, "--seed", 6, "--no-record")
    assert all(np.array_equal(a[n], b[n]) for n in a) and any(not np.array_equal(a[n], c[n]) for n in a)


WRONG = [
    ("injection_attempts: 3\n", "config.yaml:1:1: unknown key 'injection_attempts', expected one of hdf5_file, "),
    ("Burst: 3\n", "unknown key 'Burst'"),
    ("- a\n", "config.yaml:1:1: expected a mapping"),
    ("injection_probability: 1.5\n", "1:24: injection_probability: expected a probability, 0 to 1, found the number 1.5"),
    ("injection_type: some\n", "expected count or percentage, found the text 'some'"),
    ("injection_tries: 2.5\nuse_random_locations: on\n", "expected a whole number, found 2.5"),
    ("injection_tries: ten\n", "expected a number of attempts"),
    ("float_precision: 80\n", "expected 16, 32, 64 or auto"),
    ("bit_mask: '000'\n", "1 to 64 digits 0 and 1 that are not all 0"),
    ("bit_mask: 12\n", "1 to 64 digits 0 and 1"),
    ("bit_mask: '1'\nscaling_factor: 2\n", "2:17: bit_mask and scaling_factor do not go together"),
    ("bit_mask: '1'\nfirst_bit: 0\n", "1:11: a range of bits and bit_mask do not go together"),
    ("scaling_factor: 2\nburst: 2\n", "1:17: burst and scaling_factor do not go together"),
    ("first_bit: 5\nlast_bit: 4\n", "first_bit 5 comes after last_bit 4"),
    ("first_bit: 64\n", "expected a bit, 0 (the sign) to 63"),
    ("burst: 0\n", "1 to 64 bits of a value"),
    ("allow_NaN_values: maybe\n", "expected true or false"),
    ("allow_NaN_values: 'False'\n", "expected true or false"),
    ("locations_to_corrupt: a\n", "expected a list of locations, found the text 'a'"),
    ("burst: 1\nburst: 2\n", "config.yaml:2:1"),
    ("first_bit: 1\n", "injection_tries is not given"),
    ("injection_tries: 1\n", "neither locations_to_corrupt nor use_random_locations"),
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


# As the tool's examples are: comments, settings that are commented out, every key it reads.
EXAMPLE = """# injection
#    first_bit   the first bit

#hdf5_file: "/somewhere/ckpt.h5"
hdf5_file: "/somewhere/models/model_epoch_2.h5"
injection_probability: 1 # 1e-8
injection_type: "count" #"percentage"
injection_tries: 5
log_file_path: "/somewhere/log-"
float_precision: {precision}
{how}
allow_sign_change: True
allow_NaN_values: {nan}
#injection_sequence_path: "/somewhere/injectionSequence.json"
save_injection_sequence: False
use_random_locations: {anywhere}
locations_to_corrupt:
  - "/predictor/conv1/W"
  - "/predictor/res2/0/bn1/N"
  - "/predictor/conv5/\""""


def test_examples():
    write(**{"predictor/conv1/W": np.full((3, 4), 0.5), "predictor/res2/0/bn1/N": np.array(3, np.int32),
             "predictor/conv5/b": np.full(9, 0.25)})
    doubles = "first_bit: 0\nlast_bit: 63\nburst: 1\n#bit_mask: '10110'\n#scaling_factor: 1"
    for how, precision, nan, anywhere in ((doubles, 64, "True", "False"), (doubles, '"64"', "True", "False"),
                                          ("#first_bit: 2\nscaling_factor: 4", 64, "False", "False"),
                                          ("bit_mask: '101101'", 64, "True", "False"),
                                          ("", "auto", "True", "true"),
                                          ("first_bit: 0\nlast_bit: 15\nburst: 4", "auto", "True", "true")):
        _, result = alter(EXAMPLE.format(how=how, precision=precision, nan=nan, anywhere=anywhere), "--no-record")
        assert 1 <= result["altered"] <= 5
    # the width of an example that is not the file's is named, as is a location that is not there
    config(EXAMPLE.format(how=doubles, precision=64, nan="True", anywhere="True"))
    run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3, err="float_precision: 64, but tensor net/")
    config(EXAMPLE.format(how=doubles, precision=64, nan="True", anywhere="False").replace("conv5", "conv7"))
    run("alter", "in.h5", "-o", "x", "--config", "config.yaml", code=3, err="called 'predictor/conv7' (did you mean")


def test_nan_is_not_allowed_unless_said():
    with h5py.File("in.h5", "w") as f:
        f["net/conv1/x"] = np.full(50, 1.5, np.float32)
    xor, result = alter(BASE.format(attempts=40).replace("allow_NaN_values: True\n", ""))
    assert header()["choice"]["not_result"] == "nan,inf" and 0 < result["removed"] == 50


def test_notes():
    """Nothing after a colon is as if the key were not there. Numbers may be in quotes."""
    write()
    config("hdf5_file: other.h5\ninjection_tries: '3'\nfirst_bit: '9'\nlast_bit: 31\nburst:\nfloat_precision: AUTO\n"
           "use_random_locations: yes\nsave_injection_sequence: true\nlog_file_path: /tmp/x\n")
    run("alter", "in.h5", "-o", "out.h5", "--config", "config.yaml", err="is for other.h5; used for in.h5")
    assert header()["choice"]["flips"] == 3 and header()["choice"]["compat"] == "hdf5-corrupter"
    assert not os.path.exists(".json")
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
    tensors = write(**{"net/scalar": np.float64(2), "net/half": np.ones((2, 2), np.float16)})
    value = {"/net/conv1/W": [[[7, 2, 4, 3], [1]], [[0, 0, 0, 0], [0, 31]], [[1, 1, 1, 1], None]],
             "net/conv10/W": [[[3, 1], [9]], [[3, 1], [9]], [[0, 0], [8]], [[0, 1], [4, 5, 4, 6, 5]]],
             "/net/conv1/b": [[[9], [2]]],
             "/net/half": [[[1, 0], [15, 0]]],
             "/net/scalar": [[[0], [1]]]}  # what has no dimension has one in a sequence
    xor = replay(value)
    want = {n: np.zeros(t.shape, bits(t).dtype) for n, t in tensors.items()}
    want["net/conv1/W"][7, 2, 4, 3] = 1 << 30
    want["net/conv1/W"][0, 0, 0, 0] = 1 << 31 | 1
    want["net/conv10/W"][0, 0] = 1 << 23  # [3,1] was flipped twice
    want["net/conv10/W"][0, 1] = 1 << 25  # and of [0,1] bits 4 and 5
    want["net/conv1/b"][9] = 1 << 29
    want["net/half"][1, 0] = 1 << 15 | 1
    want["net/scalar"][()] = 1 << 62
    for name in want:
        assert np.array_equal(xor[name].reshape(-1), want[name].reshape(-1)), name
    assert read("out.h5")["net/scalar"] == 0
    assert header()["origin"] == "s.json" and header()["choice"]["flips"] == 10
    run("undo", "out.h5.sdc.jsonl")
    subprocess.run(["cmp", "in.h5", "out.h5"], check=True)
    # a choice beside it would be passed over
    for words in (["--flips", 7], ["--op", "set0"], ["--tensors", "net/*"], ["--bits", "lsb:0"], ["--at", "net/scalar[]@lsb:0"],
                  ["--exhaustive"], ["--rate", 0.5], ["--role", "weight"], ["--not-tensors", "net/half"],
                  ["--not-result", "nan"], ["--dtype", "F64"], ["--compat", "none"], ["--sample", "bits"]):
        run("alter", "in.h5", "-o", "x", "--sequence", "s.json", *words, code=2, err=f"{words[0]} has no effect beside the sequence")
    run("alter", "in.h5", "-o", "x.h5", "--sequence", "s.json", "--checksum", "stale", "--compat", "hdf5-corrupter")
    # in another format
    save_file(tensors, "in.st")
    run("alter", "in.st", "-o", "out.st", "--sequence", "s.json")
    st = load_file("out.st")
    assert all(np.array_equal((bits(st[n]) ^ bits(tensors[n])).reshape(-1), want[n].reshape(-1)) for n in want)


def flip_digit(value, place):
    """A binary digit of an integer as Python writes it, without sign and leading zeros."""
    digits = list(bin(abs(int(value)))[2:])
    digits[place] = "01"[digits[place] == "0"]
    changed = int("".join(digits), 2)
    return -changed if value < 0 else changed


def test_integers_of_a_sequence():
    """A number is a digit of the magnitude that the value has when its turn comes."""
    write(**{"net/i64": np.array([100, -5, 0, 2**62, -2**62, 7], np.int64), "net/u8": np.array([3, 200], np.uint8),
             "net/i16": np.array([-300, 12, -1, -32767], np.int16), "net/step": np.int32(1234)})
    rng, entries, want = np.random.default_rng(7), {}, read("in.h5")
    for _ in range(300):
        name = ("net/i64", "net/u8", "net/i16", "net/step")[rng.integers(4)]
        index = [int(rng.integers(n)) for n in want[name].shape]
        place = int(rng.integers(len(bin(abs(int(want[name][tuple(index)])))[2:])))
        value = np.array(want[name])
        value[tuple(index)] = flip_digit(value[tuple(index)], place)
        want[name] = value
        entries.setdefault("/" + name, []).append([index or [0], place])
    replay(entries)
    after = read("out.h5")
    assert all(np.array_equal(after[n], want[n]) for n in want)
    replay({"/net/u8": [[[0], 2]]}, code=3,
           err="s.json: entry 0: digit 2 of element 0 of tensor net/u8, whose value has 2: the sequence is not of this")
    replay({"/net/conv1/b": [[[0], 2]]}, code=3, err="a number is a digit of an integer, but tensor net/conv1/b is F32")


def test_a_generated_sequence():
    """Drawn and altered here as the tool does, saved as it saves: prefixes for names, null where an
    attempt did not happen. The replay is the altered file, byte for byte."""
    rng = np.random.default_rng(11)
    write(**{"net/d": rng.normal(size=(4, 3)), "net/h": rng.normal(size=(5, 2)).astype(np.float16),
             "net/n": np.array([9, -70], np.int32)})
    shutil.copy("in.h5", "tool.h5")
    entries = {}
    with h5py.File("tool.h5", "a") as f:
        names = sorted(n for n in read("in.h5"))
        bases = ["net/conv10/", "net/d", "net/h", "net/n", "net/conv1"]
        for _ in range(300):
            name = names[rng.integers(len(names))]
            index = [int(rng.integers(n)) for n in f[name].shape]
            base = "/" + next(b for b in bases if name.startswith(b))
            old = f[name][tuple(index)]
            if rng.random() < 0.2:
                entries.setdefault(base, []).append([index, None])
                continue
            if old.dtype.kind == "i":
                place = int(rng.integers(len(bin(abs(int(old)))[2:])))
                new, change = flip_digit(old, place), place
            else:
                width = 8 * old.dtype.itemsize
                change = [int(b) for b in rng.choice(width, 3)]  # one may come twice
                raw = bits(np.array([old]))
                for b in change:
                    raw[0] ^= raw.dtype.type(1 << (width - 1 - b))
                new = raw.view(old.dtype)[0]
                if not np.isfinite(new):
                    continue
            f[name][tuple(index)] = new
            entries.setdefault(base, []).append([index, change])
    assert {b for b in entries} == {"/" + b for b in bases}
    replay(entries)
    subprocess.run(["cmp", "tool.h5", "out.h5"], check=True)


def test_a_sequence_without_indexes():
    """Tensor and element are drawn under the location, the bit is kept; a seed repeats it."""
    write()
    xors = []
    # the forms of 2022, of May 2021 on
    for form in (lambda b: [[], b], lambda b: b):
        value = {"/net/conv1": [form([1]), form([0]), form([30, 31])] * 20, "/net/conv10/W": [form([5]), form(None)]}
        xor = replay(value, "--seed", 3)
        values = {int(v) for v in xor["net/conv1/W"].ravel() if v}
        # an element that is drawn again has several of 1 << 30, 1 << 31 and 3
        assert {1 << 30, 1 << 31, 3} <= values and all(v & ~(3 << 30 | 3) == 0 and v & 3 in (0, 3) for v in values)
        assert np.count_nonzero(xor["net/conv1/b"]) >= 8  # 30 of 60 entries, some of them twice
        assert [int(v) for v in xor["net/conv10/W"].ravel() if v] == [1 << 26]
        again, other = replay(value, "--seed", 3), replay(value, "--seed", 4)
        assert all(np.array_equal(xor[n], again[n]) for n in xor)
        assert any(not np.array_equal(xor[n], other[n]) for n in xor)
        xors.append(xor)
    assert all(np.array_equal(xors[0][n], xors[1][n]) for n in xors[0])
    # April 2021: a bit each, and -1 for nothing
    xor = replay({"/net/conv10": [5, -1, 5, 31]})
    assert sum(ones(xor["net/conv10/W"].ravel())) in (1, 3)
    assert {int(v) for v in xor["net/conv10/W"].ravel()} <= {0, 1 << 26, 1, 1 << 26 | 1}
    # integers: any of them, any bit
    write(**{"net/conv1/n": np.zeros(3, np.int64)})
    xor = replay({"/net/conv1": [[[], 0]] * 100})
    assert not xor["net/conv1/W"].any() and not xor["net/conv1/b"].any()
    assert np.count_nonzero(xor["net/conv1/n"]) == 3 and int(np.bitwise_or.reduce(xor["net/conv1/n"])) >= 1 << 40
    replay({"/net/conv10": [[[], 0]]}, code=3, err="s.json: /net/conv10[0]: no integers of net/conv10 can be altered")


def test_a_prefix_with_indexes():
    """What is saved is a prefix: the tensor under it is the one that has the element."""
    write(**{"net/conv1/n": np.zeros((8, 8), np.int32)})
    xor = replay({"/net/conv1": [[[4], [3]]], "/net/co": [[[3, 2], [7]], [[3, 2], 0]]})
    assert int(xor["net/conv1/b"][4]) == 1 << 28 and np.count_nonzero(xor["net/conv1/W"]) == 0
    assert int(xor["net/conv10/W"][3, 2]) == 1 << 24 and int(xor["net/conv1/n"][3, 2]) == 1
    replay({"/net": [[[4, 4], [3]]]}, code=3, err="s.json: /net[0]: 0 tensors whose names begin with net have")
    write(**{"net/conv1/c": np.ones(5, np.float32), "net/b": np.ones(5, np.float32), "net/beta": np.ones(7, np.float32),
             "net/w": np.ones(5, np.float32), "net/wide": np.ones((2, 2), np.float32)})
    replay({"net/conv1": [[[4], [3]]]}, code=3, err="2 tensors whose names begin with net/conv1 have an element")
    # a tensor's name is that tensor, but it may have been the other, which is said; unless it cannot
    xor = replay({"/net/b": [[[4], [0]]]}, err="1 entries name a tensor whose name others begin with")
    assert int(xor["net/b"][4]) == 1 << 31 and not xor["net/beta"].any()
    xor = replay({"/net/w": [[[1, 1], [0]]]})
    assert int(xor["net/wide"][1, 1]) == 1 << 31 and not xor["net/w"].any()


def test_a_configuration_names_its_sequence():
    write()
    os.makedirs("conf")
    sequence({"net/conv1/b": [[[3], [0]]]}, "conf/seq.json")
    config("injection_sequence_path: seq.json\nallow_NaN_values: False\n", "conf/c.yaml")
    run("alter", "in.h5", "-o", "out.h5", "--config", "conf/c.yaml", out="1 altered")
    assert header()["origin"] == "conf/seq.json"
    config("injection_sequence_path: False\ninjection_tries: 2\nlocations_to_corrupt: [net]\n", "conf/c.yaml")
    run("alter", "in.h5", "-o", "out2.h5", "--config", "conf/c.yaml")
    assert "origin" not in header("out2.h5.sdc.jsonl")


WRONG_SEQUENCES = [
    (3, "expected an object of locations, found"),
    ([[[0], [1]]], "expected an object of locations, found an array"),
    ({"net/conv1/b": 3}, "net/conv1/b: expected a list of entries"),
    ({"net/conv1/b": [{"bit": 1}]}, "net/conv1/b[0]"),
    ({"net/conv1/b": [[[], [64]]]}, "expected a bit, 0 (the sign) to 63, found 64"),
    ({"net/conv1/b": [[[0], [-1]]]}, "net/conv1/b[0]"),
    ({"net/conv1/b": [[[0], [1]], -1]}, "net/conv1/b[1]"),
    ({"net/conv1/b": [[]]}, "no bit is named"),
    ({"net/conv1/b": [[[0], []]]}, "no bit is named"),
    ({"net/conv1/b": [[[0]]]}, "expected [indexes, bits], found a list of 1"),
    ({"net/conv1/b": [[[0], [1], 2]]}, "expected [indexes, bits], found a list of 3"),
    ({"net/conv1/b": [[[1], [32]]]}, "bit 32, but tensor net/conv1/b is F32, whose bits are 0 to 31"),
    ({"net/conv1/b": [[[], [32]]]}, "no tensor of net/conv1/b that can be altered has bit 32"),
    ({"net/conv1/b": [[[10], [1]]]}, "net/conv1/b[0]: tensor net/conv1/b: index 10 in dimension 0"),
    ({"net/conv1/b": [[[1, 2], [1]]]}, "an index of 2 dimensions, the tensor has 1"),
    ({"net/conv1/W": [[[7], [1]]]}, "an index of 1 dimensions, the tensor has 4"),
    ({"net/conv": [[[], [1]]]}, "s.json: net/conv[0]: in.h5: neither a tensor nor a group is called 'net/conv'"),
    ({"nut": [[[0], [1]]]}, "s.json: nut[0]: 0 tensors whose names begin with nut"),
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
    rows = page.split("| key | value | becomes |\n|---|---|---|\n")[1].split("\n\n")[0].splitlines()
    shown = [cell for row in rows for cell in row.split("|")[1].replace("`", "").replace(",", " ").split()]
    write()
    config("none: 1\n")
    text = subprocess.run([SDCLAB, "alter", "in.h5", "-o", "x", "--config", "config.yaml"], capture_output=True,
                          text=True).stderr
    known = text.split("expected one of ")[1].strip().split(", ")
    assert sorted(known) == sorted(shown), (known, shown)
    with open("s.json", "w") as f:
        f.write(page.split("```json\n")[1].split("```")[0])
    run("alter", "in.h5", "-o", "out.h5", "--sequence", "s.json", out="altered (7 bits), 5 of 6 attempts took place")


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
