#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images per second of one training step on one thread, without data or communication: our kernels
(bench_nn) against PyTorch. The two take turns; medians over the rounds and their ratio are printed.

usage: bench_nn.py [ROUNDS]
"""
import os
import re
import statistics
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import torch  # noqa: E402  (reads the environment)
import torch.nn.functional as F  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build/release/bench/bench_nn")
BATCH = 64


class LeNet5(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = torch.nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = (torch.nn.Linear(*n) for n in ((400, 120), (120, 84), (84, 10)))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (torch.nn.Linear(*n) for n in ((784, 256), (256, 128), (128, 10)))

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def torch_speed(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.rand(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(20):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        best = min(best, time.perf_counter() - start)
    return BATCH * 20 / best


def our_speed(kernels, model):
    out = subprocess.run([PROGRAM, kernels, model, str(BATCH)], check=True, capture_output=True, text=True,
                         timeout=120).stdout
    return float(re.search(r"(\d+) images/s", out).group(1))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    torch.set_num_threads(1)
    for name, model in (("lenet5", LeNet5()), ("mlp", Mlp())):
        speeds = {"torch": [], "onednn": [], "ref": []}
        for _ in range(rounds):
            speeds["torch"].append(torch_speed(model))
            for kernels in ("onednn", "ref"):
                speeds[kernels].append(our_speed(kernels, name))
        peer = statistics.median(speeds["torch"])
        print(f"{name}, batch {BATCH}, one thread: PyTorch {torch.__version__} {peer:.0f} images/s")
        for kernels in ("onednn", "ref"):
            ours = statistics.median(speeds[kernels])
            print(f"  {kernels}: {ours:.0f} images/s, {ours / peer:.2f} times PyTorch")


main()
