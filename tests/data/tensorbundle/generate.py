#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the checkpoints of this folder with real TensorFlow (tensorflow-cpu 2.15.1, Python 3.11):

    python generate.py FOLDER

The files in the tree were made once by this script; SHA256SUMS holds their digests. Ids in the object
graph and checkpoints' saved times do not repeat, so another run gives other bytes of the same shape.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


def network():
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential([tf.keras.layers.Dense(4, name="fc1", input_shape=(3,)),
                                tf.keras.layers.BatchNormalization(name="bn1"),
                                tf.keras.layers.Dense(2, name="fc2")])


def train_step(model, optimizer):
    x = tf.constant(np.linspace(-1, 1, 24).reshape(8, 3), tf.float32)
    y = tf.constant(np.linspace(0, 1, 16).reshape(8, 2), tf.float32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))


def object_based(folder, name, optimizer):
    """tf.train.Checkpoint after one step."""
    model = network()
    train_step(model, optimizer)
    tf.train.Checkpoint(model=model, optimizer=optimizer).save(os.path.join(folder, name))


def name_based(folder):
    """tf.compat.v1 Saver; one variable in three partitions, its rows 0-3, 4-6, 7-9."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as s:
        v1 = tf.compat.v1
        v1.get_variable("dense/kernel", initializer=tf.reshape(tf.range(12, dtype=tf.float32), [3, 4]), use_resource=False)
        v1.get_variable("dense/bias", initializer=tf.constant([0.5, -0.5], tf.float32), use_resource=False)
        v1.get_variable("global_step", initializer=tf.constant(7, tf.int64), use_resource=False)
        with v1.variable_scope("big", partitioner=v1.fixed_size_partitioner(3), use_resource=False):
            v1.get_variable("table", shape=[10, 300], initializer=v1.random_uniform_initializer(-1, 1, seed=3))
        s.run(v1.global_variables_initializer())
        v1.train.Saver().save(s, os.path.join(folder, "names"), write_meta_graph=False, write_state=False)


def all_types(folder):
    values = {
        "half": tf.constant([1, -2, 65504], tf.float16), "bfloat16": tf.constant([1, -2, 3e38], tf.bfloat16),
        "float": tf.constant([[1, 2, 3], [4, 5, 6]], tf.float32), "double": tf.constant(2.5, tf.float64),
        "int8": tf.constant([-128, 127], tf.int8), "int16": tf.constant([-5, 6], tf.int16),
        "int32": tf.constant([7], tf.int32), "int64": tf.constant([1 << 40], tf.int64),
        "uint8": tf.constant([0, 255], tf.uint8), "uint16": tf.constant([65535], tf.uint16),
        "uint32": tf.constant([1 << 31], tf.uint32), "uint64": tf.constant([1 << 63], tf.uint64),
        "bool": tf.constant([True, False]), "complex64": tf.constant([1 + 2j, 3 - 4j], tf.complex64),
        "complex128": tf.constant([0.5 - 0.25j], tf.complex128), "string": tf.constant(["ab", "", "cde"]),
        "float8_e5m2": tf.cast(tf.constant([1.0, -2.0]), tf.dtypes.experimental.float8_e5m2),
        "float8_e4m3fn": tf.cast(tf.constant([1.0, -2.0]), tf.dtypes.experimental.float8_e4m3fn),
        "empty": tf.zeros([0, 3], tf.float32),
    }
    names = sorted(values)
    tf.raw_ops.SaveV2(prefix=os.path.join(folder, "types"), tensor_names=names, shape_and_slices=[""] * len(names),
                      tensors=[values[n] for n in names])


def two_shards(folder):
    """Two writers, merged by renaming: tensors of one index in two data files."""
    parts = []
    for i in range(2):
        prefix = os.path.join(folder, f"part{i}")
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=[f"shard{i}/w", f"shard{i}/b"], shape_and_slices=["", ""],
                          tensors=[tf.range(6, dtype=tf.float32) + 10 * i, tf.constant([i], tf.int32)])
        parts.append(prefix)
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=os.path.join(folder, "merged"),
                                  delete_old_dirs=False)


def saved_model(folder):
    class Module(tf.Module):
        def __init__(self):
            self.w = tf.Variable(tf.reshape(tf.range(6, dtype=tf.float32), [2, 3]), name="w")

        @tf.function(input_signature=[tf.TensorSpec([None, 2])])
        def __call__(self, x):
            return x @ self.w
    tf.saved_model.save(Module(), os.path.join(folder, "saved_model"))


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for sub in ("slots", "adam"):
        os.makedirs(os.path.join(folder, sub), exist_ok=True)
    object_based(os.path.join(folder, "slots"), "ckpt", tf.keras.optimizers.legacy.Adam(0.01))
    object_based(os.path.join(folder, "adam"), "ckpt", tf.keras.optimizers.Adam(0.01))
    name_based(folder)
    all_types(folder)
    two_shards(folder)
    saved_model(folder)


main()
