# SPDX-License-Identifier: Apache-2.0
"""Schedules of the learning rate against torch.optim.lr_scheduler of PyTorch 1.13: the rate of every step, bit
for bit, with the schedulers stepped as its users do. Plateau gets the mean training loss of its unit."""
import json
import os
import subprocess
import sys

import numpy as np

try:
    import torch
    from torch.optim import lr_scheduler
except ImportError as e:
    print(e)
    sys.exit(77)

TOOL = os.path.join(os.environ["SDC_BINARY_DIR"], "tests/conform/train/schedule_tool")
CASES = [
    ("constant", {}),
    ("step", dict(step_size=1, gamma=0.9)), ("step", dict(step_size=7, gamma=0.1)), ("step", dict(step_size=3, gamma=0.0)),
    ("step", {}),
    ("multi-step", dict(milestones=[1, 4, 5, 30], gamma=0.3)), ("multi-step", {}),
    ("cosine", dict(t_max=1)), ("cosine", dict(t_max=2, eta_min=0.01)), ("cosine", dict(t_max=17)),
    ("cosine", dict(t_max=50, eta_min=1e-3)), ("cosine", {}),
    ("plateau", dict(patience=0, factor=0.5)), ("plateau", dict(patience=2, factor=0.3, cooldown=3, min_lr=1e-3)),
    ("plateau", dict(patience=1, threshold=0.05, factor=0.9)), ("plateau", dict(factor=0.0, patience=3)), ("plateau", {}),
]


def losses_of(kind, n):
    rng = np.random.default_rng(n)
    x = 2.5 / (1 + np.arange(n) / 9) + rng.standard_normal(n) * 0.3
    if kind == "flat":
        x[n // 5:] = 0.75
    if kind == "nan":
        x[n // 2:] = np.nan
    if kind == "inf":
        x[3:9] = np.inf
    return x


def scheduler(optimizer, name, o):
    if name == "step":
        return lr_scheduler.StepLR(optimizer, o["step_size"], o["gamma"])
    if name == "multi-step":
        return lr_scheduler.MultiStepLR(optimizer, o["milestones"], o["gamma"])
    if name == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, o["t_max"], o["eta_min"])
    if name == "plateau":
        return lr_scheduler.ReduceLROnPlateau(optimizer, factor=o["factor"], patience=o["patience"],
                                              threshold=o["threshold"], cooldown=o["cooldown"], min_lr=o["min_lr"])
    return None


def real(name, o, base, losses, per_epoch):
    parameter = torch.zeros(1, requires_grad=True)
    parameter.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([parameter], lr=base)
    main = scheduler(optimizer, name, o)
    warm = lr_scheduler.LinearLR(optimizer, o["warmup_factor"], 1.0, o["warmup_steps"]) if o["warmup_steps"] else None
    rates, total = [optimizer.param_groups[0]["lr"]], 0.0
    for step, loss in enumerate(losses, 1):
        optimizer.step()
        if warm:
            warm.step()
        total += float(loss)
        if main and (o["unit"] == "step" or step % per_epoch == 0):
            if name == "plateau":
                main.step(total / (1.0 if o["unit"] == "step" else float(per_epoch)))
            else:
                main.step()
            total = 0.0
        rates.append(optimizer.param_groups[0]["lr"])
    return np.array(rates, np.float64)


def main():
    with open(os.path.join(os.environ["SDC_SOURCE_DIR"], "schemas/run-1.json")) as f:
        defaults = json.load(f)["properties"]["schedule_options"]["default"]
    bad = compared = changed = 0
    for name, given in CASES:
        for unit, per_epoch in (("step", 1), ("epoch", 1), ("epoch", 4)):
            for warmup, factor in ((0, 0.5), (1, 0.5), (10, 1 / 3), (25, 0.001), (5, 1.0)):
                options = dict(defaults, **given, unit=unit, warmup_steps=warmup, warmup_factor=factor)
                description = dict(schema="sdclab.run/1", trial="x", to_step=1, output="o", schedule=name,
                                   schedule_options=dict(given, unit=unit, warmup_steps=warmup, warmup_factor=factor),
                                   optimizer=dict(lr=0.1))
                with open("schedule-run.json", "w") as f:
                    json.dump(description, f)
                for kind in ("falling", "flat", "nan", "inf") if name == "plateau" else ("falling",):
                    losses = losses_of(kind, 130)
                    out = subprocess.run([TOOL, "schedule-run.json", str(per_epoch)], input=losses.tobytes(),
                                         stdout=subprocess.PIPE, check=True, timeout=60).stdout
                    ours, want = np.frombuffer(out, np.float64), real(name, options, 0.1, losses, per_epoch)
                    compared += want.size
                    changed += np.unique(want).size > 1
                    if ours.tobytes() != want.tobytes():
                        bad += 1
                        at = int(np.nonzero(ours != want)[0][0])
                        print(f"{description['schedule_options']} {name} {kind} losses: after step {at} {ours[at]!r}, "
                              f"torch has {want[at]!r}")
    print(f"{compared} rates compared, in {changed} cases they change")
    assert changed > 200
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
