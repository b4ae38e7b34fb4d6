#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of bench_train.py: LeNet-5 on Fashion-MNIST under real PyTorch DDP (Gloo), one thread a rank.

Batches are slices of tensors in memory, so that no data loader stands in the way. Prints images per
second over all ranks, timed after the warm-up steps.
"""
import argparse
import gzip
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "conform", "train"))
from torch_model import LeNet5


def idx(path, header):
    with gzip.open(path) as f:
        return np.frombuffer(f.read(), np.uint8, offset=header)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--warm-up", type=int, default=50)
    p.add_argument("--batch", type=int, default=64)
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    images = torch.from_numpy(idx(os.path.join(a.data, "train-images-idx3-ubyte.gz"), 16).copy())
    images = ((images.reshape(-1, 1, 28, 28).float() / 255) - 0.2860) / 0.3530
    labels = torch.from_numpy(idx(os.path.join(a.data, "train-labels-idx1-ubyte.gz"), 8).copy()).long()
    order = torch.randperm(len(labels))[rank::world]
    model = nn.parallel.DistributedDataParallel(LeNet5())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    per_epoch = len(order) // a.batch
    start = None
    for step in range(a.warm_up + a.steps):
        if step == a.warm_up:
            dist.barrier()
            start = time.perf_counter()
        at = step % per_epoch * a.batch
        pick = order[at : at + a.batch]
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images[pick]), labels[pick])
        loss.backward()
        optimizer.step()
    dist.barrier()
    seconds = time.perf_counter() - start
    if rank == 0:
        print(f"{a.steps * a.batch * world / seconds:.1f}")


if __name__ == "__main__":
    main()
