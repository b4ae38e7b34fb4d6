# SPDX-License-Identifier: Apache-2.0
"""Three training steps against PyTorch: same weights, same batch, SGD with momentum and decay.

The data set is cut to one batch, so that every step sees the same samples whatever their order."""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file
except ImportError as e:
    print(e)
    sys.exit(77)

import torch_model

BATCH, STEPS, LR, MOMENTUM, DECAY = 64, 3, 0.05, 0.9, 1e-3


def native(name, kernels, folder):
    program = os.path.join(os.environ["SDC_BINARY_DIR"], "sdclab-train")
    args = [program, "--model", name, "--data", "fashion-mnist", "--data-limit", str(BATCH),
            "--kernels", kernels, "--batch", str(BATCH), "--steps", str(STEPS), "--lr", str(LR),
            "--momentum", str(MOMENTUM), "--weight-decay", str(DECAY), "--eval-samples", "0",
            "--quiet", "-o", folder]
    for step in range(STEPS + 1):
        args += ["--snapshot", str(step)]
    subprocess.run(args, check=True, timeout=100, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "events.jsonl")) as f:
        events = [json.loads(line) for line in f]
    steps = [e for e in events if e["type"] == "step"]
    losses = [struct.unpack(">f", bytes.fromhex(e["loss_bits"][0]))[0] for e in steps]
    norms = [struct.unpack(">d", bytes.fromhex(e["gradient_norm_bits"]))[0] for e in steps]
    states = [load_file(os.path.join(folder, f"snapshot-{s}-rank-0.safetensors"))
              for s in range(STEPS + 1)]
    return losses, norms, states


def distance(a, b):
    return float((a - b).norm() / b.norm())


def compare(name, kernels):
    bad = 0

    def check(what, value, limit):
        nonlocal bad
        if not value <= limit:
            print(f"{name}, {kernels}: {what}: {value:.3g}, allowed {limit:g}")
            bad += 1

    with tempfile.TemporaryDirectory() as folder:
        losses, norms, states = native(name, kernels, folder)
    torch.set_num_threads(1)
    model = torch_model.MODELS[name]()
    model.load_state_dict({n[len("model/"):]: t for n, t in states[0].items()
                           if n.startswith("model/")})
    assert len(states[0]) == len(model.state_dict())  # nothing of the optimizer yet
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    images, labels = torch_model.fashion(BATCH)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        norm = sum(float(p.grad.double().square().sum()) for p in model.parameters()) ** 0.5
        optimizer.step()
        check(f"loss of step {step + 1}", abs(losses[step] / float(loss) - 1), 2e-6)
        check(f"gradient norm of step {step + 1}", abs(norms[step] / norm - 1), 1e-5)
        for n, p in model.named_parameters():
            state = states[step + 1]
            check(f"{n} after step {step + 1}", distance(state[f"model/{n}"], p.detach()), 2e-6)
            momentum = optimizer.state[p]["momentum_buffer"]
            check(f"momentum of {n} after step {step + 1}",
                  distance(state[f"optimizer/{n}/momentum"], momentum), 2e-5)
    return bad


def main():
    if not os.path.exists(torch_model.FASHION):
        print("Debian's dataset-fashion-mnist is not installed")
        sys.exit(77)
    bad = sum(compare(m, k) for m in torch_model.MODELS for k in ("onednn", "ref"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
