# SPDX-License-Identifier: Apache-2.0
"""Runs under the interpreter that has TensorFlow, for tensorflow_real.py:

    tensorflow_judge.py read PREFIX OUT.npz     every numeric tensor; errors by name in OUT.npz.json
    tensorflow_judge.py restore PREFIX          into a Keras model and optimizer, all objects matched
    tensorflow_judge.py load FOLDER             a SavedModel; prints its output
"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


def read(prefix, out):
    reader = tf.train.load_checkpoint(prefix)
    arrays, errors = {}, {}
    for name in reader.get_variable_to_shape_map():
        try:
            # the op, not the reader: the reader hides which kind of error it was
            value = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=[name], shape_and_slices=[""],
                                         dtypes=[reader.get_variable_to_dtype_map()[name]])[0].numpy()
        except tf.errors.OpError as e:
            errors[name] = type(e).__name__
            continue
        if not isinstance(value, bytes) and value.dtype != object:  # strings
            arrays[name] = value.reshape(-1).view(np.uint8)
    np.savez(out, **{str(i): v for i, v in enumerate(arrays.values())})
    with open(out + ".json", "w") as f:
        json.dump({"names": list(arrays), "errors": errors}, f)


def restore(prefix):
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, name="fc1", input_shape=(3,)),
                                 tf.keras.layers.BatchNormalization(name="bn1"),
                                 tf.keras.layers.Dense(2, name="fc2")])
    slots = any(".OPTIMIZER_SLOT" in n for n in tf.train.load_checkpoint(prefix).get_variable_to_shape_map())
    optimizer = (tf.keras.optimizers.legacy.Adam if slots else tf.keras.optimizers.Adam)(0.01)
    if not slots:
        optimizer.build(model.trainable_variables)
    status = tf.train.Checkpoint(model=model, optimizer=optimizer).restore(prefix)
    status.assert_existing_objects_matched()
    if slots:  # slots come into being with the first step, and are restored then
        optimizer.apply_gradients([(tf.zeros_like(v), v) for v in model.trainable_variables])
    print(json.dumps(model.get_layer("fc1").kernel.numpy().reshape(-1).view(np.uint32).tolist()))


def main():
    command, path = sys.argv[1], sys.argv[2]
    try:
        if command == "read":
            read(path, sys.argv[3])
        elif command == "restore":
            restore(path)
        else:
            w = tf.saved_model.load(path).w.numpy()
            print(json.dumps(w.reshape(-1).view(np.uint32).tolist()))
    except tf.errors.OpError as e:
        print(type(e).__name__, e, file=sys.stderr)
        sys.exit(3)


main()
