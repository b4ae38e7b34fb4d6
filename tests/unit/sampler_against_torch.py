# SPDX-License-Identifier: Apache-2.0
"""Index lists against PyTorch's own DistributedSampler and DataLoader, given the same permutations."""
import subprocess
import sys

import torch
from torch.utils.data import DataLoader, DistributedSampler

PROGRAM = sys.argv[1]


def order(n, ranks, batch, seed, steps, drop_last=False, in_order=False):
    args = (n, ranks, batch, seed, steps, int(drop_last), int(in_order))
    out = subprocess.run([PROGRAM, "order", *map(str, args)], stdout=subprocess.PIPE, check=True,
                         timeout=60).stdout.decode().splitlines()
    rows = [list(map(int, line.split())) for line in out]
    return [rows[s * ranks:(s + 1) * ranks] for s in range(steps)]


real_randperm = torch.randperm
CASES = [(12, 1, 4), (12, 2, 3), (13, 2, 3), (13, 3, 2), (10, 4, 3), (11, 4, 1), (3, 4, 1), (2, 8, 1),
         (100, 3, 7), (101, 4, 25), (1, 1, 1), (5, 64, 1), (1000, 7, 13)]
for n, ranks, batch, drop_last, in_order in [(*c, d, o) for c in CASES for d in (False, True) for o in (False, True)]:
    per_epoch = (n // ranks if drop_last else -(-n // ranks)) // batch
    if per_epoch == 0:
        continue
    seed = n * 1000 + ranks
    rows = order(n, 1, 1, seed, 2 * n, in_order=in_order)
    permutations = [[r[0][0] for r in rows[e * n:(e + 1) * n]] for e in range(2)]
    for p in permutations:
        assert sorted(p) == list(range(n))
    assert n < 10 or (permutations[0] == permutations[1]) == in_order
    got = order(n, ranks, batch, seed, 2 * per_epoch, drop_last, in_order)
    for rank in range(ranks):
        for epoch in range(2):
            torch.randperm = lambda size, generator=None, e=epoch: torch.tensor(permutations[e])
            sampler = DistributedSampler(range(n), num_replicas=ranks, rank=rank, shuffle=not in_order,
                                         drop_last=drop_last)
            sampler.set_epoch(epoch)
            loader = DataLoader(range(n), batch_size=batch, sampler=sampler, drop_last=True)
            want = [b.tolist() for b in loader]
            torch.randperm = real_randperm
            assert len(want) == per_epoch, (n, ranks, batch, len(want), per_epoch)
            assert want == [got[epoch * per_epoch + s][rank] for s in range(per_epoch)], (n, ranks, batch, rank)

out = subprocess.run([PROGRAM, "order", "10", "4", "4", "1", "1", "0", "0"], stdout=subprocess.PIPE, check=True).stdout.decode()
assert out.startswith("INVALID") and "10 samples is too small for one step of 4 ranks with batches of 4" in out, out
print("ok")
