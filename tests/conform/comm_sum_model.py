# SPDX-License-Identifier: Apache-2.0
"""Sums over ranks against step-by-step NumPy simulations of the message exchanges of Gloo's ring
and of Open MPI 4.1.4's algorithms, bit for bit. The simulations move blocks between ranks as the
libraries' sources do; they share nothing with the C code but the names of the algorithms."""
import os
import struct
import subprocess
import sys

import numpy as np

GLOO, RECDBL, RING, SEGRING, RABENSEIFNER, CHOICE = 0, 1, 2, 3, 4, 255


def gloo_add(own, received):
    """gloo/types.h, float16::operator=: a sum that equals the old bits as a number is not stored."""
    total = own + received
    if own.dtype != np.float16:
        return total
    return np.where(total == own.view(np.uint16).astype(np.float16), own, total)


def gloo_ring(x):
    """gloo/allreduce.cc ring(): segments sent rank -> rank - 1, reduced on arrival."""
    n_ranks, n = x.shape
    size = x.itemsize
    total = n * size
    max_segment = size * max(1, 1024 * 1024 // size)

    def round_up(v, m):
        return (v + m - 1) // m * m

    n_segments = round_up(max((total + max_segment - 1) // max_segment, n_ranks * 2), n_ranks)
    per_rank = n_segments // n_ranks
    segment = round_up((total + n_segments - 1) // n_segments, size) // size
    work = x.copy()

    def segment_range(i):
        return min(n, i * segment), min(n, (i + 1) * segment)

    # reduce-scatter: in round i rank r gets from its right neighbour and adds to its own
    for i in range(1, n_ranks):
        new = work.copy()
        for r in range(n_ranks):
            chunk = (r + 1 + i) % n_ranks  # the chunk that arrives at r in this round
            sender = (r + 1) % n_ranks
            for s in range(chunk * per_rank, (chunk + 1) * per_rank):
                a, b = segment_range(s)
                new[r, a:b] = gloo_add(work[r, a:b], work[sender, a:b])
        work = new
    # after the last round rank r holds the finished chunk r
    out = np.empty(n, x.dtype)
    for r in range(n_ranks):
        chunk = r
        for s in range(chunk * per_rank, (chunk + 1) * per_rank):
            a, b = segment_range(s)
            out[a:b] = work[r, a:b]
    return out


def recursive_doubling(x):
    """ompi_coll_base_allreduce_intra_recursivedoubling; returns rank 0's vector, checks all."""
    n_ranks, n = x.shape
    adj = 1
    while adj * 2 <= n_ranks:
        adj *= 2
    extra = n_ranks - adj
    work = [v.copy() for v in x]
    new_rank = {}
    for r in range(n_ranks):
        if r < 2 * extra:
            if r % 2 == 1:
                work[r] = x[r - 1] + x[r]
                new_rank[r] = r >> 1
        else:
            new_rank[r] = r - extra
    distance = 1
    while distance < adj:
        new = list(work)
        for r, nr in new_rank.items():
            other = nr ^ distance
            remote = other * 2 + 1 if other < extra else other + extra
            new[r] = work[r] + work[remote] if r < remote else work[remote] + work[r]
        work = new
        distance *= 2
    first = work[next(iter(new_rank))]
    for r in new_rank:
        assert first.tobytes() == work[r].tobytes()
    return first


def even_ring(x):
    """ompi_coll_base_allreduce_intra_ring: block k goes from rank k upwards."""
    n_ranks, n = x.shape
    counts = [n // n_ranks + (1 if b < n % n_ranks else 0) for b in range(n_ranks)]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(int)
    work = x.copy()
    # rank r first sends block r to r + 1; then passes on what it got and added to
    for step in range(n_ranks - 1):
        new = work.copy()
        for r in range(n_ranks):
            b = (r - 1 - step) % n_ranks
            sl = slice(offsets[b], offsets[b + 1])
            new[r, sl] = work[(r - 1) % n_ranks, sl] + work[r, sl]
        work = new
    out = np.empty(n, x.dtype)
    for r in range(n_ranks):
        b = (r + 1) % n_ranks
        out[offsets[b]:offsets[b + 1]] = work[r, offsets[b]:offsets[b + 1]]
    return out


def rabenseifner(x):
    """ompi_coll_base_allreduce_intra_redscat_allgather: halving with windows, then gathered."""
    n_ranks, n = x.shape
    pof2 = 1
    while pof2 * 2 <= n_ranks:
        pof2 *= 2
    rem = n_ranks - pof2
    work = [v.copy() for v in x]
    left = n // 2
    for r in range(0, 2 * rem, 2):
        joined = np.empty(n, x.dtype)
        joined[:left] = work[r][:left] + work[r + 1][:left]
        joined[left:] = work[r + 1][left:] + work[r][left:]
        work[r] = joined
    real = [2 * v if v < rem else v + rem for v in range(pof2)]
    window = [(0, n)] * pof2
    vec = [work[real[v]].copy() for v in range(pof2)]
    mask = 1
    while mask < pof2:
        new, new_window = [v.copy() for v in vec], list(window)
        for v in range(pof2):
            a, b = window[v]
            half = (b - a) // 2
            keep = (a, a + half) if v < (v ^ mask) else (a + half, b)
            sl = slice(*keep)
            new[v][sl] = vec[v][sl] + vec[v ^ mask][sl]
            new_window[v] = keep
        vec, window = new, new_window
        mask *= 2
    out = np.full(n, np.nan, x.dtype)
    for v in range(pof2):
        out[slice(*window[v])] = vec[v][slice(*window[v])]
    return out


MODELS = {GLOO: gloo_ring, RECDBL: recursive_doubling, RING: even_ring, SEGRING: even_ring,
          RABENSEIFNER: rabenseifner}


def inputs(rng, ranks, n, dtype=np.float32):
    """Values over many magnitudes, so that another association shows in the bits; in F16 some sums
    overflow and some are subnormal."""
    x = rng.standard_normal((ranks, n)).astype(np.float32)
    lowest = -20 if dtype == np.float16 else -12
    x = (x * np.exp2(rng.integers(lowest, 12, (ranks, n))).astype(np.float32)).astype(dtype)
    if dtype == np.float16:
        x[:, ::97] = np.float16(40000)
    return x


def run_tool(cases):
    data = b"".join(struct.pack("<4I", a, *x.shape, x.itemsize) + x.tobytes() for a, x in cases)
    tool = os.path.join(os.environ["SDC_BINARY_DIR"], "tests/conform/comm_sum_tool")
    out = subprocess.run([tool], input=data, stdout=subprocess.PIPE, check=True, timeout=100).stdout
    at = 0
    for _, x in cases:
        yield np.frombuffer(out, x.dtype, x.size, at).reshape(x.shape)
        at += x.nbytes
    assert at == len(out)


def check(cases, expected, names):
    failed = 0
    differ_by_order = False
    for (alg, x), got, want, name in zip(cases, run_tool(cases), expected, names):
        for r in range(x.shape[0]):
            if got[r].tobytes() != want.tobytes():
                raw = f"u{want.itemsize}"
                bad = int((got[r].view(raw) != want.view(raw)).sum())
                print(f"{name}: rank {r}: {bad} of {want.size} elements differ")
                failed += 1
                break
        differ_by_order |= x.sum(axis=0, dtype=x.dtype).tobytes() != want.tobytes()
    assert differ_by_order, "the inputs cannot tell one association from another"
    print(f"{len(cases)} cases, {failed} failed")
    return failed


def main():
    rng = np.random.default_rng(1)
    cases, expected, names = [], [], []
    for alg, model in MODELS.items():
        for ranks in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16):
            for n in (1, 3, 17, 64, 1000, 61706):
                if alg in (RING, SEGRING) and n < ranks or n == 61706 and ranks > 8:
                    continue
                x = inputs(rng, ranks, n)
                cases.append((alg, x))
                expected.append(model(x))
                names.append(f"{model.__name__}, {ranks} ranks, {n} elements")
    for dtype in (np.float64, np.float16):
        for alg, model in MODELS.items():
            for ranks in (2, 3, 5, 8):
                x = inputs(rng, ranks, 100_003, dtype)
                cases.append((alg, x))
                with np.errstate(over="ignore"):
                    expected.append(model(x))
                names.append(f"{model.__name__} of {x.dtype}, {ranks} ranks, {x.shape[1]} elements")
    for ranks in (2, 3):  # several segments a rank
        x = inputs(rng, ranks, 2_000_003)
        cases.append((GLOO, x))
        expected.append(gloo_ring(x))
        names.append(f"gloo_ring, {ranks} ranks, {x.shape[1]} elements")
    # the choice by size, against sums that the table in the reference names
    for ranks, n, alg in ((2, 61706, SEGRING), (3, 61706, SEGRING), (4, 61706, RABENSEIFNER),
                          (3, 100000, RABENSEIFNER), (3, 500, RECDBL), (3, 1500, RING),
                          (3, 3000, RECDBL), (3, 10000, RING), (4, 1000, RECDBL),
                          (8, 61706, RABENSEIFNER)):
        x = inputs(rng, ranks, n)
        cases.append((CHOICE, x))
        expected.append(MODELS[alg](x))
        names.append(f"Open MPI's choice, {ranks} ranks, {n} elements")
    sys.exit(1 if check(cases, expected, names) else 0)


if __name__ == "__main__":
    main()
