# SPDX-License-Identifier: Apache-2.0
"""Data sets against NumPy's reading of the same files; damaged files; the synthetic set."""
import gzip
import hashlib
import os
import shutil
import struct
import subprocess
import sys

import numpy as np

PROGRAM = sys.argv[1]
# SHA-256 of labels (u8) and images (f32) of the synthetic training set as it was first made: its bytes never change
FIRST_BYTES = "57b61cb1533a828fcb4d0ccdf1a68073be36f2703c59aa71f14e312b2691aaf1"
SYSTEM = "/usr/share/datasets/fashion-mnist"


def call(*args):
    return subprocess.run([PROGRAM, "set", *map(str, args)], stdout=subprocess.PIPE, check=True, timeout=100).stdout


def read(*args):
    out = call(*args)
    line, _, rest = out.partition(b"\n")
    n, c, h, w, classes = map(int, line.split())
    labels = np.frombuffer(rest[:4 * n], np.int32)
    images = np.frombuffer(rest[4 * n:], np.float32).reshape(n, c, h, w)
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

labels, images, _ = read("synthetic", "-", "train", 0)
assert hashlib.sha256(labels.astype(np.uint8).tobytes() + images.tobytes()).hexdigest() == FIRST_BYTES

# any shape, class count, size and seed
labels, images, classes = read("synthetic", "-", "train", 0, 3, 33, 30, 300, 900, 5, 7)
assert images.shape == (900, 3, 33, 30) and classes == 300 and (labels == np.arange(900) % 300).all()
more = read("synthetic", "-", "train", 0, 3, 33, 30, 300, 901, 5, 7)
assert more[1][:900].tobytes() == images.tobytes()
assert len(read("synthetic", "-", "test", 0, 3, 33, 30, 300, 900, 5, 7)[0]) == 5
assert read("synthetic", "-", "train", 0, 3, 33, 30, 300, 900, 5, 8)[1].tobytes() != images.tobytes()
assert read("synthetic", "-", "train", 2, 1, 1, 1, 2, 0, 0, 0)[1].shape == (2, 1, 1, 1)
labels, images, classes = read("synthetic", "-", "train", 0, 3, 32, 32, 10, 640, 0, 0)
test_labels, test, _ = read("synthetic", "-", "test", 0, 3, 32, 32, 10, 0, 256, 0)
centres = np.stack([images[labels == k].mean(0).ravel() for k in range(10)])
nearest = ((test.reshape(256, 1, -1) - centres) ** 2).sum(-1).argmin(1)
assert (nearest == test_labels).mean() > 0.99


def not_such(words, *args):
    out = call(*args).decode()
    assert out.startswith("USAGE ") and words in out, out


not_such("images of 4096x4096x2, the limit is 16777216 pixels", "synthetic", "-", "train", 1, 4096, 4096, 2, 0, 0, 0, 0)
not_such("samples, the limit is", "synthetic", "-", "train", 1, 0, 0, 0, 0, 1 << 32, 0, 0)
not_such("height: found 32, the set has 28", "fashion-mnist", "-", "train", 1, 0, 32, 0, 0, 0, 0, 0)
not_such("classes: found 100, the set has 10", "cifar-10", "c", "train", 1, 0, 0, 0, 100, 0, 0, 0)
not_such("only synthetic is made", "cifar-10", "c", "train", 1, 0, 0, 0, 0, 5, 0, 0)
not_such("expected one of fashion-mnist, cifar-10, cifar-100, synthetic", "cifar", "-", "test", 0)

# CIFAR: a few records at the beginning and the end of files of the right size, the rest zeros
os.makedirs("cifar", exist_ok=True)
MEANS = {10: (0.4914, 0.4822, 0.4465), 100: (0.5071, 0.4867, 0.4408)}
STDS = {10: (0.2470, 0.2435, 0.2616), 100: (0.2675, 0.2565, 0.2761)}
FILES = {10: ([f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"], 10000, 10000),
         100: (["train.bin"], ["test.bin"], 50000, 10000)}


def cifar_file(name, classes, count, few, gz=False):
    """Writes `few` random records, zeros, and one more random record; returns what it should read as."""
    head = 1 if classes == 10 else 2
    records = rng.integers(0, 256, (few + 1, head + 3072), np.uint8)
    records[:, :head] = rng.integers(0, 20 if head == 2 else 10, (few + 1, head))
    records[:, head - 1] = rng.integers(0, classes, few + 1)
    size = count * (head + 3072)
    with (gzip.open(f"cifar/{name}.gz", "wb", 1) if gz else open(f"cifar/{name}", "wb")) as f:
        f.write(records[:few].tobytes())
        if gz:
            f.write(bytes(size - records.nbytes))
        else:
            f.truncate(size - head - 3072)
            f.seek(0, 2)
        f.write(records[few].tobytes())
    labels = np.zeros(count, np.int32)
    pixels = np.zeros((count, 3, 32, 32), np.uint8)
    for i, r in zip([*range(few), count - 1], records):
        labels[i] = r[head - 1]
        pixels[i] = r[head:].reshape(3, 32, 32)
    return labels, pixels


def normalised(pixels, classes):
    return np.stack([normalise(pixels[:, c], MEANS[classes][c], STDS[classes][c]) for c in range(3)], 1)


for classes in (10, 100):
    train, test, n_train, n_test = FILES[classes]
    parts = [cifar_file(f, classes, n_train, 3) for f in train]
    want_labels = np.concatenate([p[0] for p in parts])
    limit = 10003 if classes == 10 else 5  # into the second file
    labels, images, k = read(f"cifar-{classes}", "cifar", "train", limit)
    assert k == classes and images.shape == (limit, 3, 32, 32)
    assert (labels == want_labels[:limit]).all()
    want = normalised(np.concatenate([p[1] for p in parts[:2]])[:limit], classes)
    assert (images.view(np.uint32) == want.view(np.uint32)).all()
    if classes == 100:
        os.rename("cifar/train.bin", "cifar/other.bin")
    want_labels, want = cifar_file(test[0], classes, n_test, 4, gz=True)
    labels, images, k = read(f"cifar-{classes}", "cifar", "test", 0)
    assert len(labels) == 10000 and (labels == want_labels).all()
    assert (images[9999] == normalised(want[9999:], classes)[0]).all()
    assert (images[:5] == normalised(want[:5], classes)).all()


def cifar_refused(classes, split, status, offset, *words):
    out = call(f"cifar-{classes}", "cifar", split, 1).decode(errors="replace")
    got = out.split(" ", 2)
    assert got[0] == status and (offset is None or int(got[1]) == offset), out[:300]
    for word in words:
        assert word in got[2], (word, out)


cifar_refused(100, "train", "NOT_FOUND", None, "cifar/train.bin: no such file", "cifar-100-binary.tar.gz")
assert b"no folder given" in call("cifar-10", "-", "train", 0)
os.rename("cifar/other.bin", "cifar/train.bin")
with open("cifar/train.bin", "r+b") as f:
    f.seek(3074 * 40000)
    f.write(b"\x14\x00")
cifar_refused(100, "train", "INVALID", 3074 * 40000, "label 20 of record 40000, expected less than 20")
with open("cifar/train.bin", "r+b") as f:
    f.seek(3074 * 40000)
    f.write(b"\x13\x64")
cifar_refused(100, "train", "INVALID", 3074 * 40000 + 1, "label 100 of record 40000, expected less than 100")
os.truncate("cifar/train.bin", 3074 * 49999)
cifar_refused(100, "train", "INVALID", 3074 * 49999, "truncated: 153696926 bytes, 50000 records of 3074 bytes have")
with open("cifar/data_batch_1.bin", "ab") as f:
    f.write(b"x")
cifar_refused(10, "train", "INVALID", 30730000, "bytes after the end: 30730001 bytes, 10000 records of 3073 bytes")
shutil.rmtree("cifar")

# augmentation: padding with black, a crop of the image's size, then a flip, all from one draw for each sample and epoch


def changed(padding, flip, seed, epoch, n, *shape):
    out = subprocess.run([PROGRAM, "changed", *map(str, (padding, flip, seed, epoch, n, *shape))], stdout=subprocess.PIPE,
                         check=True, timeout=100).stdout
    *lines, rest = out.split(b"\n", n)
    draws = np.array([list(map(int, line.split())) for line in lines])[::-1]
    return draws, np.frombuffer(rest, np.float32).reshape(n, *shape)[::-1]


for padding, flip, shape in ((4, 1, (3, 32, 32)), (4, 0, (1, 28, 28)), (0, 1, (2, 5, 7)), (9, 1, (1, 5, 7)), (0, 0, (1, 4, 4))):
    plain = read("synthetic", "-", "train", 0, *shape, 10, 400, 0, 0)[1]
    draws, images = changed(padding, flip, 5, 3, 400, *shape)
    assert draws[:, :2].max() == 2 * padding and draws[:, :2].min() == 0
    assert draws[:, 2].max() == flip and (not flip or 140 < draws[:, 2].sum() < 260)
    black = normalise(np.zeros(1, np.uint8), 0.5, 0.25)[0]
    padded = np.pad(plain, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=black)
    for i, (row, column, mirrored) in enumerate(draws):
        want = padded[i, :, row:row + shape[1], column:column + shape[2]]
        assert (images[i] == (want[:, :, ::-1] if mirrored else want)).all(), (padding, i)
    again = changed(padding, flip, 5, 3, 399, *shape)  # a sample's draw does not depend on the others
    assert (again[0] == draws[:399]).all()
    if padding:
        assert (changed(padding, flip, 5, 4, 400, *shape)[0] != draws).any()
        assert (changed(padding, flip, 6, 3, 400, *shape)[0] != draws).any()
print("ok")
