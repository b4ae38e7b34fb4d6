# SPDX-License-Identifier: Apache-2.0
"""SGD (Nesterov too), Adam and AdamW against torch.optim of PyTorch 1.13 (foreach=False), step by step,
bit for bit, in every kernel table and number type: with NaN, infinities, subnormals, huge values and
signed zeros planted in parameters, gradients and state, and with step counters that a fault may leave."""
import itertools
import os
import struct
import subprocess
import sys

import numpy as np

try:
    import torch
except ImportError as e:
    print(e)
    sys.exit(77)

torch.set_num_threads(1)
TOOL = os.path.join(os.environ["SDC_BINARY_DIR"], "tests/conform/train/optimizer_tool")
TABLES = [("onednn", np.float32), ("onednn-avx2", np.float32), ("onednn-base", np.float32), ("ref", np.float32),
          ("ref", np.float64)]
STEPS = 5
bad = cases = 0


class Tool:
    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kernels, p, g, m, v, adam, first=0, nesterov=0, decoupled=0, lr=0.0, momentum=0.0, decay=0.0,
            betas=(0.0, 0.0), eps=0.0, step=0.0):
        head = struct.pack("16s6i7d", kernels.encode(), p.dtype == np.float64, adam, first, nesterov, decoupled, p.size,
                           lr, momentum, decay, *betas, eps, step)
        self.process.stdin.write(head + b"".join(a.tobytes() for a in (p, g, m, v)))
        self.process.stdin.flush()
        done, = struct.unpack("i", self.process.stdout.read(4))
        return done, [np.frombuffer(self.process.stdout.read(p.nbytes), p.dtype).copy() for _ in range(3)]


def plants(dtype):
    f = np.finfo(dtype)
    return np.array([np.nan, np.inf, -np.inf, f.tiny / 4, -f.tiny / 8, f.smallest_subnormal, f.max, -f.max, 1e38, -1e38,
                     1e-38, 0.0, -0.0], dtype)


def random(rng, n, dtype, planted):
    x = (rng.standard_normal(n) * np.exp2(rng.integers(-10, 10, n))).astype(dtype)
    if planted and n > 100:
        where = rng.choice(n, n // 8, replace=False)
        x[where] = rng.choice(plants(dtype), where.size)
    return x


def compare(what, names, got, want):
    global bad, cases
    cases += 1
    for name, g, w in zip(names, got, want):
        unsigned = np.uint32 if g.dtype == np.float32 else np.uint64
        differ = (g.view(unsigned) != w.view(unsigned)) & ~(np.isnan(g) & np.isnan(w))
        if differ.any():
            bad += 1
            at = int(np.nonzero(differ)[0][0])
            if bad < 20:
                print(f"{what}: {name}[{at}] is {g[at]!r}, torch has {w[at]!r} ({int(differ.sum())} of {g.size} differ)")


def sgd(tool, kernels, dtype, n, momentum, decay, nesterov, planted):
    rng = np.random.default_rng([n, planted])
    p = random(rng, n, dtype, planted)
    parameter = torch.from_numpy(p.copy()).requires_grad_(True)
    optimizer = torch.optim.SGD([parameter], lr=0.05, momentum=momentum, weight_decay=decay, nesterov=nesterov,
                                foreach=False)
    m, unused = np.zeros(n, dtype), np.zeros(n, dtype)
    for step in range(STEPS):
        g = random(rng, n, dtype, planted)
        parameter.grad = torch.from_numpy(g.copy())
        optimizer.step()
        _, (p, m, _) = tool.ask(kernels, p, g, m, unused, 0, step == 0, nesterov, lr=0.05, momentum=momentum, decay=decay)
        buffer = optimizer.state[parameter].get("momentum_buffer")
        compare(f"{kernels} {dtype.__name__} sgd n {n} momentum {momentum} decay {decay} nesterov {nesterov} step {step}",
                "pm", [p, m], [parameter.detach().numpy(), m if buffer is None else buffer.numpy()])


def adam(tool, kernels, dtype, n, kind, decay, betas, eps, planted, counter=0.0):
    rng = np.random.default_rng([n, planted, 7])
    p = random(rng, n, dtype, planted)
    m = random(rng, n, dtype, planted) if planted else np.zeros(n, dtype)
    v = random(rng, n, dtype, planted) if planted else np.zeros(n, dtype)
    parameter = torch.from_numpy(p.copy()).requires_grad_(True)
    optimizer = kind([parameter], lr=1e-3, betas=betas, eps=eps, weight_decay=decay, foreach=False)
    state = optimizer.state[parameter]
    state["step"] = torch.tensor(counter)
    state["exp_avg"], state["exp_avg_sq"] = torch.from_numpy(m.copy()), torch.from_numpy(v.copy())
    steps = np.float32(counter)
    for step in range(STEPS):
        g = random(rng, n, dtype, planted)
        parameter.grad = torch.from_numpy(g.copy())
        before = parameter.detach().numpy().copy()
        with np.errstate(all="ignore"):
            steps = np.float32(steps + np.float32(1))
        try:
            optimizer.step()
            raised = None
        except (ZeroDivisionError, ValueError, OverflowError) as e:
            raised = e
        done, got = tool.ask(kernels, p, g, m, v, 1, decoupled=kind is torch.optim.AdamW, lr=1e-3, decay=decay,
                             betas=betas, eps=eps, step=float(steps))
        what = (f"{kernels} {dtype.__name__} {kind.__name__} n {n} decay {decay} betas {betas} eps {eps} planted {planted} "
                f"counter {counter} step {step}")
        assert bool(done) == (raised is None), (what, done, raised)
        if raised:
            compare(what, "pmv", got, [before, m, v])
            return
        p, m, v = got
        assert np.float32(state["step"].item()).tobytes() == steps.tobytes() or np.isnan(steps)
        compare(what, "pmv", got, [parameter.detach().numpy(), state["exp_avg"].numpy(), state["exp_avg_sq"].numpy()])


def main():
    tool = Tool()
    for (kernels, dtype), n, planted in itertools.product(TABLES, (1, 7, 1003), (0, 1)):
        for momentum, decay, nesterov in itertools.product((0, 0.9), (0, 5e-4), (False, True)):
            if momentum or not nesterov:
                sgd(tool, kernels, dtype, n, momentum, decay, nesterov, planted)
        for kind, decay in itertools.product((torch.optim.Adam, torch.optim.AdamW), (0, 1e-2)):
            for betas, eps in (((0.9, 0.999), 1e-8), ((0.0, 0.5), 0.0), ((0.8, 0.0), 1e-3)):
                adam(tool, kernels, dtype, n, kind, decay, betas, eps, planted)
    inf = float("inf")
    for kernels, dtype in TABLES:
        for counter in (1000.0, 16777216.0, 3e38, inf, float("nan"), -1.0, -3.0, -0.5, -0.9999999, -3e38, -inf, 1e-40):
            for kind in (torch.optim.Adam, torch.optim.AdamW):
                adam(tool, kernels, dtype, 203, kind, 1e-2, (0.9, 0.999), 1e-8, 1, counter)
                adam(tool, kernels, dtype, 203, kind, 0, (0.0, 0.999), 1e-8, 0, counter)
    tool.process.stdin.close()
    assert tool.process.wait() == 0
    print(f"{cases} steps compared, {bad} differ")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
