# SPDX-License-Identifier: Apache-2.0
"""Data sets against NumPy's reading of the same files; damaged files; the synthetic set."""
import gzip
import os
import struct
import subprocess
import sys

import numpy as np

PROGRAM = sys.argv[1]
SYSTEM = "/usr/share/datasets/fashion-mnist"


def call(*args):
    return subprocess.run([PROGRAM, "set", *map(str, args)], stdout=subprocess.PIPE, check=True, timeout=100).stdout


def read(*args):
    out = call(*args)
    line, _, rest = out.partition(b"\n")
    n, c, h, w, classes = map(int, line.split())
    labels = np.frombuffer(rest[:n], np.uint8)
    images = np.frombuffer(rest[n:], np.float32).reshape(n, c, h, w)
    return labels, images, classes


def normalise(pixels, mean, std):
    """Each operation rounded to f32, as ToTensor and Normalize do."""
    x = pixels.astype(np.float32) / np.float32(255)
    return (x - np.float32(mean)) / np.float32(std)


def system(prefix):
    images = np.frombuffer(gzip.open(f"{SYSTEM}/{prefix}-images-idx3-ubyte.gz").read()[16:], np.uint8)
    labels = np.frombuffer(gzip.open(f"{SYSTEM}/{prefix}-labels-idx1-ubyte.gz").read()[8:], np.uint8)
    return labels, images.reshape(-1, 1, 28, 28)


# the real files, the whole test set and a prefix of the training set
labels, images, classes = read("fashion-mnist", "-", "test", 0)
want_labels, want_images = system("t10k")
assert classes == 10 and len(labels) == 10000
assert (labels == want_labels).all()
assert (images.view(np.uint32) == normalise(want_images, 0.2860, 0.3530).view(np.uint32)).all()
labels, images, _ = read("fashion-mnist", SYSTEM, "train", 100)
want_labels, want_images = system("train")
assert len(want_labels) == 60000
# the constants are those of the training images
assert abs(want_images.mean() / 255 - 0.2860) < 5e-5 and abs(want_images.std() / 255 - 0.3530) < 5e-5
assert (labels == want_labels[:100]).all()
assert (images.view(np.uint32) == normalise(want_images[:100], 0.2860, 0.3530).view(np.uint32)).all()

# small files of our own, plain and gzip
os.makedirs("idx", exist_ok=True)
rng = np.random.default_rng(1)
PIXELS = rng.integers(0, 256, (7, 28, 28), np.uint8)
LABELS = rng.integers(0, 10, 7).astype(np.uint8)
IMAGES_FILE = struct.pack(">IIII", 0x803, 7, 28, 28) + PIXELS.tobytes()
LABELS_FILE = struct.pack(">II", 0x801, 7) + LABELS.tobytes()


def put(images, labels, gz=False):
    for name in os.listdir("idx"):
        os.remove(f"idx/{name}")
    for name, data in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
        if data is not None:
            with open(f"idx/{name}{'.gz' if gz else ''}", "wb") as f:
                f.write(data)


put(IMAGES_FILE, LABELS_FILE)
labels, images, _ = read("fashion-mnist", "idx", "test", 0)
assert (labels == LABELS).all() and (images[:, 0] == normalise(PIXELS, 0.2860, 0.3530)).all()
put(gzip.compress(IMAGES_FILE), gzip.compress(LABELS_FILE), gz=True)
labels, images, _ = read("fashion-mnist", "idx", "test", 5)
assert (labels == LABELS[:5]).all() and (images[:, 0] == normalise(PIXELS, 0.2860, 0.3530)[:5]).all()


def refused(status, offset, *words):
    out = call("fashion-mnist", "idx", "test", 0).decode(errors="replace")
    got = out.split(" ", 2)
    assert got[0] == status and (offset is None or int(got[1]) == offset), out[:300]
    for word in words:
        assert word in got[2], (word, out)


def header(*words):
    return struct.pack(f">{len(words)}I", *words)


put(None, LABELS_FILE)
refused("NOT_FOUND", None, "idx/t10k-images-idx3-ubyte", "dataset-fashion-mnist")
put(IMAGES_FILE, None)
refused("NOT_FOUND", None, "idx/t10k-labels-idx1-ubyte", "dataset-fashion-mnist")
put(header(0x801) + IMAGES_FILE[4:], LABELS_FILE)
refused("INVALID", 0, "idx/t10k-images-idx3-ubyte: magic number 0x00000801, expected 0x00000803")
put(IMAGES_FILE, header(0x803) + LABELS_FILE[4:])
refused("INVALID", 0, "labels", "magic number 0x00000803, expected 0x00000801")
put(header(0xD03) + IMAGES_FILE[4:], LABELS_FILE)  # type f32
refused("INVALID", 0, "unsigned bytes")
put(IMAGES_FILE[:15], LABELS_FILE)
refused("INVALID", 15, "truncated: 15 bytes, an IDX header of 3 dimensions has 16")
put(b"", LABELS_FILE)
refused("INVALID", 0, "truncated: 0 bytes")
put(IMAGES_FILE[:-1], LABELS_FILE)
refused("INVALID", len(IMAGES_FILE) - 1, "truncated: 5487 bytes of elements, its sizes ask for 5488")
put(IMAGES_FILE + b"x", LABELS_FILE)
refused("INVALID", len(IMAGES_FILE), "bytes after the end: 5489 bytes of elements, its sizes ask for 5488")
put(IMAGES_FILE, LABELS_FILE[:-2])
refused("INVALID", None, "labels", "truncated")
put(IMAGES_FILE, header(0x801, 6) + LABELS_FILE[8:14])
refused("INVALID", 4, "6 labels, expected 7 as images in idx/t10k-images-idx3-ubyte")
put(header(0x803, 0, 28, 28), header(0x801, 0))
refused("INVALID", 4, "no images")
put(header(0x803, 7, 14, 56) + IMAGES_FILE[16:], LABELS_FILE)
refused("INVALID", 8, "images of 14 x 56, expected 28 x 28")
put(header(0x803, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF) + IMAGES_FILE[16:], LABELS_FILE)
refused("INVALID", None, "truncated", "its sizes ask for 18446744073709551615")
put(header(0x803, 0x80000000, 0x80000000, 4), LABELS_FILE)  # a product of 2^64
refused("INVALID", None, "truncated")
put(IMAGES_FILE, LABELS_FILE[:8 + 3] + b"\x0a" + LABELS_FILE[12:])
refused("INVALID", 11, "label 10 of sample 3, expected less than 10")
whole = gzip.compress(IMAGES_FILE)
put(whole[:len(whole) // 2], gzip.compress(LABELS_FILE), gz=True)
refused("INVALID", None, "idx/t10k-images-idx3-ubyte.gz", "truncated")
put(whole[:1000] + bytes([whole[1000] ^ 0x55]) + whole[1001:], gzip.compress(LABELS_FILE), gz=True)
refused("INVALID", None, "idx/t10k-images-idx3-ubyte.gz")

# the synthetic set: always the same, a limit takes a prefix, balanced, to be told apart by the nearest centre
labels, images, classes = read("synthetic", "-", "train", 0)
again_labels, again, _ = read("synthetic", "-", "train", 0)
assert images.shape == (2048, 1, 28, 28) and classes == 10
assert (labels == again_labels).all() and images.tobytes() == again.tobytes()
few_labels, few, _ = read("synthetic", "-", "train", 33)
assert (few_labels == labels[:33]).all() and few.tobytes() == images[:33].tobytes()
test_labels, test, _ = read("synthetic", "-", "test", 0)
assert test.shape == (512, 1, 28, 28) and test[0].tobytes() != images[0].tobytes()
assert np.isin(images, normalise(np.arange(256), 0.5, 0.25)).all()
assert abs(images.mean()) < 0.1 and 0.9 < images.std() < 1.3
centres = np.stack([images[labels == k].mean(0).ravel() for k in range(10)])
nearest = ((test.reshape(512, 1, -1) - centres) ** 2).sum(-1).argmin(1)
assert (nearest == test_labels).mean() > 0.99
inner = images[labels == 3].reshape(-1, 784) - centres[3]
assert 0.9 < inner.std() < 1.05  # noise of 64 / 255 over 0.25, less what is clipped

assert call("cifar", "-", "test", 0).startswith(b"USAGE ")
print("ok")
