#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the distributed checkpoints of this folder, with real PyTorch (2.9.1, CPU, Gloo):

    python3 -m venv venv && venv/bin/pip install torch==2.9.1 numpy && venv/bin/python generate.py FOLDER

Every element of a tensor is a function of its flat index, so that tests need no second copy:
tensor NAME has value(seed, k) at index k, seed being given in EXPECTED.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

# folder: ranks, {tensor: (seed, shape, type)}
EXPECTED = {
    "single": (1, {"model.weight": (1, (6, 5), "float32"), "model.bias": (2, (5,), "bfloat16"),
                   "model.turned": (3, (4, 7), "float32"), "steps": (4, (), "int64")}),
    "rows": (4, {"w": (5, (10, 6), "float32"), "rep": (6, (3, 3), "float64")}),
    "columns": (2, {"w": (7, (4, 9), "float16"), "turned": (8, (6, 8), "float32")}),
}


def value(seed, shape, dtype):
    n = 1
    for s in shape:
        n *= s
    return (torch.arange(n, dtype=torch.float64) * 0.5 + seed).to(getattr(torch, dtype)).reshape(shape)


def state(name, mesh):
    tensors = {k: value(*v) for k, v in EXPECTED[name][1].items()}
    if name == "single":
        tensors["model.turned"] = value(3, (4, 7), "float32").t().contiguous().t()
        return {"model": {k[6:]: v for k, v in tensors.items() if k[:6] == "model."}, "steps": tensors["steps"],
                "epoch": 3, "note": "text"}
    if name == "rows":
        return {"w": distribute_tensor(tensors["w"], mesh, [Shard(0)]),
                "rep": distribute_tensor(tensors["rep"], mesh, [Replicate()])}
    turned = distribute_tensor(tensors["turned"].t().contiguous(), mesh, [Shard(0)]).t()
    return {"w": distribute_tensor(tensors["w"], mesh, [Shard(1)]), "turned": turned}


def save(rank, name, out):
    ranks = EXPECTED[name][0]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    dcp.save(state(name, mesh), storage_writer=FileSystemWriter(os.path.join(out, name), thread_count=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, (ranks, _) in EXPECTED.items():
        mp.spawn(save, (name, sys.argv[1]), nprocs=ranks)
