#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trials per minute of a campaign, by number of workers: LeNet-5 on Fashion-MNIST, two ranks, 40 steps.

The floor beside it is the training alone: a trial's steps at the speed that bench_train.py's program
reaches in the same run, with nothing altered, judged or stored.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

from bench_train import environment, native

SPEC = """campaign: bench
seed: 1
model: lenet5
data: {name: fashion-mnist}
batch: 64
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
baseline: {seeds: 1, checkpoints: [100]}
window: {steps: 40, eval_samples: 2000}
clean: {e0: 3, e1: 3}
factors:
  recipe: [ddp/after-wrap-all, horovod/rank0-broadcast]
  part: [model, optimizer]
  flips: [1, 10]
ranks: 2
altered_ranks: all
pair_over: [recipe, part]
trials: 12
margin: 0.02
"""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sdclab", default="build/release/sdclab")
    p.add_argument("--workers", type=int, nargs="*", default=[1, os.cpu_count()])
    a = p.parse_args()
    speed = native(a.sdclab, 2, 200, "ddp/after-wrap-all", "onednn")
    print(f"training alone, 2 ranks: {speed:.0f} images/s, so 40 steps of 128 images take {40 * 128 / speed * 1e3:.0f} ms on all cores")
    for workers in sorted(set(a.workers)):
        with tempfile.TemporaryDirectory() as folder:
            spec = os.path.join(folder, "bench.yaml")
            open(spec, "w").write(SPEC)
            store = os.path.join(folder, "bench.sdcrun")
            start = time.perf_counter()
            subprocess.run([a.sdclab, "campaign", "run", spec, "-o", store, "--workers", str(workers), "--quiet"],
                           check=True, env=environment(), stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - start
            rate = json.loads(subprocess.run([a.sdclab, "campaign", "status", store, "--json"], check=True,
                                             capture_output=True).stdout)["trials_per_minute"]
            print(f"{workers} worker{'s' if workers > 1 else ''}: {rate:.0f} trials a minute; whole campaign of 96 trials {seconds:.1f} s")


if __name__ == "__main__":
    main()
