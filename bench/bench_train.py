#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images per second of LeNet-5 training: sdclab-train against PyTorch DDP in the same run.

The two take turns, so that a shared machine's mood meets both; medians and the ratio are printed. The
peer runs at its best: of the OpenBLAS kernels worth trying, the fastest in a short trial is used.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = "/usr/share/datasets/fashion-mnist"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment(**more):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **more}
    return env


def torch_ddp(python, ranks, steps, core):
    port = str(free_port())
    jobs = []
    for rank in range(ranks):
        env = environment(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                          GLOO_SOCKET_IFNAME="lo")
        env.pop("OPENBLAS_CORETYPE", None)
        if core:
            env["OPENBLAS_CORETYPE"] = core
        jobs.append(subprocess.Popen([python, os.path.join(HERE, "torch_ddp.py"), "--data", DATA, "--steps", str(steps)],
                                     env=env, stdout=subprocess.PIPE, text=True))
    outs = [j.communicate(timeout=300)[0] for j in jobs]
    if any(j.returncode for j in jobs):
        sys.exit("the PyTorch peer failed")
    return float(outs[0])


def native(sdclab, ranks, steps, recipe, kernels):
    with tempfile.TemporaryDirectory() as out:
        warm = 50
        subprocess.run([sdclab, "train", "--model", "lenet5", "--data", "fashion-mnist", "--kernels", kernels,
                        "--ranks", str(ranks), "--batch", "64", "--lr", "0.05", "--momentum", "0.9", "--recipe", recipe,
                        "--steps", str(steps + warm), "-o", out],
                       check=True, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        at = {}
        for line in open(os.path.join(out, "events.jsonl")):
            event = json.loads(line)
            if event["type"] == "step":
                at[event["step"]] = event["elapsed"]
    return steps * 64 * ranks / (at[steps + warm] - at[warm])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sdclab", default="build/release/sdclab")
    p.add_argument("--python", default=".venv/bin/python")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=300)
    a = p.parse_args()
    flags = open("/proc/cpuinfo").read()
    cores = [None, "Haswell"] + (["SkylakeX"] if "avx512f" in flags else [])
    trial = {c: torch_ddp(a.python, 1, 100, c) for c in cores}
    core = max(trial, key=trial.get)
    print("PyTorch DDP, 1 rank, by OpenBLAS kernel: " +
          ", ".join(f"{c or 'default'} {v:.0f}" for c, v in trial.items()) + f" images/s; using {core or 'default'}")
    print(f"{'ranks':>5} {'sdclab onednn':>14} {'sdclab ref':>11} {'PyTorch DDP':>12} {'ratio':>6}   images/s, medians of {a.rounds}")
    for ranks in (1, 2):
        recipe = "single" if ranks == 1 else "ddp/after-wrap-all"
        ours, ref, theirs = [], [], []
        for _ in range(a.rounds):
            theirs.append(torch_ddp(a.python, ranks, a.steps, core))
            ours.append(native(a.sdclab, ranks, a.steps, recipe, "onednn"))
            ref.append(native(a.sdclab, ranks, a.steps // 3, recipe, "ref"))
        o, r, t = map(statistics.median, (ours, ref, theirs))
        print(f"{ranks:>5} {o:>14.0f} {r:>11.0f} {t:>12.0f} {o / t:>6.2f}   "
              f"(sdclab {min(ours):.0f}..{max(ours):.0f}, PyTorch {min(theirs):.0f}..{max(theirs):.0f})")


if __name__ == "__main__":
    main()
