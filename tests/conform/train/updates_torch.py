# SPDX-License-Identifier: Apache-2.0
"""Whole steps of two ranks against PyTorch, fed with the batches that --list-samples prints: Fashion-MNIST with
random crops and flips, every optimizer, with and without a schedule and warm-up. Weights, optimizer state and
learning rate after every step."""
import gzip
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

try:
    import torch
    import torch.nn.functional as F
    from safetensors.numpy import load_file
    from torch.optim import lr_scheduler
except ImportError as e:
    print(e)
    sys.exit(77)

import torch_model

PROGRAM = os.path.join(os.environ["SDC_BINARY_DIR"], "sdclab-train")
RANKS, BATCH, LIMIT, STEPS = 2, 16, 100, 6  # 3 steps an epoch
CASES = [
    (["--optimizer", "adam", "--lr", "0.001", "--weight-decay", "0.01"], None, 0),
    (["--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.01", "--schedule", "cosine", "--t-max", "4",
      "--schedule-unit", "step", "--warmup", "3"], "cosine", 3),
    (["--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9", "--nesterov", "--weight-decay", "0.001", "--schedule",
      "step", "--step-size", "1", "--gamma", "0.5"], "step", 0),
]


def pixels():
    with gzip.open(os.path.join(torch_model.FASHION, "train-images-idx3-ubyte.gz")) as f:
        f.read(16)
        images = np.frombuffer(f.read(LIMIT * 784), np.uint8).reshape(LIMIT, 28, 28)
    with gzip.open(os.path.join(torch_model.FASHION, "train-labels-idx1-ubyte.gz")) as f:
        f.read(8)
        return images, np.frombuffer(f.read(LIMIT), np.uint8)


def batch(line, rank, images, labels):
    out = []
    for i, (row, column), flip in zip(line["samples"][rank], line["crops"][rank], line["flips"][rank]):
        image = np.pad(images[i], 2)[row:row + 28, column:column + 28]
        out.append(image[:, ::-1] if flip else image)
    x = (torch.from_numpy(np.stack(out).astype(np.float32)) / 255 - 0.2860) / 0.3530
    return x[:, None], torch.from_numpy(labels[line["samples"][rank]].astype(np.int64))


def native(options, folder):
    args = ["--model", "mlp", "--ranks", str(RANKS), "--batch", str(BATCH), "--data-limit", str(LIMIT), "--steps", str(STEPS),
            "--eval-samples", "0", "--crop-padding", "2", "--flip", "--seed-data", "9", *options]
    text = subprocess.run([PROGRAM, *args, "--list-samples"], stdout=subprocess.PIPE, check=True, timeout=60).stdout
    with open(os.path.join(folder, "run.json"), "w") as f:
        description = json.loads(subprocess.run([PROGRAM, *args, "--dry-run", "-o", folder], stdout=subprocess.PIPE,
                                                check=True, timeout=60).stdout)
        description["save"] = {"path": os.path.join(folder, "{step}.st"), "format": "safetensors",
                               "steps": list(range(STEPS + 1))}
        json.dump(description, f)
    subprocess.run([PROGRAM, "--run", os.path.join(folder, "run.json"), "--quiet"], check=True, timeout=100,
                   stdout=subprocess.DEVNULL)
    states = []
    for step in range(STEPS + 1):
        state = load_file(os.path.join(folder, f"{step}.st"))
        states.append({n: torch.from_numpy(np.array(a)) for n, a in state.items() if n != "loop/rng"})
    return [json.loads(line) for line in text.splitlines()], states, description


def compare(options, schedule, warmup, images, labels):
    bad = 0

    def check(what, ours, want, limit):
        nonlocal bad
        far = float((ours - want).norm() / want.norm())
        if not far <= limit:
            print(f"{options}: {what}: {far:.3g}, allowed {limit:g}")
            bad += 1

    with tempfile.TemporaryDirectory() as folder:
        lines, states, description = native(options, folder)
    o = description["optimizer"]
    model = torch_model.MODELS["mlp"]()
    model.load_state_dict({n[6:]: t for n, t in states[0].items() if n.startswith("model/")})
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if o["name"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), o["lr"], o["momentum"], 0, o["weight_decay"], o["nesterov"])
        names = {"momentum": "momentum_buffer"}
    else:
        optimizer = kinds[o["name"]](model.parameters(), o["lr"], (o["beta1"], o["beta2"]), o["eps"], o["weight_decay"])
        names = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "step": "step"}
    main = {None: lambda: None, "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, 4),
            "step": lambda: lr_scheduler.StepLR(optimizer, 1, 0.5)}[schedule]()
    warm = lr_scheduler.LinearLR(optimizer, 1 / 3, 1.0, warmup) if warmup else None
    for step, line in enumerate(lines, 1):
        optimizer.zero_grad()
        for rank in range(RANKS):
            x, y = batch(line, rank, images, labels)
            (F.cross_entropy(model(x), y) / RANKS).backward()
        optimizer.step()
        if warm:
            warm.step()
        if main and (schedule == "cosine" or step % 3 == 0):
            main.step()
        state = states[step]
        if main:
            assert state["loop/lr"].item() == optimizer.param_groups[0]["lr"], (step, state["loop/lr"])
        for name, p in model.named_parameters():
            check(f"{name} after step {step}", state[f"model/{name}"], p.detach(), 1e-4)
            for ours, theirs in names.items():
                check(f"{ours} of {name} after step {step}", state[f"optimizer/{name}/{ours}"],
                      optimizer.state[p][theirs], 1e-3)
    return bad


def main():
    if not os.path.exists(torch_model.FASHION):
        print("Debian's dataset-fashion-mnist is not installed")
        sys.exit(77)
    torch.set_num_threads(1)
    images, labels = pixels()
    sys.exit(1 if sum(compare(*case, images, labels) for case in CASES) else 0)


if __name__ == "__main__":
    main()
