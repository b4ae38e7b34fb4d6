# SPDX-License-Identifier: Apache-2.0
"""Starting programs as MPI processes in tests: `mpirun` with what a test machine needs."""
import os
import shutil
import subprocess

OPTIONS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
           "--mca", "btl", "self,vader", "--mca", "btl_vader_single_copy_mechanism", "none"]


def environment(**more):
    """Without what a launcher around the tests may have left; leaks of the MPI library are not ours."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PMI_", "SLURM_"))}
    env.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    if os.environ.get("SDC_SANITIZE"):
        env["ASAN_OPTIONS"] = "detect_leaks=0:" + os.environ.get("ASAN_OPTIONS", "")
    env.update(more)
    return env


def missing():
    """Why nothing can be started; None where it can."""
    return None if shutil.which("mpirun") else "mpirun is not installed"


def command(ranks, argv, options=()):
    return ["mpirun", *OPTIONS, *options, "-np", str(ranks), *argv]


def run(ranks, argv, timeout=100, options=(), env=None, **more):
    return subprocess.run(command(ranks, argv, options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=timeout, env=env or environment(), **more)
