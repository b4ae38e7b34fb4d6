#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdclab scan against NumPy: counts, extremes and sums of every type, planted flips, threads, memory."""
import os

import numpy as np

from audit_kit import TYPES, as_json, bits, doubles, main, peak_kib, run, save, sparse

rng = np.random.default_rng(11)


def of(found, name):
    return next(t for t in found["tensors"] if t["name"] == name)


def close(got, want, scale):
    got = float(got)
    assert abs(got - want) <= 1e-12 * scale or got == want, (got, want)


def check_tensor(t, dtype, raw):
    """Every number of one tensor against NumPy's."""
    raw = np.asarray(raw, TYPES[dtype][0]).reshape(-1)
    x = doubles(dtype, raw)
    _, e, m = TYPES[dtype]
    assert t["elements"] == raw.size and t["type"] == dtype and t["unreadable"] is None
    assert t["nan"] == np.isnan(x).sum() and t["inf"] == np.isinf(x).sum(), t["name"]
    assert t["zero"] == (x == 0).sum(), t["name"]
    exponent = raw >> np.uint8(m) & raw.dtype.type(2**e - 1)
    assert t["subnormal"] == (((exponent == 0) & (x != 0)).sum() if e else 0), t["name"]
    finite = np.isfinite(x)
    if not finite.any():
        assert "min" not in t and not t["largest"]
        return
    f = x[finite].astype(np.longdouble)
    for end, want in (("min", f.min()), ("max", f.max())):
        assert doubles(dtype, [int(t[end]["bits"], 16)])[0] == want, (t["name"], t[end], want)
    big = float(np.abs(f).max())
    close(t["mean"], float(f.mean()), big)
    close(t["std"], float(f.std()), big)
    norm = float(np.sqrt((f * f).sum()))
    close(t["l2"], norm, norm)
    order = np.lexsort((np.arange(raw.size), np.where(finite, -np.abs(x), np.inf)))[:finite.sum()]
    if not (e == 0 and TYPES[dtype][0] == np.uint64):  # float64 does not tell large neighbours apart
        assert [s["elem"] for s in t["largest"]] == list(order[:5]), t["name"]
    for s in t["largest"] + t["nonfinite"]:
        assert int(s["raw"]["bits"], 16) == int(raw[s["elem"]])
    assert [s["elem"] for s in t["nonfinite"]] == list(np.flatnonzero(~finite)[:5])


def random_raw(dtype, n):
    return rng.integers(0, 2**63, n, dtype=np.uint64).astype(TYPES[dtype][0])


def test_counts_and_sums_are_those_of_numpy():
    tensors = {}
    for dtype in TYPES:
        if dtype == "BOOL":
            raw = rng.integers(0, 2, 1000)
        else:
            raw = random_raw(dtype, 10007)  # every bit pattern: NaN, infinities, subnormals
        tensors[f"random.{dtype}"] = (dtype, raw)
    for dtype in ("F64", "F32", "F16"):
        np_type = {"F64": np.float64, "F32": np.float32, "F16": np.float16}[dtype]
        tensors[f"normal.{dtype}"] = bits(rng.normal(0, 0.05, (13, 500)).astype(np_type))
        tensors[f"around1.{dtype}"] = bits((1 + rng.normal(0, 1e-3, 9000)).astype(np_type))
        tensors[f"bad.{dtype}"] = bits(np.array([np.nan, np.inf, -np.inf, np.nan], np_type))
        tensors[f"zeros.{dtype}"] = bits(np.array([0, -0.0, 0], np_type))
        tensors[f"empty.{dtype}"] = (dtype, np.zeros((0, 3)))
    tensors["large.F64"] = bits(rng.normal(0, 1e200, 5000))  # squares beyond double
    tensors["scalar.I64"] = ("I64", np.array(2**62 + 1, np.uint64))
    tensors["ends.I64"] = ("I64", np.array([2**63, 2**63 - 1, 5, 2**64 - 1], np.uint64))
    save("types.safetensors", tensors)
    found = as_json("scan", "types.safetensors", schema="scan-1.json")
    assert len(found["tensors"]) == len(tensors)
    for name, (dtype, raw) in tensors.items():
        t = of(found, name)
        if name == "large.F64":
            assert float(t["l2"]) > 1e201
            continue
        check_tensor(t, dtype, raw)
    assert of(found, "ends.I64")["min"] == {"bits": "8000000000000000", "value": str(-2**63)}
    assert of(found, "ends.I64")["max"]["value"] == str(2**63 - 1)
    assert of(found, "ends.I64")["largest"][0]["elem"] == 0
    for key in ("nan", "inf", "suspicious"):
        assert found[key] == sum(t[key] for t in found["tensors"])
    assert "random.BF16" in run("scan", "types.safetensors")


def test_large_tensors_on_any_number_of_threads_give_the_same_bytes():
    n = 3 * 2**20 + 12345  # several chunks, and a rest
    x = rng.normal(0, 0.05, n).astype(np.float32)
    x[[5, 2**20, 2**20 + 1, n - 1]] = [np.nan, np.inf, 7, -8]
    y = rng.normal(0, 1, 2**20 + 3)
    save("large.safetensors", {"x": bits(x), "y": bits(y), "z": ("I8", rng.integers(0, 256, 5 * 2**20))})
    first = run("scan", "large.safetensors", "--json", "--threads", 1)
    for threads in (2, 3, 7):
        assert run("scan", "large.safetensors", "--json", "--threads", threads) == first
    found = as_json("scan", "large.safetensors")
    check_tensor(of(found, "x"), *bits(x))
    check_tensor(of(found, "y"), *bits(y))
    assert [s["elem"] for s in of(found, "x")["nonfinite"]] == [5, 2**20]


def test_planted_flips_are_found_with_their_bit():
    x = rng.normal(0, 0.05, (64, 64)).astype(np.float32)
    raw = x.view(np.uint32).copy()
    places = [3, 700, 4000]
    raw.reshape(-1)[places] ^= np.uint32(1 << 30)
    save("flipped.safetensors", {"w": ("F32", raw)})
    found = of(as_json("scan", "flipped.safetensors", "--sites", 10), "w")
    suspects = [s for s in found["largest"] if s["suspicious"]]
    assert found["suspicious"] == 3 and sorted(s["elem"] for s in suspects) == places
    assert all(s["ordinary_with"] == [30] for s in suspects), suspects
    text = run("scan", "flipped.safetensors")
    assert "3 elements out of proportion" in text and "lsb:30" in text
    run("scan", "flipped.safetensors", "--check", code=1)
    save("clean.safetensors", {"w": bits(x), "v": bits((x * x).astype(np.float32))})
    run("scan", "clean.safetensors", "--check")
    # a weight near 1 whose top exponent bit is set is NaN or infinite
    ones = np.full(100, 1.5, np.float32).view(np.uint32)
    ones[42] ^= np.uint32(1 << 30)
    save("nan.safetensors", {"norm.weight": ("F32", ones)})
    t = of(as_json("scan", "nan.safetensors"), "norm.weight")
    assert t["nan"] == 1 and 30 in t["nonfinite"][0]["ordinary_with"], t
    # integers too
    steps = np.arange(1, 50, dtype=np.int64)
    steps[7] ^= 1 << 40
    save("steps.safetensors", {"steps": bits(steps)})
    t = of(as_json("scan", "steps.safetensors"), "steps")
    assert t["suspicious"] == 1 and t["largest"][0]["ordinary_with"] == [40], t


def test_no_alarm_on_spread_or_tiny_tensors():
    save("quiet.safetensors", {
        "adam_v": bits((rng.normal(0, 1e-4, 20000) ** 4).astype(np.float32)),
        "three": bits(np.array([1, 1e30, 1], np.float32)),  # too few to judge
        "zeros": bits(np.zeros(50, np.float32)),
        "bytes": ("U8", rng.integers(0, 256, 5000))})
    assert as_json("scan", "quiet.safetensors")["suspicious"] == 0


def test_choosing_tensors_and_refusals():
    save("two.safetensors", {"a.weight": bits(np.ones(3, np.float32)), "b": bits(np.ones(3, np.float32))})
    assert [t["name"] for t in as_json("scan", "two.safetensors", "--tensors", "*.weight")["tensors"]] == ["a.weight"]
    run("scan", "two.safetensors", "--tensors", "c", code=2, err="no tensor of two.safetensors is called 'c'")
    run("scan", "none.safetensors", code=4, err="none.safetensors")
    run("scan", "two.safetensors", "--threads", 0, code=2, err="--threads")
    run("scan", "two.safetensors", "--as", "x=F99", code=2, err="'F99' is no type")


def test_memory_does_not_grow_with_the_file():
    sparse("small.safetensors", 16)
    sparse("big.safetensors", 1024)
    small, big = (peak_kib("scan", "--threads", 2, f"{n}.safetensors") for n in ("small", "big"))
    assert big < small + 4096, (small, big)
    os.remove("big.safetensors")


main(globals())
