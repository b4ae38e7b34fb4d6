#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same small state, a linear layer of 4 inputs and 3 outputs, as every framework saves it; the files
that docs/user/formats.md shows.

    python generate.py FOLDER [tensorflow|dcp]

Without a word it writes what the test environment can: NumPy, HDF5 by h5py, Keras' layouts, safetensors,
PyTorch, GGUF. The files of this folder were made once by `tensorflow` (tensorflow-cpu 2.15.1) and `dcp`
(PyTorch 2.9.1, CPU), which are too large to install for a quick test; SHA256SUMS holds their digests.
"""
import os
import sys
import zipfile

import numpy as np

WEIGHT = (np.arange(12, dtype=np.float32).reshape(3, 4) - 5) / 8
BIAS = np.array([0.5, -1.0, 0.25], np.float32)


def with_tensorflow(folder):
    import tensorflow as tf
    prefix = os.path.join(folder, "fc.ckpt")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["fc.bias", "fc.weight"], shape_and_slices=["", ""],
                      tensors=[tf.constant(BIAS), tf.constant(WEIGHT)])


def with_dcp(folder):
    import torch
    import torch.distributed.checkpoint as dcp
    state = {"fc.weight": torch.from_numpy(WEIGHT), "fc.bias": torch.from_numpy(BIAS)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(os.path.join(folder, "fc.dcp"), thread_count=1), no_dist=True)


def keras_file(f):
    """As Keras 3 writes it: the kernel is the transposed weight, names are positions."""
    f["layers/fc/vars/0"] = WEIGHT.T.copy()
    f["layers/fc/vars/1"] = BIAS


def here(folder):
    import h5py
    import torch
    from gguf import GGUFWriter
    from safetensors.numpy import save_file
    at = lambda name: os.path.join(folder, name)  # noqa: E731
    state = {"fc.weight": WEIGHT, "fc.bias": BIAS}
    with h5py.File(at("fc.h5"), "w") as f:
        for name, value in state.items():
            f[name] = value
    with h5py.File(at("fc-gzip.h5"), "w") as f:
        for name, value in state.items():
            f.create_dataset(name, data=value, compression="gzip")
    with h5py.File(at("fc.weights.h5"), "w") as f:
        keras_file(f)
    with zipfile.ZipFile(at("fc.keras"), "w") as z:
        z.writestr("metadata.json", '{"keras_version": "3.5.0"}')
        z.writestr("config.json", "{}")
        z.write(at("fc.weights.h5"), "model.weights.h5")
    save_file(state, at("fc.safetensors"))
    np.save(at("fc.npy"), WEIGHT)
    np.savez(at("fc.npz"), **state)
    torch.save({k: torch.from_numpy(v) for k, v in state.items()}, at("fc.pt"))
    torch.save({k: torch.from_numpy(v) for k, v in state.items()}, at("fc-legacy.pt"),
               _use_new_zipfile_serialization=False)
    w = GGUFWriter(at("fc.gguf"), "none")
    for name, value in state.items():
        w.add_tensor(name, value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    {"tensorflow": with_tensorflow, "dcp": with_dcp}.get("".join(sys.argv[2:]), here)(sys.argv[1])
