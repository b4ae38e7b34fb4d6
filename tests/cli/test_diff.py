#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdclab diff against NumPy: three levels, tolerance, names, threads, memory."""
import os
import shutil

import h5py
import numpy as np

import tensorbundle as tb

from audit_kit import TYPES, VALUES, as_json, bits, doubles, main, peak_kib, run, save, sparse

rng = np.random.default_rng(8)


def diff(*args, code=1):
    found = as_json("diff", *args, code=code, schema="diff-1.json")
    assert found["same"] == (code == 0)
    return found


def of(found, name):
    return next(t for t in found["tensors"] if t["name"] == name)


def check(t, dtype, a, b, rtol=0.0, atol=0.0):
    """Every number of one pair against NumPy's."""
    a, b = (np.asarray(x, TYPES[dtype][0]).reshape(-1) for x in (a, b))
    x, y = doubles(dtype, a), doubles(dtype, b)
    bit = a != b
    nan = np.isnan(x) & np.isnan(y)
    value = bit & ~nan & (x != y) if TYPES[dtype][1] else bit
    assert t["elements"] == a.size and t["differing"] == bit.sum(), t
    assert t["first_elem"] == (np.flatnonzero(bit)[0] if bit.any() else None)
    assert t["nan_bits"] == (bit & nan).sum() and t["values"] == value.sum()
    assert t["zero_signs"] == (bit & ~nan & ~value).sum()
    changed = a ^ b
    counts = {str(k): int((changed >> changed.dtype.type(k) & changed.dtype.type(1)).sum()) for k in range(8 * a.itemsize)}
    assert t["bit_counts"] == {k: n for k, n in counts.items() if n} and t["bits"] == sum(counts.values())
    assert t["nonfinite_a"] == (~np.isfinite(x)).sum() and t["nonfinite_b"] == (~np.isfinite(y)).sum()
    with np.errstate(invalid="ignore", over="ignore"):
        d = np.abs(y.astype(np.longdouble) - x)
        if not TYPES[dtype][1]:  # doubles do not tell large integers apart
            d = np.abs(b.view(VALUES[dtype]).astype(object) - a.view(VALUES[dtype]).astype(object)).astype(np.longdouble)
        beyond = value & ~(d <= atol + rtol * np.abs(x.astype(np.longdouble)))
        beyond |= value & (np.isinf(x) | np.isinf(y))
    assert t["beyond_tolerance"] == beyond.sum(), (t["name"], t["beyond_tolerance"], beyond.sum())
    finite = np.isfinite(x) & np.isfinite(y)
    if (bit & ~finite).any():
        assert t["distance"] == t["max_relative"] == t["max_absolute"] == "inf"
    elif bit.any() and TYPES[dtype][1]:
        d = d[finite]
        norm = np.sqrt((x[np.isfinite(x)].astype(np.longdouble) ** 2).sum())
        assert abs(float(t["distance"]) / float(np.sqrt((d * d).sum()) / norm) - 1) < 1e-12, t
        assert float(t["max_absolute"]) == float(d.max())
    for s in t["sites"]:
        assert int(s["a"]["bits"], 16) == a[s["elem"]] and int(s["b"]["bits"], 16) == b[s["elem"]]
    assert [s["elem"] for s in t["sites"]] == list(np.flatnonzero(bit)[:len(t["sites"])])


def pairs():
    made = {}
    for dtype, (unsigned, e, _) in TYPES.items():
        if dtype == "BOOL":
            continue
        a = rng.integers(0, 2**63, 9001, dtype=np.uint64).astype(unsigned)
        b = a.copy()
        where = rng.choice(a.size, 100, replace=False)
        b[where] ^= unsigned(1) << rng.integers(0, 8 * a.itemsize, 100).astype(unsigned)
        made[f"any.{dtype}"] = (dtype, a, b)
        if e and dtype != "BF16":
            np_type = {"F64": np.float64, "F32": np.float32, "F16": np.float16}[dtype]
            x = rng.normal(0, 1, 30000).astype(np_type)
            y = (x * (1 + 1e-3 * rng.normal(size=x.size))).astype(np_type)
            x[:4], y[:4] = [0, -0.0, np.inf, np.nan], [-0.0, 0, np.inf, -np.nan]
            made[f"near.{dtype}"] = (dtype, bits(x)[1], bits(y)[1])
    return made


def test_counts_and_distances_are_those_of_numpy():
    made = pairs()
    for side, k in (("a", 1), ("b", 2)):
        save(f"{side}.safetensors", {n: (v[0], v[k]) for n, v in made.items()})
    found = diff("a.safetensors", "b.safetensors", "--sites", 50)
    for name, (dtype, a, b) in made.items():
        check(of(found, name), dtype, a, b)
    found = diff("a.safetensors", "b.safetensors", "--rtol", 1e-3, "--atol", 1e-4)
    for name, (dtype, a, b) in made.items():
        check(of(found, name), dtype, a, b, 1e-3, 1e-4)
    assert found["beyond_tolerance"] == sum(t["beyond_tolerance"] for t in found["tensors"])


def test_tolerance_is_that_of_assert_allclose():
    x = rng.normal(0, 1, 5000).astype(np.float32)
    y = (x * (1 + 1e-4 * rng.uniform(-1, 1, x.size))).astype(np.float32)
    x[0] = y[0] = np.nan
    save("x.safetensors", {"w": bits(x)})
    save("y.safetensors", {"w": bits(y)})
    for rtol in (1e-5, 9e-5, 1.1e-4):
        for atol in (0, 1e-5, 1e-3):
            try:
                np.testing.assert_allclose(y.astype(np.float64), x.astype(np.float64), rtol=rtol, atol=atol)
                code = 0
            except AssertionError:
                code = 1
            diff("x.safetensors", "y.safetensors", "--rtol", rtol, "--atol", atol, code=code)
    run("diff", "x.safetensors", "y.safetensors", "--tolerance", 2e-4, out="within tolerance")
    run("diff", "x.safetensors", "y.safetensors", code=1)
    for wrong in ("-1", "nan", "x", "inf"):
        run("diff", "x.safetensors", "y.safetensors", f"--rtol={wrong}", code=2, err="--rtol")
    run("diff", "x.safetensors", "y.safetensors", "--rtol", 1, "--by", "container", code=2, err="exclude")
    run("diff", "x.safetensors", "y.safetensors", "--rtol", 1, "--tolerance", 1, code=2, err="excludes them")
    save("z.safetensors", {"w": bits(y), "more": bits(x)})
    run("diff", "x.safetensors", "z.safetensors", "--tolerance", 1, code=1)  # a missing tensor is no small difference


def test_three_levels():
    x = np.array([0.0, np.nan, 1], np.float32)
    y = x.copy()
    y.view(np.uint32)[:2] ^= np.uint32(1 << 31)  # -0, and a NaN of other bits
    save("x.safetensors", {"w": bits(x)})
    save("y.safetensors", {"w": bits(y)})
    found = diff("x.safetensors", "y.safetensors")
    assert not found["same_bits"] and found["same_values"] and not found["same_container"]
    assert of(found, "w")["zero_signs"] == 1 and of(found, "w")["nan_bits"] == 1 and of(found, "w")["values"] == 0
    found = diff("x.safetensors", "y.safetensors", "--by", "values", code=0)
    run("diff", "x.safetensors", "y.safetensors", "--by", "values", out="but for the sign of zeros or bits of NaN")
    with h5py.File("x.h5", "w") as f:
        f["w"] = x
    found = diff("x.safetensors", "x.h5", code=0)
    assert found["same_bits"] and not found["same_container"]
    diff("x.safetensors", "x.h5", "--by", "container")
    data = bytearray(open("x.safetensors", "rb").read())
    n = int.from_bytes(data[:8], "little")
    data[8:8 + n] = data[8:8 + n].replace(b"F32", b"I32")
    open("i.safetensors", "wb").write(data)
    found = diff("x.safetensors", "i.safetensors")
    assert found["first_byte"] == data.index(b"I32") and "F32 [3] against I32 [3]" in of(found, "w")["incomparable"]
    assert not found["same_values"] and not found["within_tolerance"]
    shutil.copy("x.safetensors", "copy.safetensors")
    found = diff("x.safetensors", "copy.safetensors", code=0)
    assert found["same_container"] and found["first_byte"] is None


def test_names_without_what_wrappers_add():
    w, v = (rng.normal(size=(5, 7)).astype(np.float32) for _ in range(2))
    save("plain.safetensors", {"conv.weight": bits(w), "conv.bias": bits(v)})
    save("ddp.safetensors", {"module.conv.weight": bits(w), "module.conv.bias": bits(w)})
    save("native.safetensors", {"model/conv.weight": bits(w), "model/conv.bias": bits(v)})
    save("compiled.safetensors", {"_orig_mod.conv.weight": bits(w), "_orig_mod.conv.bias": bits(v)})
    diff("plain.safetensors", "native.safetensors", code=0)
    diff("plain.safetensors", "compiled.safetensors", code=0)
    diff("native.safetensors", "compiled.safetensors", code=0)
    found = diff("plain.safetensors", "ddp.safetensors")
    assert [(t["name"], t["name_b"]) for t in found["tensors"]] == [("conv.bias", "module.conv.bias")]
    run("diff", "plain.safetensors", "ddp.safetensors", code=1, out="with module.conv.bias")


def test_a_map_of_names_and_axes():
    w, v = rng.normal(size=(5, 4, 3, 3)).astype(np.float32), rng.normal(size=(6, 10)).astype(np.float32)
    save("torch.safetensors", {"c.weight": bits(w), "d.weight": bits(v), "step": ("I64", np.array(3, np.uint64))})
    turned = np.ascontiguousarray(w.transpose(2, 3, 1, 0))
    save("keras.safetensors", {"c/kernel": bits(turned), "d/kernel": bits(np.ascontiguousarray(v.T))})
    open("rules.map", "w").write("c.weight -> c/kernel axes=2,3,1,0\nd.weight -> d/kernel transpose\nstep -> -\n")
    diff("torch.safetensors", "keras.safetensors", "--map", "rules.map", code=0)
    changed = turned.copy()
    changed[1, 2, 3, 4] = 9  # of w: element (4, 3, 1, 2)
    save("other.safetensors", {"c/kernel": bits(changed), "d/kernel": bits(np.ascontiguousarray(v.T))})
    found = diff("torch.safetensors", "other.safetensors", "--map", "rules.map")
    t = of(found, "c.weight")
    assert t["name_b"] == "c/kernel" and t["differing"] == 1
    assert t["first_elem"] == np.ravel_multi_index((4, 3, 1, 2), w.shape) and t["sites"][0]["b"]["value"] == "9"
    run("diff", "torch.safetensors", "keras.safetensors", "--map", "no.map", code=4, err="no.map")


def test_a_rule_counts_before_an_equal_name():
    w, v = (rng.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
    save("m1.safetensors", {"w": bits(w), "v": bits(v)})
    save("m2.safetensors", {"w": bits(v), "v": bits(v)})
    diff("m1.safetensors", "m2.safetensors")
    open("out.map", "w").write("w -> -\n")
    for more in ((), ("--all",)):
        found = diff("m1.safetensors", "m2.safetensors", "--map", "out.map", *more, code=0)
        assert [t["name"] for t in found["tensors"]] == (["v"] if more else [])
    run("diff", "m1.safetensors", "m2.safetensors", "--map", "out.map", out="of the 1 tensor compared are the same")
    # left out is not compared with another either; without one of its name nothing is missing
    save("m3.safetensors", {"v": bits(v)})
    diff("m1.safetensors", "m3.safetensors", "--map", "out.map", code=0)
    # a target that does not exist
    open("none.map", "w").write("w -> nowhere\n")
    for other in ("m1.safetensors", "m2.safetensors"):
        found = diff("m1.safetensors", other, "--map", "none.map")
        assert sorted((t["name"], t["only_in"]) for t in found["tensors"]) == [("w", "a"), ("w", "b")]
    run("diff", "m1.safetensors", "m2.safetensors", "--map", "none.map", code=1, out="only in the first file")
    # a target of another name: that of the own name has lost its own
    open("other.map", "w").write("v -> w\nw -> -\n")
    found = diff("m1.safetensors", "m2.safetensors", "--map", "other.map")
    assert [(t["name"], t["only_in"]) for t in found["tensors"]] == [("v", "b")]
    # patterns choose among those that correspond, by either name
    open("cross.map", "w").write("v -> w\nw -> v\n")
    found = diff("m1.safetensors", "m2.safetensors", "--map", "cross.map", "--tensors", "v")
    assert [(t["name"], t["name_b"]) for t in found["tensors"]] == [("w", "v")]


def test_what_the_other_framework_lacks_is_not_missing():
    n = {k: rng.normal(size=6).astype(np.float32) for k in ("gamma", "beta", "moving_mean", "moving_variance")}
    torch = dict(zip(("weight", "bias", "running_mean", "running_var"), n.values()))
    save("bn.torch.safetensors", {f"bn1.{k}": bits(v) for k, v in torch.items()} |
         {"bn1.num_batches_tracked": ("I64", np.array(3, np.uint64))})
    save("bn.keras.safetensors", {f"bn1/{k}:0": bits(v) for k, v in n.items()})
    diff("bn.torch.safetensors", "bn.keras.safetensors", "--map", "torch-keras", code=0)
    diff("bn.keras.safetensors", "bn.torch.safetensors", "--map", "keras-torch", code=0)
    found = diff("bn.keras.safetensors", "bn.torch.safetensors", "--map", "torch-keras")
    assert of(found, "bn1.num_batches_tracked")["only_in"] == "b"
    save("bn.less.safetensors", {k: bits(v) for k, v in (("bn1/gamma:0", n["gamma"]),)})
    found = diff("bn.torch.safetensors", "bn.less.safetensors", "--map", "torch-keras")
    assert "bn1.num_batches_tracked" not in [t["name"] for t in found["tensors"]] and len(found["tensors"]) == 3
    open("layer.map", "w").write("layer bn1 -> -\n")
    save("same.safetensors", {"bn1.weight": bits(n["beta"]), "w": bits(n["beta"])})
    save("here.safetensors", {"bn1.weight": bits(n["gamma"]), "w": bits(n["beta"])})
    diff("here.safetensors", "same.safetensors", "--map", "layer.map", "--map", "torch-keras", code=0)


def test_the_headline_speaks_of_what_was_compared():
    w, v = (rng.normal(size=4).astype(np.float32) for _ in range(2))
    save("h1.safetensors", {"w": bits(w), "v": bits(v)})
    save("h2.safetensors", {"w": bits(v), "v": bits(v)})
    text = run("diff", "h1.safetensors", "h2.safetensors", "--tensors", "v")
    assert text.startswith("all values of the 1 tensor compared are the same; the files differ elsewhere"), text
    assert "layout or metadata" not in text
    open("cross.map", "w").write("w -> v\nv -> w\n")
    shutil.copy("h1.safetensors", "h3.safetensors")
    for more in ((), ("--by", "values")):
        text = run("diff", "h1.safetensors", "h3.safetensors", "--map", "cross.map", *more, code=1)
        assert text.startswith("the files are byte-identical, but by the map 2 of 2 tensors differ: 8 elements"), text
    text = run("diff", "h1.safetensors", "h3.safetensors", "--map", "cross.map", "--by", "container")
    assert "the files differ" not in text
    run("diff", "h2.safetensors", "h2.safetensors", "--map", "cross.map", out="the files are byte-identical\n")


def test_sets_are_compared_by_name_and_not_by_file():
    """A checkpoint of TensorFlow's in two shards and slices, another one cut otherwise, a single file."""
    values = {"dense/kernel": rng.normal(size=(6, 10)).astype(np.float32), "dense/bias": rng.normal(size=10).astype(np.float32),
              "step": np.array(7, np.int64)}

    def bundle(folder, values, shards, sliced):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        b = tb.Bundle(shards=shards)
        for k, (name, x) in enumerate(values.items()):
            if sliced and name == "dense/kernel":
                b.add_sliced(name, bits(x)[0], x.shape,
                             [([(0, 2), None], x[:2].tobytes(), 0), ([(2, 4), None], x[2:].tobytes(), 1)])
            else:
                b.add(name, bits(x)[0], x.shape, x.tobytes(), shard=k % shards)
        b.save(os.path.join(folder, "ckpt"))

    bundle("two", values, 2, True)
    bundle("one", values, 1, False)
    found = diff("two", "one", code=0)
    assert found["same_bits"] and not found["same_container"] and found["tensors_a"] == 3
    save("single.safetensors", {n: bits(x) for n, x in values.items()})
    diff("two", "single.safetensors", code=0)
    diff("single.safetensors", "one/ckpt", code=0)
    shutil.rmtree("again", ignore_errors=True)
    shutil.copytree("two", "again")
    found = diff("two", "again", code=0)
    assert found["same_container"]
    changed = dict(values)
    changed["dense/bias"] = values["dense/bias"].copy()
    changed["dense/bias"][3] += 1
    bundle("changed", changed, 2, False)
    found = diff("single.safetensors", "changed")
    assert [(t["name"], t["first_elem"]) for t in found["tensors"]] == [("dense/bias", 3)]


def test_any_number_of_threads_and_many_chunks():
    x = rng.normal(0, 1, 3 * 2**20 + 77).astype(np.float32)
    y = x.copy()
    where = rng.choice(x.size, 3000, replace=False)
    y[where] += np.float32(1e-3)
    y[-1] = 7
    z = rng.integers(0, 256, 2**20)
    save("a.safetensors", {"x": bits(x), "z": ("U8", z)})
    save("b.safetensors", {"x": bits(y), "z": ("U8", z)})
    first = run("diff", "a.safetensors", "b.safetensors", "--json", "--all", "--threads", 1, code=1)
    for threads in (2, 3, 8):
        assert run("diff", "a.safetensors", "b.safetensors", "--json", "--all", "--threads", threads, code=1) == first
    found = diff("a.safetensors", "b.safetensors", "--sites", 1000)
    check(of(found, "x"), *bits(x), bits(y)[1])
    diff("a.safetensors", "a.safetensors", "--threads", 3, code=0)


def test_memory_does_not_grow_with_the_file():
    for name, mib in (("small", 16), ("big", 1024)):
        sparse(f"{name}.safetensors", mib)
        sparse(f"{name}2.safetensors", mib)
        with open(f"{name}2.safetensors", "r+b") as f:
            f.seek(-1, os.SEEK_END)
            f.write(b"\x40")
    small, big = (peak_kib("diff", "--threads", 2, f"{n}.safetensors", f"{n}2.safetensors", code=1) for n in ("small", "big"))
    assert big < small + 4096, (small, big)
    for name in ("big", "big2"):
        os.remove(f"{name}.safetensors")


main(globals())
