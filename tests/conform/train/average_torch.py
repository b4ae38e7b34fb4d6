# SPDX-License-Identifier: Apache-2.0
"""The mean gradient of strategy ddp against real DistributedDataParallel over Gloo, bit for bit: in
2, 3 and 4 processes on this host, for the first step (one bucket in registration order) and the
next two (buckets in ready order). Each rank's gradients are replaced by random ones before DDP
sees them, so that only its own arithmetic is compared. At two ranks horovod gives the same."""
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ImportError as e:
    print(e)
    sys.exit(77)

import torch_model

STEPS = 3
DDP, HOROVOD = 1, 2


def gradients(rank, step):
    rng = np.random.default_rng([rank, step])
    n = sum(p.numel() for p in torch_model.LeNet5().parameters())
    x = rng.standard_normal(n).astype(np.float32)
    return x * np.exp2(rng.integers(-12, 12, n)).astype(np.float32)


def worker(rank, ranks, folder):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                            world_size=ranks)
    model = torch_model.LeNet5()
    planted = {}
    for name, p in model.named_parameters():
        p.register_hook(lambda g, name=name: planted[name].clone())
    ddp = DistributedDataParallel(model)
    for step in range(STEPS):
        x, at = gradients(rank, step), 0
        for name, p in model.named_parameters():
            planted[name] = torch.from_numpy(x[at:at + p.numel()].copy()).reshape(p.shape)
            at += p.numel()
        model.zero_grad(set_to_none=True)
        ddp(torch.zeros(2, 1, 28, 28)).sum().backward()
        mean = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
        np.save(f"{folder}/mean-{step}-{rank}.npy", mean)
    dist.destroy_process_group()


def native(strategy, ranks, step):
    tool = os.path.join(os.environ["SDC_BINARY_DIR"], "tests/conform/train/average_tool")
    data = struct.pack("<3I", strategy, ranks, step)
    data += b"".join(gradients(r, step).tobytes() for r in range(ranks))
    out = subprocess.run([tool], input=data, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    return np.frombuffer(out, np.float32).reshape(ranks, -1)


def main():
    bad = 0
    for ranks in (2, 3, 4):
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, GLOO_SOCKET_IFNAME="lo")
            procs = [subprocess.Popen([sys.executable, __file__, str(r), str(ranks), folder],
                                      env=env) for r in range(ranks)]
            try:
                codes = [p.wait(timeout=100) for p in procs]
            finally:
                for p in procs:
                    p.kill()
            assert codes == [0] * ranks, codes
            for step in range(STEPS):
                ours = native(DDP, ranks, step)
                for r in range(ranks):
                    real = np.load(f"{folder}/mean-{step}-{r}.npy")
                    differing = int((real.view(np.uint32) != ours[r].view(np.uint32)).sum())
                    if differing:
                        print(f"{ranks} ranks, step {step}, rank {r}: {differing} elements differ")
                        bad += 1
                horovod = native(HOROVOD, ranks, step)
                equal = horovod.tobytes() == ours.tobytes()
                assert equal == (ranks == 2), f"{ranks} ranks: horovod equal to ddp: {equal}"
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        worker(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        main()
