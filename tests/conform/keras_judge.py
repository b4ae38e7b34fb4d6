# SPDX-License-Identifier: Apache-2.0
"""Runs in the interpreter that has TensorFlow and Keras: writes models in every way that Keras
saves, and reads them back.

    keras_judge.py write FOLDER
    keras_judge.py read FILE OUT.npz
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import h5py
import keras
import numpy as np


def model():
    keras.utils.set_random_seed(5)
    m = keras.Sequential([
        keras.layers.Input((8, 8, 1)), keras.layers.Conv2D(4, 3, name="conv"), keras.layers.BatchNormalization(),
        keras.layers.Flatten(), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)])
    m.compile("adam", "mse")
    return m


def write(folder):
    os.makedirs(folder, exist_ok=True)
    m = model()
    x = np.random.default_rng(0).standard_normal((20, 8, 8, 1)).astype("f4")
    m.fit(x, x.reshape(20, -1)[:, :3], epochs=1, batch_size=5, verbose=0)
    m.save(os.path.join(folder, "m.keras"))
    m.save(os.path.join(folder, "m.h5"))
    m.save_weights(os.path.join(folder, "m.weights.h5"))
    m.save_weights(os.path.join(folder, "old.h5"), save_format="h5")
    # what later libraries write: complex numbers of their own, the newest layouts
    with h5py.File(os.path.join(folder, "new.h5"), "w", libver="latest") as f:
        a = np.arange(24, dtype="f4").reshape(4, 6)
        f["plain"] = a
        f.create_dataset("chunks", data=a, chunks=(3, 4), maxshape=(None, None))
        f.create_dataset("gzip", data=a, chunks=(3, 4), compression="gzip", fletcher32=True)
        f["complex"] = a + 1j * a
    print(keras.__version__, h5py.__version__, h5py.version.hdf5_version)


def read(path, out):
    if os.path.basename(path).startswith("new"):
        with h5py.File(path) as f:
            arrays = [f[n][()] for n in sorted(f)]
    elif path.endswith(".keras") or os.path.basename(path).startswith("m.h5"):
        arrays = keras.models.load_model(path).get_weights()
    else:
        m = model()
        m.load_weights(path)
        arrays = m.get_weights()
    np.savez(out, *arrays)


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    read(sys.argv[2], sys.argv[3])
