# SPDX-License-Identifier: Apache-2.0
"""Operators of src/fault against NumPy and ml_dtypes: every operator, type and bit, over every value of
types of up to 8 bits and random ones of the others."""
import subprocess
import sys

import numpy as np

PROGRAM = sys.argv[1]
rng = np.random.default_rng(20220101)
U = np.uint64
TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16,
         "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8}
WIDTHS = {"BF16": 16, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8, "F8_E8M0": 8, "F4": 4, "U4": 4,
          "U2": 2, "U1": 1, "BOOL": 8}
try:
    import ml_dtypes
    TYPES.update({"BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn,
                  "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz})
except ImportError:
    print("ml_dtypes is not there: 8-bit floats are not scaled")


def call(dtype, op, bits, raw):
    out = subprocess.run([PROGRAM, dtype, op, bits], input=raw.tobytes(), stdout=subprocess.PIPE, check=True,
                         timeout=60).stdout
    return np.frombuffer(out, U)


def low(n):
    return U(2 ** n - 1)


compared = 0


def check(dtype, op, bits, raw, want):
    global compared
    got = call(dtype, op, bits, raw)
    assert len(got) == len(want), (dtype, op, bits, len(got), len(want))
    assert (got == want).all(), (dtype, op, bits, raw[got != want][:3], got[got != want][:3], want[got != want][:3])
    compared += len(got)


def view(raw, kind):
    return raw.astype(f"u{np.dtype(kind).itemsize}").view(kind)


def unview(values):
    return values.view(f"u{values.dtype.itemsize}").astype(U)


for dtype in sorted(set(TYPES) | set(WIDTHS)):
    width = WIDTHS.get(dtype) or np.dtype(TYPES[dtype]).itemsize * 8
    raw = np.arange(2 ** width, dtype=U) if width <= 8 else rng.integers(0, 2 ** width, 300, dtype=U)
    for b in range(width):
        one = U(1) << U(b)
        check(dtype, "flip", f"lsb:{b}", raw, raw ^ one)
        check(dtype, "set0", f"lsb:{b}", raw, raw & ~one)
        check(dtype, "set1", f"msb:{width - 1 - b}", raw, raw | one)
        # three bits from b upward, cut off at the top
        check(dtype, "burst=3", f"lsb:{b}", raw, raw ^ ((U(7) << U(b)) & low(width)))
        if b + 3 <= width:  # 101 with its lowest bit at b
            check(dtype, "mask=5/3", f"lsb:{b}", raw, raw ^ (U(5) << U(b)))
    mask = U(0xA5A5A5A5A5A5A5A5) & low(width)
    check(dtype, f"mask={int(mask):x}", "-", raw, raw ^ mask)
    check(dtype, f"flip={width}", "-", raw, raw ^ low(width))
    # several of the bits: that many, of those that are named
    if width >= 4:
        for got in [call(dtype, "flip=2", "lsb:1-3", raw)]:
            changed = got ^ raw
            assert not (changed & ~U(14)).any()
            assert all(bin(int(c)).count("1") == 2 for c in changed)
            assert len(raw) < 100 or len(set(changed)) == 3
    # another bit pattern, whatever it was
    got = call(dtype, "random", "-", raw)
    assert (got != raw).all() and (got <= low(width)).all()
    # the value of another element
    if len(raw) > 1:
        got = call(dtype, "swap", "-", raw)
        assert set(got) <= set(raw)
        assert width < 8 or (got != raw).mean() > 0.9
    if dtype not in TYPES:
        continue
    kind = TYPES[dtype]
    values = view(raw, kind)
    for factor in (0.5, -3.0, 1.0, 1e10, 0.1):
        with np.errstate(all="ignore"):
            product = values.astype(np.float64) * factor
            if np.issubdtype(kind, np.integer):
                info = np.iinfo(kind)
                small = np.abs(product) < 2.0 ** 53  # above, doubles are not whole numbers of the type
                want = np.clip(np.rint(np.where(small, product, 0)), info.min, info.max).astype(kind)
                got = view(call(dtype, f"scale={factor!r}", "-", raw), kind)
                assert (got == want)[small].all(), (dtype, factor)
                compared += int(small.sum())
                continue
            want = product.astype(kind) if width > 8 else product.astype(np.float32).astype(kind)
        with np.errstate(all="ignore"):
            nan = np.isnan(values.astype(np.float64))
        got = call(dtype, f"scale={factor!r}", "-", raw)
        assert (got[nan] == raw[nan]).all()  # bits of a NaN are kept
        if dtype == "BF16":  # ml_dtypes goes through float32: rounded twice
            with np.errstate(all="ignore"):
                nan |= product != product.astype(np.float32)
        assert (got == unview(want))[~nan].all(), (dtype, factor, raw[(got != unview(want)) & ~nan][:3])
        compared += int((~nan).sum())
    for text, value in (("0", 0.0), ("-1.5", -1.5), ("3", 3.0), ("1e30", 1e30), ("inf", np.inf)):
        if np.issubdtype(kind, np.integer) or dtype == "F8_E8M0":
            continue
        with np.errstate(all="ignore"):
            want = unview(np.full(len(raw), value).astype(np.float32 if width < 32 else kind).astype(kind))
        check(dtype, f"value={text}", "-", raw, want)
print(f"{compared} results are the same")
