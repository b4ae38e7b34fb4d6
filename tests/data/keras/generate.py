#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files of this folder with real Keras (keras 3.15.1 on its NumPy backend, h5py 3.16, Python
3.11; the backend wants scipy and jax):

    pip install keras==3.15.1 h5py scipy jax && python generate.py FOLDER

The files in the tree were made once by this script; SHA256SUMS holds their digests. Another run gives the
same values in files of the same shape.
"""
import os
import sys

os.environ["KERAS_BACKEND"] = "numpy"
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras.src.saving import saving_lib  # noqa: E402


def network():
    """Every variable has values of its own: 100 v + k for element k of variable v."""
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(5, name="hidden"),
                              keras.layers.BatchNormalization(name="bn"), keras.layers.Dense(3, name="out")])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    for v, variable in enumerate([*model.variables, *model.optimizer.variables]):
        variable.assign((100 * v + np.arange(np.prod(variable.shape, dtype=int)).reshape(variable.shape)).astype(variable.dtype))
    return model


def main(folder):
    os.makedirs(folder, exist_ok=True)
    model = network()
    model.save_weights(os.path.join(folder, "net.weights.json"), max_shard_size=200 / 1024**3)
    # Keras writes this, but does not read it: the members are pickled dictionaries
    saving_lib.save_model(model, os.path.join(folder, "npz.keras"), weights_format="npz")
    try:
        keras.models.load_model(os.path.join(folder, "npz.keras"))
    except ValueError as e:
        assert "Object arrays cannot be loaded" in str(e), e
    else:
        raise AssertionError("this Keras reads npz")


main(sys.argv[1])
