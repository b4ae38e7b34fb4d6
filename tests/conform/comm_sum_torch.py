# SPDX-License-Identifier: Apache-2.0
"""The ring sum against what real Gloo computes under torch.distributed, in 2, 3 and 4 processes on
this host, bit for bit."""
import os
import subprocess
import sys
import tempfile

import numpy as np

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

import comm_sum_model as model

LENGTHS = (1, 2, 5, 64, 1000, 61706, 600_001)
TYPES = (np.float32, np.float64, np.float16)


def worker(rank, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                            world_size=ranks)
    for t in range(len(TYPES)):
        for n in LENGTHS:
            x = torch.from_numpy(np.load(f"{folder}/in-{t}-{n}.npy")[rank].copy())
            dist.all_reduce(x)
            np.save(f"{folder}/out-{t}-{n}-{rank}.npy", x.numpy())
    dist.destroy_process_group()


def main():
    rng = np.random.default_rng(2)
    cases, expected, names = [], [], []
    for ranks in (2, 3, 4):
        with tempfile.TemporaryDirectory() as folder:
            xs = {(t, n): model.inputs(rng, ranks, n, dtype) for t, dtype in enumerate(TYPES) for n in LENGTHS}
            for (t, n), x in xs.items():
                np.save(f"{folder}/in-{t}-{n}.npy", x)
            env = dict(os.environ, GLOO_SOCKET_IFNAME="lo")
            procs = [subprocess.Popen([sys.executable, __file__, str(r), str(ranks), folder],
                                      env=env) for r in range(ranks)]
            try:
                codes = [p.wait(timeout=100) for p in procs]
            finally:
                for p in procs:
                    p.kill()
            assert codes == [0] * ranks, codes
            for (t, n), x in xs.items():
                outs = [np.load(f"{folder}/out-{t}-{n}-{r}.npy") for r in range(ranks)]
                assert all(o.tobytes() == outs[0].tobytes() for o in outs)
                cases.append((model.GLOO, x))
                expected.append(outs[0])
                names.append(f"Gloo of {x.dtype}, {ranks} ranks, {n} elements")
    sys.exit(1 if model.check(cases, expected, names) else 0)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        worker(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        main()
