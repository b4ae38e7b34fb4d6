# SPDX-License-Identifier: Apache-2.0
"""The sums that strategy horovod computes against MPI_Allreduce of Open MPI 4.1, bit for bit, at
lengths around every limit of its choice of algorithm, with as many ranks as those limits know."""
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

import comm_sum_model as model

LENGTHS = (1, 2, 3, 4, 5, 16, 17, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 10001,
           16383, 16384, 20001, 61706, 65535, 65536, 100003, 300007)


def summed(rng, ranks, dtype):
    """(length, the ranks' vectors, what Open MPI makes of them)"""
    xs = [model.inputs(rng, ranks, n, dtype) for n in LENGTHS]
    with tempfile.TemporaryDirectory() as folder:
        for r in range(ranks):
            with open(f"{folder}/in-{r}", "wb") as f:
                f.writelines(x[r].tobytes() for x in xs)
        subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                        "--mca", "mpi_yield_when_idle", "1", "--mca", "btl", "self,vader",
                        "-n", str(ranks), "./openmpi_sum", folder, str(xs[0].itemsize), *map(str, LENGTHS)],
                       check=True, timeout=100)
        outs = [np.fromfile(f"{folder}/out-{r}", dtype) for r in range(ranks)]
    assert all(o.tobytes() == outs[0].tobytes() for o in outs)
    at = 0
    for n, x in zip(LENGTHS, xs):
        yield n, x, outs[0][at:at + n]
        at += n


def main():
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        print("Open MPI is not installed")
        sys.exit(77)
    version = subprocess.run(["mpirun", "--version"], stdout=subprocess.PIPE, text=True).stdout
    if "(Open MPI) 4.1" not in version:
        print("mpirun is not Open MPI 4.1:", version)
        sys.exit(77)
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "comm_sum_openmpi.c")
    subprocess.run(["mpicc", "-O1", "-o", "openmpi_sum", source], check=True, timeout=60)
    rng = np.random.default_rng(3)
    cases, expected, names = [], [], []
    for ranks in (2, 3, 4, 5, 7, 8, 9, 16):
        for dtype in (np.float32,) if ranks > 5 else (np.float32, np.float64, np.float16):
            for n, x, sums in summed(rng, ranks, dtype):
                cases.append((model.CHOICE, x))
                expected.append(sums)
                names.append(f"Open MPI of {x.dtype}, {ranks} ranks, {n} elements")
    sys.exit(1 if model.check(cases, expected, names) else 0)


if __name__ == "__main__":
    main()
