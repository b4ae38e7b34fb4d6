# SPDX-License-Identifier: Apache-2.0
"""The digest of a state, computed a second time from its description with NumPy and Python's xxhash."""
import struct
import subprocess
import sys

import numpy as np
import xxhash

PROGRAM = sys.argv[1]
rng = np.random.default_rng(7)
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
         "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?", "BF16": "<u2"}


def want(tensors):
    """name without wrappers, NUL, type, NUL, rank and shape as u64, elements; sorted by name."""
    h = xxhash.xxh3_128()
    for name, type_, array in sorted(tensors, key=lambda t: t[0].encode()):
        h.update(name.encode() + b"\0" + type_.encode() + b"\0")
        h.update(struct.pack(f"<{1 + array.ndim}Q", array.ndim, *array.shape))
        h.update(array.tobytes())
    return h.hexdigest()


def got(tensors):
    lines = [" ".join([name, type_, str(a.ndim), *map(str, a.shape), a.tobytes().hex() or "-"])
             for name, type_, a in tensors]
    return subprocess.run([PROGRAM], input="\n".join(lines) + "\n", text=True, stdout=subprocess.PIPE,
                          check=True, timeout=60).stdout.strip()


def random_tensor(type_, shape):
    n = int(np.prod(shape, dtype=np.int64)) * np.dtype(TYPES[type_]).itemsize
    return np.frombuffer(rng.bytes(n), TYPES[type_]).reshape(shape)


assert got([]) == want([])
every = [(f"model/t{i}.weight", t, random_tensor(t, (3, i + 1))) for i, t in enumerate(TYPES)]
every += [("loop/step", "I64", random_tensor("I64", ())), ("model/empty", "F32", random_tensor("F32", (0, 4))),
          ("model/Z", "F32", random_tensor("F32", (2,))), ("model/a", "F32", random_tensor("F32", (700,)))]
assert got(every) == want(every)
for _ in range(20):
    rng.shuffle(every)
    some = every[:rng.integers(1, len(every))]
    assert got(some) == want(some)

# wrappers' prefixes do not count, neither in the bytes nor in the order
plain = [("model/fc.weight", "F32", random_tensor("F32", (2, 2))), ("model/a.bias", "F32", random_tensor("F32", (2,))),
         ("optimizer/fc.weight/momentum", "F32", random_tensor("F32", (2, 2)))]
wrapped = [("model/module." + plain[0][0][6:], *plain[0][1:]), plain[1],
           ("optimizer/module._orig_mod." + plain[2][0][10:], *plain[2][1:])]
assert got(wrapped) == want(plain)
print("ok")
