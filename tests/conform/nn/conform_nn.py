# SPDX-License-Identifier: Apache-2.0
"""Every kernel of every implementation against PyTorch, with NaN, infinities, subnormals, huge
values and signed zeros planted in every operand: the class of each result must be PyTorch's (NaN,
+Inf, -Inf, finite), finite values within a tolerance, and the bits where a kernel only selects or
is specified to the rounding (ReLU, pooling, SGD, scale, sums of subnormals).

usage: conform_nn.py DRIVER NAME:TYPE...      (such as onednn:f32 ref:f64)
"""
import itertools
import os
import struct
import subprocess
import sys

import numpy as np

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("no torch here", file=sys.stderr)
    sys.exit(77)

torch.set_num_threads(1)

(CONV2D, LINEAR, RELU, MAXPOOL2, RELU_MAXPOOL2, XENT, BATCHNORM, MAXPOOL3, AVGPOOL, DROPOUT,
 SUBSAMPLE, SGD, SCALE, ADD) = range(14)
NAMES = ("conv2d linear relu maxpool2 relu_maxpool2 cross-entropy batchnorm maxpool3 avgpool "
         "dropout subsample sgd scale add").split()
BITWISE = {RELU, MAXPOOL2, RELU_MAXPOOL2, MAXPOOL3, DROPOUT, SUBSAMPLE}
POOLS = {MAXPOOL2, RELU_MAXPOOL2, MAXPOOL3}


class Driver:
    def __init__(self, program, kernels, kind):
        self.kernels, self.dtype = kernels, {"f32": np.float32, "f64": np.float64}[kind]
        self.shapes = SHAPES if kind == "f32" else SHAPES_F64
        self.type = 0 if kind == "f32" else 1
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, op, shape, operands, results, first=0, hyper=(0, 0, 0)):
        fields = [shape.get(k, 0) for k in
                  ("batch", "channels", "height", "width", "out_channels", "kernel", "padding",
                   "stride", "no_bias", "eval")]
        if op == DROPOUT:
            hyper = (shape["drop"], 0, 0)
        head = struct.pack("16s13i3d", self.kernels.encode(), op, self.type, *fields, first, *hyper)
        self.process.stdin.write(head + b"".join(a.tobytes() for a in operands))
        self.process.stdin.flush()
        answers = []
        for like in results:
            data = self.process.stdout.read(like.size * self.dtype().itemsize)
            answers.append(np.frombuffer(data, self.dtype).reshape(like.shape))
        return answers

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit("the driver failed")


def classes(a):
    return np.where(np.isnan(a), 3, np.where(np.isinf(a), np.where(a > 0, 1, 2), 0))


def same_bits(a, b):
    """Equal bits, except that any NaN equals any NaN."""
    unsigned = np.uint32 if a.dtype == np.float32 else np.uint64
    return (a.view(unsigned) == b.view(unsigned)) | (np.isnan(a) & np.isnan(b))


class Report:
    def __init__(self):
        self.n_cases = self.n_values = self.failures = 0

    def compare(self, what, names, got, want, bitwise, scale=1):
        self.n_cases += 1
        for name, g, w in zip(names, got, want):
            self.n_values += g.size
            bad = classes(g) != classes(w)
            if bitwise:
                bad |= ~same_bits(np.ascontiguousarray(g), np.ascontiguousarray(w))
            else:
                fine = np.isfinite(w) & np.isfinite(g)
                # sums of up to 4000 products below 1, each side with its own order
                eps = 1e-4 if g.dtype == np.float32 else 1e-11
                with np.errstate(all="ignore"):
                    far = np.abs(g.astype(np.longdouble) - w) > eps * (scale + np.abs(w).astype(np.longdouble))
                bad |= fine & far
            if bad.any():
                self.failures += 1
                at = tuple(int(i[0]) for i in np.nonzero(bad))
                if self.failures <= 20:
                    print(f"FAIL {what}: {name}{list(at)} is {g[at]!r}, torch has {w[at]!r} "
                          f"({int(bad.sum())} of {g.size} differ)")


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def dropout_noise(s, like):
    """What torch multiplies by, for the driver's stream: seed 7, purpose 12, block 5, trial 3."""
    words = [w for i in range(-(-like.size // 4)) for w in philox((12, 5, 3, i), (7, 0))]
    kept = np.array(words[:like.size]).reshape(like.shape) >= s["drop"] * 2**32
    return torch.from_numpy(kept.astype(like.dtype)) / (1 - s["drop"])


def torch_layer(op, s, x, w, b, dy, labels, run=()):
    """y, dx, dw, db, and running statistics, as PyTorch computes them."""
    tensors = [torch.from_numpy(a.copy()).requires_grad_(True) for a in (x, w, b)]
    tx, tw, tb = tensors
    trun = [torch.from_numpy(a.copy()) for a in run]
    if op == CONV2D:
        y = F.conv2d(tx, tw, None if s.get("no_bias") else tb, padding=s["padding"],
                     stride=s.get("stride", 1))
    elif op == BATCHNORM:
        y = F.batch_norm(tx, *trun, tw, tb, training=not s.get("eval"), momentum=0.1, eps=1e-5)
    elif op == MAXPOOL3:
        y = F.max_pool2d(tx, 3, 2)
    elif op == AVGPOOL:
        y = F.adaptive_avg_pool2d(tx, 1).flatten(1)
    elif op == DROPOUT:
        y = tx if s.get("eval") else tx * dropout_noise(s, x)
    elif op == SUBSAMPLE:
        step, more = s["stride"], (s["out_channels"] - s["channels"]) // 2
        y = F.pad(tx[:, :, ::step, ::step], (0, 0, 0, 0, more, more))
    elif op == LINEAR:
        y = F.linear(tx, tw, tb)
    elif op == RELU:
        y = F.relu(tx)
    elif op == MAXPOOL2:
        y = F.max_pool2d(tx, 2)
    elif op == RELU_MAXPOOL2:
        y = F.max_pool2d(F.relu(tx), 2)
    else:
        y = F.cross_entropy(tx, torch.from_numpy(labels).long()).reshape(1)
    if s.get("eval"):
        return [y.detach().numpy()] + [t.numpy() for t in trun]
    y.backward(torch.from_numpy(dy.copy()))
    zeros = lambda t: t.grad.numpy() if t.grad is not None else np.zeros(t.shape, x.dtype)
    return [y.detach().numpy(), zeros(tx), zeros(tw), zeros(tb)] + [t.numpy() for t in trun]


def operand_shapes(op, s):
    n, c = s["batch"], s["channels"]
    h, w, o, k, p = (s.get(i, 0) for i in ("height", "width", "out_channels", "kernel", "padding"))
    none = (0,)
    if op == CONV2D:
        y = (n, o, *((i + 2 * p - k) // s.get("stride", 1) + 1 for i in (h, w)))
        return (n, c, h, w), (o, c, k, k), (0,) if s.get("no_bias") else (o,), y
    if op == LINEAR:
        return (n, c), (o, c), (o,), (n, o)
    if op == XENT:
        return (n, c), none, none, (1,)
    x = (n, c, h, w)
    if op == BATCHNORM:
        return x, (c,), (c,), x
    if op == AVGPOOL:
        return x, none, none, (n, c)
    if op == SUBSAMPLE:
        return x, none, none, (n, o, -(-h // s["stride"]), -(-w // s["stride"]))
    if op == MAXPOOL3:
        return x, none, none, (n, c, (h - 3) // 2 + 1, (w - 3) // 2 + 1)
    return x, none, none, (n, c, h // 2, w // 2) if op in POOLS else x


SHAPES = {
    CONV2D: [
        dict(batch=5, channels=1, height=28, width=28, out_channels=6, kernel=5, padding=2),
        dict(batch=17, channels=6, height=14, width=14, out_channels=16, kernel=5, padding=0),
        dict(batch=3, channels=3, height=7, width=5, out_channels=7, kernel=3, padding=1),
        dict(batch=2, channels=5, height=4, width=3, out_channels=3, kernel=1, padding=0),
        dict(batch=2, channels=2, height=6, width=7, out_channels=2, kernel=3, padding=2),
        dict(batch=1, channels=2, height=6, width=6, out_channels=3, kernel=5, padding=4),
        dict(batch=3, channels=3, height=9, width=8, out_channels=16, kernel=3, padding=1, no_bias=1),
        dict(batch=4, channels=16, height=8, width=8, out_channels=16, kernel=3, padding=1, no_bias=1),
        dict(batch=3, channels=16, height=9, width=8, out_channels=32, kernel=3, padding=1, stride=2,
             no_bias=1),
        dict(batch=3, channels=20, height=7, width=8, out_channels=40, kernel=1, padding=0, stride=2,
             no_bias=1),
        dict(batch=2, channels=32, height=5, width=6, out_channels=64, kernel=1, padding=0, no_bias=1),
        dict(batch=2, channels=3, height=16, width=16, out_channels=20, kernel=5, padding=2, stride=2),
        dict(batch=2, channels=17, height=7, width=7, out_channels=19, kernel=5, padding=2),
    ],
    LINEAR: [
        dict(batch=5, channels=400, out_channels=120),
        dict(batch=64, channels=84, out_channels=10),
        dict(batch=1, channels=3, out_channels=2),
    ],
    RELU: [dict(batch=3, channels=84, height=1, width=1), dict(batch=2, channels=3, height=5, width=7)],
    MAXPOOL2: [
        dict(batch=5, channels=6, height=28, width=28),
        dict(batch=17, channels=2, height=5, width=7),
        dict(batch=1, channels=1, height=2, width=2),
    ],
    MAXPOOL3: [
        dict(batch=5, channels=6, height=15, width=15),
        dict(batch=17, channels=2, height=6, width=8),
        dict(batch=1, channels=1, height=3, width=4),
    ],
    BATCHNORM: [
        dict(batch=4, channels=5, height=7, width=6),
        dict(batch=3, channels=17, height=1, width=1),
        dict(batch=2, channels=2, height=8, width=8),
        dict(batch=3, channels=4, height=5, width=5, eval=1),
    ],
    AVGPOOL: [dict(batch=3, channels=5, height=8, width=8), dict(batch=2, channels=3, height=1, width=3)],
    DROPOUT: [
        dict(batch=3, channels=33, height=1, width=1, drop=0.5),
        dict(batch=2, channels=3, height=5, width=7, drop=0.2),
        dict(batch=2, channels=3, height=5, width=1, drop=0.2, eval=1),
    ],
    SUBSAMPLE: [
        dict(batch=2, channels=4, height=8, width=8, out_channels=8, stride=2),
        dict(batch=2, channels=3, height=7, width=5, out_channels=3, stride=2),
        dict(batch=1, channels=2, height=3, width=3, out_channels=6, stride=1),
    ],
    XENT: [dict(batch=64, channels=10), dict(batch=3, channels=2), dict(batch=1, channels=17)],
}
SHAPES[RELU_MAXPOOL2] = SHAPES[MAXPOOL2]

# With padding, PyTorch multiplies weights by the zeros of the padding (so that a NaN reaches more
# results) in f64, and in f32 for a single image with a kernel up to 3 and for images smaller than
# the kernel needs. The kernels here go by its ordinary f32 path, which skips them.
SHAPES_F64 = {**SHAPES, CONV2D: [s for s in SHAPES[CONV2D] if s["padding"] == 0]}

NAN, INF = float("nan"), float("inf")


def plants(dtype):
    if dtype == np.float32:
        return [NAN, INF, -INF, 1e-40, -1e-40, 1e38, -1e38, 3.4e38, -0.0, 0.0]
    return [NAN, INF, -INF, 1e-310, -1e-310, 1e308, -1e308, 1.7e308, -0.0, 0.0]


def places(rng, size):
    """Corners of the flat array, its middle, and two more."""
    return sorted({0, size - 1, size // 2, *(int(i) for i in rng.integers(0, size, 2))})


def running(op, s, dtype):
    if op != BATCHNORM:
        return []
    rng = np.random.default_rng(s["channels"])
    return [rng.uniform(low, 2, s["channels"]).astype(dtype) for low in (-2, 0.1)]


def fresh(rng, op, s, dtype):
    operands = [rng.uniform(-1, 1, shape).astype(dtype) for shape in operand_shapes(op, s)]
    labels = rng.integers(0, s["channels"], s["batch"]).astype(np.int32)
    return operands, labels


def check_layer(driver, report, what, op, s, operands, labels, bitwise, scale=1, run=None):
    x, w, b, dy = operands
    run = running(op, s, driver.dtype) if run is None else run
    want = torch_layer(op, s, x, w, b, dy, labels, run)
    asked = [x, w, b, dy] + ([labels] if op == XENT else []) + list(run)
    got = driver.ask(op, s, asked, want)
    names = ("y",) if s.get("eval") else ("y", "dx", "dw", "db")
    report.compare(f"{driver.kernels} {NAMES[op]} {s}, {what}",
                   names + ("run_mean", "run_var")[:len(run)], got, want, bitwise, scale)


def size_of(op, value):
    """What a difference of values so large rounds like."""
    return max(1, abs(value)) if op == BATCHNORM and np.isfinite(value) else 1


def layers(driver, report):
    rng = np.random.default_rng(7)
    for op in driver.shapes:
        for s in driver.shapes[op]:
            operands, labels = fresh(rng, op, s, driver.dtype)
            check_layer(driver, report, "plain", op, s, operands, labels, op in BITWISE)
            for which, name in enumerate(("x", "w", "b", "dy")):
                if operands[which].size == 0:
                    continue
                for value, at in itertools.product(plants(driver.dtype),
                                                   places(rng, operands[which].size)):
                    hit = [a.copy() for a in operands]
                    hit[which].reshape(-1)[at] = value
                    check_layer(driver, report, f"{value} at {name}[{at}]", op, s, hit, labels,
                                op in BITWISE, size_of(op, value))
                for value in plants(driver.dtype):  # everywhere at once, and at random places
                    for share in (1.0, 0.3):
                        hit = [a.copy() for a in operands]
                        where = rng.uniform(size=hit[which].shape) < share
                        sums = op in (CONV2D, LINEAR, AVGPOOL) or (op == BATCHNORM and name in ("x", "dy"))
                        if abs(value) >= 1e37 and np.isfinite(value) and sums:
                            continue  # whether such a sum overflows depends on its order
                        hit[which][where] = value
                        check_layer(driver, report, f"{value} at {share} of {name}", op, s, hit,
                                    labels, op in BITWISE, size_of(op, value))


def mixed(driver, report):
    """Several special values in one tensor: ties and contests in poolings, zeros in ReLUs, rows of
    logits of one kind."""
    rng = np.random.default_rng(8)
    few = np.array(plants(driver.dtype)[:3] + [-1e-40, -1.0, 1.0, 2.0, -0.0, 0.0], driver.dtype)
    for op in (RELU, MAXPOOL2, RELU_MAXPOOL2, XENT, MAXPOOL3, DROPOUT, SUBSAMPLE):
        for s in driver.shapes[op]:
            for subset in ([0, 3, 5], [7, 8], [4, 7, 8], [2, 4], [5, 6], [0, 1], range(9)):
                operands, labels = fresh(rng, op, s, driver.dtype)
                operands[0] = rng.choice(few[list(subset)], operands[0].shape)
                check_layer(driver, report, f"x of {few[list(subset)]}", op, s, operands, labels,
                            op in BITWISE)
                if op != XENT:
                    operands[3] = rng.choice(few, operands[3].shape)
                    check_layer(driver, report, f"x of {few[list(subset)]}, dy mixed", op, s,
                                operands, labels, True)


def statistics(driver, report):
    """Special values in the running statistics, and batches far from zero."""
    rng = np.random.default_rng(13)
    for s in driver.shapes[BATCHNORM]:
        operands, labels = fresh(rng, BATCHNORM, s, driver.dtype)
        for which, value in itertools.product((0, 1), plants(driver.dtype) + [-1.0, -1e-5]):
            run = running(BATCHNORM, s, driver.dtype)
            run[which][0] = value
            check_layer(driver, report, f"{value} in running statistic {which}", BATCHNORM, s,
                        operands, labels, False, run=run)
        far = [a.copy() for a in operands]
        far[0] += 100
        check_layer(driver, report, "far from zero", BATCHNORM, s, far, labels, False, 100)
        same = [a.copy() for a in operands]
        same[0][:] = 3
        check_layer(driver, report, "all equal", BATCHNORM, s, same, labels, False, 1000)


def pairs(driver, report):
    """Zero and infinity, infinity and infinity, in two operands at once."""
    rng = np.random.default_rng(9)
    values = plants(driver.dtype)
    huge = values[5]
    for op in (CONV2D, LINEAR):
        for s in driver.shapes[op][:3]:
            for i, j in ((0, 1), (0, 3), (1, 3)):
                for u, v in itertools.product(values[:3] + [0.0, huge], repeat=2):
                    operands, labels = fresh(rng, op, s, driver.dtype)
                    for which, value in ((i, u), (j, v)):
                        flat = operands[which].reshape(-1)
                        flat[rng.integers(0, flat.size, 3)] = value
                    check_layer(driver, report, f"{u} and {v} in operands {i}, {j}", op, s,
                                operands, labels, False, huge if huge in (u, v) else 1)


def subnormals(driver, report):
    """Sums of subnormals times powers of two have no rounding: any order must give these bits."""
    rng = np.random.default_rng(10)
    tiny = np.float32(1e-45) if driver.dtype == np.float32 else np.float64(5e-324)
    for op in (CONV2D, LINEAR):
        for s in driver.shapes[op]:
            for small in (0, 1, 3):
                operands, labels = fresh(rng, op, s, driver.dtype)
                for which in (0, 1, 3):
                    shape = operands[which].shape
                    operands[which] = rng.choice(np.array([-2, 1, 0], driver.dtype), shape)
                operands[small] = (rng.integers(-50, 50, operands[small].shape) * tiny).astype(
                    driver.dtype)
                operands[2] *= 0
                x, w, b, dy = operands
                want = torch_layer(op, s, x, w, b, dy, labels)
                got = driver.ask(op, s, [x, w, b, dy], want)
                # a zero sum may have either sign
                got, want = [g + driver.dtype(0) for g in got], [t + driver.dtype(0) for t in want]
                report.compare(f"{driver.kernels} {NAMES[op]} {s}, subnormal operand {small}",
                               ("y", "dx", "dw", "db"), got, want, True)


def updates(driver, report):
    rng = np.random.default_rng(11)
    special = np.array(plants(driver.dtype), driver.dtype)
    for n, momentum, decay in itertools.product((1, 7, 1003), (0, 0.9), (0, 5e-4)):
        p0 = rng.standard_normal(n).astype(driver.dtype)
        if n > 100:
            p0[:100:3] = rng.choice(special, 34)
        parameter = torch.from_numpy(p0.copy()).requires_grad_(True)
        optimizer = torch.optim.SGD([parameter], lr=0.05, momentum=momentum, weight_decay=decay)
        p, m = p0.copy(), np.zeros(n, driver.dtype)
        for step in range(4):
            g = rng.standard_normal(n).astype(driver.dtype)
            if n > 100 and step == 1:
                g[500:700:7] = rng.choice(special, 29)
            parameter.grad = torch.from_numpy(g.copy())
            optimizer.step()
            p, m = driver.ask(SGD, dict(batch=n), [p, g, m], [p, m], first=step == 0,
                              hyper=(0.05, momentum, decay))
            want_m = optimizer.state[parameter].get("momentum_buffer") if momentum else None
            want = [parameter.detach().numpy().copy(), m if want_m is None else want_m.numpy().copy()]
            report.compare(f"{driver.kernels} sgd n {n} momentum {momentum} decay {decay} step {step}",
                           ("p", "m"), [p, m], want, True)
    for n in (1, 19, 1003):
        a, b = (rng.choice(np.concatenate([special, rng.standard_normal(9).astype(driver.dtype)]), n)
                for _ in range(2))
        got, = driver.ask(ADD, dict(batch=n), [a, b], [a])
        want = (torch.from_numpy(a.copy()) + torch.from_numpy(b.copy())).numpy()
        report.compare(f"{driver.kernels} add {n}", ("y",), [got], [want], True)
    for factor in (0.5, 1 / 3, 1.0, 0.0, INF, NAN):
        x = np.concatenate([special, rng.standard_normal(101).astype(driver.dtype)])
        want = (torch.from_numpy(x.copy()) * factor).numpy()
        got, = driver.ask(SCALE, dict(batch=x.size), [x], [x], hyper=(factor, 0, 0))
        report.compare(f"{driver.kernels} scale by {factor}", ("x",), [got], [want], True)


def ordered_conv(s, x, w, b, dy):
    """The convolution of "ref" in the order that it promises, each operation rounded once."""
    k, p, zero = s["kernel"], s["padding"], x.dtype.type(0)
    h, v, t = s["height"], s["width"], s.get("stride", 1)
    y = np.zeros(dy.shape, x.dtype)
    if b.size:
        y += b[None, :, None, None]
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    oh, ow = dy.shape[2:]
    def taps(i, size, out):
        """Places of the result whose tap i lies inside, and where it lies."""
        first, end = -(-max(p - i, 0) // t), min(-(-(size + p - i) // t), out)
        return slice(first, end), slice(first * t + i - p, (end - 1) * t + i - p + 1, t)

    for o, c, i, j in np.ndindex(w.shape):
        (rows, seen_rows), (cols, seen_cols) = taps(i, h, oh), taps(j, v, ow)
        y[:, o, rows, cols] += w[o, c, i, j] * x[:, c, seen_rows, seen_cols]
        columns = np.zeros(cols.stop - cols.start, x.dtype)
        products = dy[:, o, rows, cols] * x[:, c, seen_rows, seen_cols]
        for row in products.reshape(-1, columns.size):
            columns += row
        dw[o, c, i, j] = np.add.accumulate(columns)[-1]
    for c, o, i, j in np.ndindex(w.shape[1], w.shape[0], k, k):
        (rows, seen_rows), (cols, seen_cols) = taps(i, h, oh), taps(j, v, ow)
        dx[:, c, seen_rows, seen_cols] += w[o, c, i, j] * dy[:, o, rows, cols]
    if not b.size:
        return y, dx, dw, b
    columns = np.zeros((w.shape[0], ow), x.dtype)
    for image in dy:
        for i in range(oh):
            columns += image[:, i]
    return y, dx, dw, np.add.accumulate(columns, axis=1)[:, -1] + zero


def ordered_linear(x, w, b, dy):
    parts = np.zeros((x.shape[0], w.shape[0], 16), x.dtype)
    for i in range(x.shape[1]):
        parts[:, :, i % 16] += x[:, None, i] * w[None, :, i]
    y = np.add.accumulate(parts, axis=2)[:, :, -1] + b
    dx, dw, db = np.zeros_like(x), np.zeros_like(w), np.zeros_like(b)
    for n in range(x.shape[0]):
        dw += dy[n][:, None] * x[n][None, :]
        db += dy[n]
    for o in range(w.shape[0]):
        dx += dy[:, o][:, None] * w[o][None, :]
    return y, dx, dw, db


def orders(driver, report):
    """ "ref" has the bits of its documented order of operations, as NumPy computes them."""
    if driver.kernels != "ref":
        return
    rng = np.random.default_rng(12)
    for op in (CONV2D, LINEAR):
        for s in SHAPES[op]:
            (x, w, b, dy), _ = fresh(rng, op, s, driver.dtype)
            want = ordered_linear(x, w, b, dy) if op == LINEAR else ordered_conv(s, x, w, b, dy)
            got = driver.ask(op, s, [x, w, b, dy], want)
            report.compare(f"ref {NAMES[op]} {s} in its order", ("y", "dx", "dw", "db"), got, want, True)


def main():
    failed = False
    only = os.environ.get("CONFORM_NN_ONLY")  # names of layers, while working on one
    for spec in sys.argv[2:]:
        driver = Driver(sys.argv[1], *spec.split(":"))
        report = Report()
        if only:
            driver.shapes = {op: driver.shapes[op] if NAMES[op] in only.split() else [] for op in driver.shapes}
        for suite in (layers, mixed, statistics, pairs, subnormals, updates, orders):
            suite(driver, report)
        driver.close()
        print(f"{spec}: {report.n_cases} cases, {report.n_values} values, {report.failures} failures")
        failed |= report.failures > 0 or report.n_cases < 1000
    sys.exit(failed)


main()
