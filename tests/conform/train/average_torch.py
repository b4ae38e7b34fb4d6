# SPDX-License-Identifier: Apache-2.0
"""The mean gradient of strategy ddp against real DistributedDataParallel over Gloo, bit for bit: in
2, 3 and 4 processes on this host, for the first step (one bucket in registration order) and the
next two (buckets in ready order), plain, with small buckets, with gradients as bucket views and with
the fp16 hook. Each rank's gradients are replaced by random ones before DDP sees them, so that only
its own arithmetic is compared. And of strategy horovod: at two ranks the same as ddp; its fp16
compression against a model of it in NumPy."""
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel
except ImportError as e:
    print(e)
    sys.exit(77)

import torch_model

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import comm_sum_model

STEPS = 3
DDP, HOROVOD = 1, 2
FIRST, OTHERS = 1 << 20, 25 << 20  # bytes; DDP's own caps
VARIANTS = {"plain": {}, "buckets": {"first": 8192, "others": 100 * 1024}, "view": {"view": 1}, "fp16": {"fp16": 1}}


def gradients(rank, step, scale=12):
    rng = np.random.default_rng([rank, step])
    n = sum(p.numel() for p in torch_model.LeNet5().parameters())
    x = rng.standard_normal(n).astype(np.float32)
    return x * np.exp2(rng.integers(-scale, scale, n)).astype(np.float32)


def worker(rank, ranks, folder):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                            world_size=ranks)
    for variant, options in VARIANTS.items():
        train(rank, f"{folder}/{variant}", **options)
    dist.destroy_process_group()


def train(rank, prefix, first=FIRST, others=OTHERS, view=0, fp16=0):
    model = torch_model.LeNet5()
    planted = {}
    for name, p in model.named_parameters():
        p.register_hook(lambda g, name=name: planted[name].clone())
    dist._DEFAULT_FIRST_BUCKET_BYTES = first
    ddp = DistributedDataParallel(model, bucket_cap_mb=others / 2**20, gradient_as_bucket_view=bool(view))
    if fp16:
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    for step in range(STEPS):
        x, at = gradients(rank, step), 0
        for name, p in model.named_parameters():
            planted[name] = torch.from_numpy(x[at:at + p.numel()].copy()).reshape(p.shape)
            at += p.numel()
        model.zero_grad(set_to_none=not view)
        ddp(torch.zeros(2, 1, 28, 28)).sum().backward()
        mean = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
        np.save(f"{prefix}-{step}-{rank}.npy", mean)


def native(strategy, ranks, step, first=FIRST, others=OTHERS, view=0, fp16=0, timed=0, seed=0):
    tool = os.path.join(os.environ["SDC_BINARY_DIR"], "tests/conform/train/average_tool")
    data = struct.pack("<9I", strategy, ranks, step, fp16, view, first, others, timed, seed)
    data += b"".join(gradients(r, step).tobytes() for r in range(ranks))
    out = subprocess.run([tool], input=data, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    return np.frombuffer(out, np.float32).reshape(ranks, -1)


def differing(a, b):
    return int((a.view(np.uint32) != b.view(np.uint32)).sum())


def check_ddp(ranks, folder):
    """Number of failures; the variants must also differ, or they would show nothing."""
    bad, seen = 0, {}
    for variant, options in VARIANTS.items():
        for step in range(STEPS):
            ours = native(DDP, ranks, step, **options)
            seen.setdefault(step, {})[variant] = ours.tobytes()
            for r in range(ranks):
                real = np.load(f"{folder}/{variant}-{step}-{r}.npy")
                if differing(real, ours[r]):
                    print(f"{variant}: {ranks} ranks, step {step}, rank {r}: {differing(real, ours[r])} elements differ")
                    bad += 1
    assert seen[1]["fp16"] != seen[1]["plain"]
    assert (seen[1]["view"] != seen[1]["plain"]) == (ranks == 3) and seen[0]["view"] == seen[0]["plain"]
    assert (seen[1]["buckets"] != seen[1]["plain"]) == (ranks > 2) and seen[0]["buckets"] == seen[0]["plain"]
    return bad


def horovod_fp16(ranks, step):
    """Compressed, in the order in which gradients get ready, summed in F16 as Open MPI does at this
    size, multiplied in F32, rounded to F16, decompressed."""
    shapes = [p.numel() for p in torch_model.LeNet5().parameters()]
    starts = np.concatenate([[0], np.cumsum(shapes)])
    ready = [9, 8, 7, 6, 5, 4, 2, 3, 0, 1]  # a linear's bias first, a convolution's weight first
    order = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in ready])
    with np.errstate(over="ignore"):
        x = np.stack([gradients(r, step)[order].astype(np.float16) for r in range(ranks)])
        total = (comm_sum_model.rabenseifner if ranks == 4 else comm_sum_model.even_ring)(x)
        scaled = (total.astype(np.float32) * np.float32(1 / ranks)).astype(np.float16)
    out = np.empty(order.size, np.float32)
    out[order] = scaled
    return out


def check_horovod(ranks):
    for step in range(STEPS):
        ours, ddp = native(HOROVOD, ranks, step), native(DDP, ranks, step)
        equal = ours.tobytes() == ddp.tobytes()
        assert equal == (ranks == 2), f"{ranks} ranks: horovod equal to ddp: {equal}"
        timed = [native(HOROVOD, ranks, step, timed=1, seed=s) for s in (1, 1, 2)]
        assert timed[0].tobytes() == timed[1].tobytes()
        for t in (timed[0], timed[2]):
            assert all(differing(t[r], t[0]) == 0 for r in range(ranks))
            # with two or four ranks Open MPI adds in the same pairs whatever the size
            assert (differing(t, ours) > 0) == (ranks == 3), "another grouping sums in another order"
        fp16 = native(HOROVOD, ranks, step, fp16=1)
        for r in range(ranks):
            assert differing(fp16[r], horovod_fp16(ranks, step)) == 0, f"horovod, fp16, {ranks} ranks, rank {r}"


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
            bad += check_ddp(ranks, folder)
        check_horovod(ranks)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        worker(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        main()
