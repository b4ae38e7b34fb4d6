# SPDX-License-Identifier: Apache-2.0
"""Conversions and texts of src/num against NumPy, ml_dtypes and PyTorch: every value of up to 16 bits,
random wide ones."""
import subprocess
import sys

import numpy as np

PROGRAM = sys.argv[1]
rng = np.random.default_rng(20220101)


def call(what, dtype, words):
    out = subprocess.run([PROGRAM, what, dtype], input=np.ascontiguousarray(words, np.uint64).tobytes(),
                         stdout=subprocess.PIPE, check=True, timeout=60).stdout
    return out.decode().split() if what == "text" else np.frombuffer(out, np.uint64)


def same_values(got_bits, want, label):
    got = got_bits.view(np.float64)
    nan = np.isnan(want)
    assert (np.isnan(got) == nan).all(), label
    assert (got_bits[~nan] == want[~nan].view(np.uint64)).all(), label


def interesting(n, limit):
    """Doubles of all magnitudes up to 10 to the limit, ties of the types among them, both signs."""
    x = rng.uniform(1, 2, n) * 2.0 ** rng.integers(-limit, limit, n)
    ties = np.float64(1) + np.arange(1, 4096) / 4096
    x = np.concatenate([x, ties, [0.0, np.inf, np.nan, 5e-324, 2.0 ** -24, 2.0 ** -25, 2.0 ** -149,
                                  2.0 ** -150, 65504, 65520, 65519.99]])
    return np.concatenate([x, -x])


every16 = np.arange(65536, dtype=np.uint64)
half = every16.astype(np.uint16).view(np.float16)
same_values(call("to-double", "F16", every16), half.astype(np.float64), "every F16")

with np.errstate(over="ignore"):
    x = interesting(200000, 30)
    finite = ~np.isnan(x)
    got = call("from-double", "F16", x.view(np.uint64))
    assert (got[finite] == x.astype(np.float16).view(np.uint16)[finite]).all(), "to F16"
    x = interesting(200000, 200)
    finite = ~np.isnan(x)
    got = call("from-double", "F32", x.view(np.uint64))
    assert (got[finite] == x.astype(np.float32).view(np.uint32)[finite]).all(), "to F32"
    assert (got[~finite] & 0x7FFFFFFF == 0x7FC00000).all()

raw32 = np.concatenate([rng.integers(0, 2 ** 32, 200000, dtype=np.uint64), np.arange(0, 2000, dtype=np.uint64)])
with np.errstate(invalid="ignore"):
    same_values(call("to-double", "F32", raw32), raw32.astype(np.uint32).view(np.float32).astype(np.float64), "F32")

def digits(text):
    return len(text.lower().split("e")[0].replace(".", "").replace("-", "").strip("0")) or 1


def check_text(text, value, reader):
    """As many digits as NumPy's shortest; one more at powers of two, where the shortest is not the
    nearest decimal of its length."""
    assert reader(text) == value, (text, value)
    shortest = np.format_float_scientific(value, unique=True)
    power_of_two = abs(np.frexp(value)[0]) == 0.5
    assert digits(text) <= digits(shortest) + power_of_two, (text, shortest)


for dtype, raw, values in (("F16", every16, half),
                           ("F32", raw32[:20000], raw32[:20000].astype(np.uint32).view(np.float32))):
    for text, value in zip(call("text", dtype, raw), values):
        if np.isfinite(value):
            check_text(text, value, values.dtype.type)
raw64 = rng.integers(0, 2 ** 63, 20000, dtype=np.uint64)
for text, value in zip(call("text", "F64", raw64), raw64.view(np.float64)):
    if np.isfinite(value):
        check_text(text, value, float)

try:
    import ml_dtypes
except ImportError:
    print("NumPy agrees; ml_dtypes is not there, types of 8 bits and less not compared")
    sys.exit(77)
for dtype, name, bits in (("F8_E5M2", "float8_e5m2", 8), ("F8_E4M3", "float8_e4m3fn", 8),
                          ("F8_E5M2FNUZ", "float8_e5m2fnuz", 8), ("F8_E4M3FNUZ", "float8_e4m3fnuz", 8),
                          ("F8_E8M0", "float8_e8m0fnu", 8), ("F4", "float4_e2m1fn", 4)):
    kind = getattr(ml_dtypes, name)
    every = np.arange(2 ** bits, dtype=np.uint64)
    values = every.astype(np.uint8).view(kind)
    wide = values.astype(np.float64)
    same_values(call("to-double", dtype, every), wide, f"every {dtype}")
    # values of float32 only, since ml_dtypes may go through it; every value and every middle of two
    finite = np.sort(wide[np.isfinite(wide)])
    x = np.concatenate([interesting(200000, 20), interesting(20000, 126), finite, (finite[1:] + finite[:-1]) / 2])
    x = np.concatenate([x, np.nextafter(x.astype(np.float32), np.float32(np.inf)),
                        np.nextafter(x.astype(np.float32), np.float32(-np.inf))]).astype(np.float32)
    with np.errstate(all="ignore"):
        want = x.astype(kind).view(np.uint8)
    got = call("from-double", dtype, x.astype(np.float64).view(np.uint64))
    if dtype == "F4":  # it has no NaN; ml_dtypes takes a zero of either sign
        assert (got[np.isnan(x)] == 0).all()
        got, want, x = got[~np.isnan(x)], want[~np.isnan(x)], x[~np.isnan(x)]
    if dtype == "F8_E8M0":  # of subnormal float32 values ml_dtypes 0.5.3 misses the nearest
        assert (got[(x > 0) & (x < 1.5 * 2.0 ** -127)] == 0).all()
        normal = ~((x > 0) & (x < 2.0 ** -126))
        got, want, x = got[normal], want[normal], x[normal]
    differ = got != want
    assert not differ.any(), (dtype, x[differ][:5], got[differ][:5], want[differ][:5])
    for code, text, value in zip(every, call("text", dtype, every), wide):
        if np.isfinite(value) and value:  # two zeros are one value
            assert call("from-double", dtype, np.array([float(text)]).view(np.uint64)) == code, (text, value)
        else:
            names = {"inf": np.inf, "-inf": -np.inf, "0": 0.0, "-0": 0.0, "nan": np.nan}
            assert np.array_equal(names[text], value, equal_nan=True)
for dtype, bits in (("U4", 4), ("U2", 2), ("U1", 1)):
    every = np.arange(2 ** bits, dtype=np.uint64)
    same_values(call("to-double", dtype, every), every.astype(np.float64), dtype)
    assert (call("from-double", dtype, np.arange(-3, 20).astype(np.float64).view(np.uint64)) ==
            np.clip(np.arange(-3, 20), 0, 2 ** bits - 1)).all()

try:
    import torch
except ImportError:
    print("NumPy and ml_dtypes agree; PyTorch is not there, bfloat16 not compared")
    sys.exit(77)
bf16 = torch.from_numpy(every16.astype(np.uint16).view(np.int16)).view(torch.bfloat16)
same_values(call("to-double", "BF16", every16), bf16.to(torch.float64).numpy(), "every BF16")
# PyTorch goes through float32, so only doubles that are float32 values round once there
x = np.concatenate([interesting(200000, 120).astype(np.float32), raw32.astype(np.uint32).view(np.float32)])
x = x[~np.isnan(x)]
want = torch.from_numpy(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
got = call("from-double", "BF16", x.astype(np.float64).view(np.uint64))
assert (got == want).all(), "to BF16"
print("NumPy, ml_dtypes and PyTorch agree")
