#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Flips bits of an HDF5 file with h5py and nothing more: FILE N. Stand-in for injectors in Python."""
import random
import sys

import h5py
import numpy as np


def main():
    path, n = sys.argv[1], int(sys.argv[2])
    random.seed(1)
    with h5py.File(path, "r+") as f:
        names = []
        f.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        sets = [f[name] for name in names]
        for _ in range(n):
            d = random.choice(sets)
            at = tuple(random.randrange(k) for k in d.shape)
            value = np.array([d[at]])
            bits = value.view(f"u{value.itemsize}")
            bits[0] ^= bits.dtype.type(1 << random.randrange(8 * value.itemsize))
            d[at] = value[0]


if __name__ == "__main__":
    main()
