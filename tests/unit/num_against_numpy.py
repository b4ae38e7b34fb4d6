# SPDX-License-Identifier: Apache-2.0
"""Conversions and texts of src/num against NumPy and PyTorch: every 16-bit value, random wide ones."""
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
    import torch
except ImportError:
    print("NumPy agrees; PyTorch is not there, bfloat16 not compared")
    sys.exit(77)
bf16 = torch.from_numpy(every16.astype(np.uint16).view(np.int16)).view(torch.bfloat16)
same_values(call("to-double", "BF16", every16), bf16.to(torch.float64).numpy(), "every BF16")
# PyTorch goes through float32, so only doubles that are float32 values round once there
x = np.concatenate([interesting(200000, 120).astype(np.float32), raw32.astype(np.uint32).view(np.float32)])
x = x[~np.isnan(x)]
want = torch.from_numpy(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
got = call("from-double", "BF16", x.astype(np.float64).view(np.uint64))
assert (got == want).all(), "to BF16"
print("NumPy and PyTorch agree")
