#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdclab predict against a model that flips every bit of every element with NumPy, and against alter."""
import os

import numpy as np

from audit_kit import TYPES, as_json, bits, doubles, main, peak_kib, run, save, sparse

rng = np.random.default_rng(5)
BANDS = [(1, "grow"), (2**-3, "change-1"), (2**-7, "change-1/8"), (2**-11, "change-2^-7")]
LEAST = {"F64": 2.0**-1022, "F32": 2.0**-126, "BF16": 2.0**-126, "F16": 2.0**-14, "F8_E5M2": 2.0**-14,
         "F8_E4M3": 2.0**-6}


def values(dtype, raw):
    """Exact values; of the 8-bit floats by their definition (E5M2 as IEEE, E4M3 without infinities)."""
    if not dtype.startswith("F8"):
        return doubles(dtype, raw)
    e, m, bias = {"F8_E5M2": (5, 2, 15), "F8_E4M3": (4, 3, 7)}[dtype]
    table = []
    for v in range(256):
        exponent, mantissa = v >> m & (1 << e) - 1, v & (1 << m) - 1
        x = (mantissa / 2**m + (exponent > 0)) * 2.0**(max(exponent, 1) - bias)
        if dtype == "F8_E5M2" and exponent == 31:
            x = np.nan if mantissa else np.inf
        if dtype == "F8_E4M3" and v & 127 == 127:
            x = np.nan
        table.append(-x if v >> 7 else x)
    return np.array(table)[raw]


def classes(dtype, raw, bit, limit):
    """The class of this bit of each element, by the definition."""
    unsigned = raw.dtype.type
    if not dtype.startswith(("F", "B")) or dtype == "BOOL":
        return np.full(raw.size, "integer", "U16")
    x, y = values(dtype, raw), values(dtype, raw ^ unsigned(1 << bit))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        change = np.abs(y.astype(np.longdouble) - x) / np.abs(x.astype(np.longdouble))
        found = np.full(raw.size, "change-2^-11", "U16")
        for bound, name in reversed(BANDS):
            found[change > bound] = name
        found[np.abs(y) < LEAST[dtype]] = "to-zero"
        found[np.abs(x) < LEAST[dtype]] = "from-zero"
        found[(np.abs(y) >= limit) & (np.abs(x) < limit)] = "to-extreme"
        found[np.abs(x) == np.abs(y)] = "sign"
        found[np.isinf(y)] = "to-inf"
        found[np.isnan(y)] = "to-nan"
        found[~np.isfinite(x) & np.isfinite(y)] = "made-finite"
        found[~np.isfinite(x) & ~np.isfinite(y)] = "kept-nonfinite"
    return found


def count(of, into, times=1):
    for name, n in zip(*np.unique(of, return_counts=True)):
        into[str(name)] = into.get(str(name), 0) + int(n) * times


def model(tensors, roles, factor, mask):
    """What predict must say of {name: (type, raw)}: totals, and by bit, role and tensor."""
    all_, by_bit, by_role, by_tensor, extremes = {}, {}, {}, {}, {}
    for role in set(roles.values()):
        most = -1
        for name, (dtype, raw) in tensors.items():
            if roles[name] == role and dtype.startswith(("F", "BF")) and raw.size:
                x = np.abs(values(dtype, raw.reshape(-1)))
                # subnormals of 16 bits and more count as one below the smallest normal value
                x = x[np.isfinite(x) & (x > 0)]
                if x.size:
                    most = max(most, int(np.floor(np.log2(x.max()))))
        extremes[role] = most + 1 + factor
    for name, (dtype, raw) in tensors.items():
        raw = raw.reshape(-1)
        for bit in mask(dtype):
            found = classes(dtype, raw, bit, np.ldexp(1.0, extremes[roles[name]]))
            for into in (all_, by_bit.setdefault((dtype, bit), {}), by_role.setdefault(roles[name], {}),
                         by_tensor.setdefault(name, {})):
                count(found, into)
    return all_, by_bit, by_role, by_tensor, extremes


def width(dtype):
    return 8 if dtype.startswith("F8") else TYPES[dtype][0]().itemsize * 8


def check(path, tensors, *options, factor=20, mask=lambda dtype: range(width(dtype))):
    found = as_json("predict", path, *options, schema="predict-1.json")
    roles = {t["name"]: t["role"] for t in found["tensors"]}
    tensors = {n: t for n, t in tensors.items() if n in roles}
    all_, by_bit, by_role, by_tensor, extremes = model(tensors, roles, factor, mask)
    assert found["classes"] == all_, (found["classes"], all_)
    assert {(b["type"], b["lsb"]): b["classes"] for b in found["bits"]} == {k: v for k, v in by_bit.items() if v}
    assert {r["role"]: r["classes"] for r in found["roles"]} == by_role
    assert {t["name"]: t["classes"] for t in found["tensors"]} == by_tensor
    for r in found["roles"]:
        assert r["extreme"] in (None, extremes[r["role"]]), (r, extremes)
    assert sum(all_.values()) == found["sites"] and found["unreadable"] == 0
    severe = sum(all_.get(c, 0) for c in ("to-nan", "to-inf", "to-extreme"))
    assert found["q"] == severe / found["sites"]
    for group in ("tensors", "roles"):
        assert sum(g["sites"] for g in found[group]) == found["sites"]
        assert all(sum(g["classes"].values()) == g["sites"] for g in found[group])
    return found


def state(spread):
    tensors = {}
    for dtype in TYPES:
        raw = rng.integers(0, 2, 300) if dtype == "BOOL" else rng.integers(0, 2**63, 3000, dtype=np.uint64)
        tensors[f"any.{dtype}"] = (dtype, raw.astype(TYPES[dtype][0]))
    for dtype in ("F64", "F32", "F16"):
        x = rng.normal(0, spread, 4000)
        x[:50] = 0
        x[50:60] = 1
        x[60:70] = 2.0**-14
        tensors[f"conv.{dtype}.weight"] = bits(x.astype({"F64": np.float64, "F32": np.float32, "F16": np.float16}[dtype]))
        tensors[f"conv.{dtype}.bias"] = bits(np.zeros(20, {"F64": np.float64, "F32": np.float32, "F16": np.float16}[dtype]))
    tensors["half.weight"] = ("BF16", (rng.normal(0, spread, 4000).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
    return tensors


def test_every_bit_is_classified_as_by_flipping_it():
    for spread in (0.05, 3.0, 1e4):
        tensors = state(spread)
        save("state.safetensors", tensors)
        check("state.safetensors", tensors)
    check("state.safetensors", tensors, "--extreme", 3, factor=3)


def test_eight_bit_floats():
    TYPES.update({"F8_E5M2": (np.uint8, 5, 2), "F8_E4M3": (np.uint8, 4, 3)})
    try:
        tensors = {"a": ("F8_E5M2", np.arange(256, dtype=np.uint8)), "b.weight": ("F8_E4M3", np.arange(256, dtype=np.uint8)),
                   "c.bias": ("F8_E4M3", np.array([0, 1, 56, 57], np.uint8))}
        save("f8.safetensors", tensors)
        check("f8.safetensors", tensors)
        check("f8.safetensors", tensors, "--extreme", 2, factor=2)
    finally:
        del TYPES["F8_E5M2"], TYPES["F8_E4M3"]


def test_the_support_is_that_of_alter():
    tensors = state(0.05)
    save("state.safetensors", tensors)
    for options, mask in ((["--bits", "top-exponent"], lambda d: [width(d) - 2] if TYPES[d][1] else []),
                          (["--bits", "lsb:3-5,sign", "--dtype", "F32,BF16"], lambda d: [3, 4, 5, width(d) - 1]),
                          (["--role", "weight"], lambda d: range(width(d))),
                          (["--tensors", "conv.*", "--not-tensors", "*F64*"], lambda d: range(width(d)))):
        chosen = {n: t for n, t in tensors.items() if mask(t[0])}
        found = check("state.safetensors", chosen, *options, mask=mask)
        altered = as_json("alter", "state.safetensors", "--dry-run", "--flips", 1, *options)
        assert found["sites"] == altered["support"], options


def test_what_alter_then_does_is_what_was_predicted():
    tensors = {"w.weight": bits(rng.normal(0, 0.05, 5000).astype(np.float32))}
    save("w.safetensors", tensors)
    found = as_json("predict", "w.safetensors", "--bits", "top-exponent")
    run("alter", "w.safetensors", "-o", "all.safetensors", "--exhaustive", "--bits", "top-exponent", "--no-record")
    after = as_json("scan", "all.safetensors")["tensors"][0]
    assert after["nan"] == found["classes"].get("to-nan", 0) and after["inf"] == found["classes"].get("to-inf", 0)
    os.remove("all.safetensors")


def test_threads_do_not_matter():
    save("large.safetensors", {"x": bits(rng.normal(0, 0.05, 3 * 2**20).astype(np.float32)), "y": bits(rng.normal(0, 1, 2**20))})
    first = run("predict", "large.safetensors", "--json", "--threads", 1)
    assert run("predict", "large.safetensors", "--json", "--threads", 5) == first


def test_nothing_to_predict():
    save("i.safetensors", {"step": ("I64", np.array(3, np.uint64)), "none.weight": ("F32", np.zeros((0, 2)))})
    assert as_json("predict", "i.safetensors", schema="predict-1.json")["classes"] == {"integer": 64}
    found = as_json("predict", "i.safetensors", "--dtype", "F32", schema="predict-1.json")
    assert found["sites"] == 0 and found["classes"] == {} and found["q"] == 0
    run("predict", "i.safetensors", "--dtype", "F32", out="the support is empty")
    run("predict", "i.safetensors", "--bits", "lsb:99", code=2, err="--bits")
    run("predict", "i.safetensors", "--flips", 3, code=2, err="unknown option")


def test_memory_does_not_grow_with_the_file():
    sparse("small.safetensors", 16)
    sparse("big.safetensors", 1024)
    small, big = (peak_kib("predict", "--threads", 2, f"{n}.safetensors") for n in ("small", "big"))
    assert big < small + 4096, (small, big)
    os.remove("big.safetensors")


main(globals())
