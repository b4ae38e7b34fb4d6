# SPDX-License-Identifier: Apache-2.0
"""A model against PyTorch's module: names and shapes of parameters and buffers, the order in which
gradients get ready (from real DistributedDataParallel), and, from the same weights and batch, one
training step (loss, every gradient, updated parameters, running statistics) and an evaluation;
initial weights by their distribution; checkpoints of the program loaded with strict=True, and the
module's weights loaded by the program.

usage: models_torch.py MODEL KERNELS..."""
import os
import subprocess
import sys
import tempfile

import numpy as np

try:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from safetensors.numpy import load_file, save_file
    from torch.nn.parallel import DistributedDataParallel
except ImportError as e:
    print(e)
    sys.exit(77)

import torch_zoo

BUILD = os.environ["SDC_BINARY_DIR"]
TOOL = os.path.join(BUILD, "tests/conform/train/model_tool")
BATCH = {"alexnet": 8, "vgg11": 8, "resnet50": 6, "resnet18": 6}
failures = 0


def check(what, value, limit):
    global failures
    if not value <= limit:
        print(f"{what}: {value:.3g}, allowed {limit:g}")
        failures += 1


def distance(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


def split(data, like):
    """Cuts bytes into arrays like these; returns the rest too."""
    out = []
    for a in like:
        out.append(np.frombuffer(data[:a.nbytes], a.dtype).reshape(a.shape))
        data = data[a.nbytes:]
    return out, data


def tool(mode, name, shape, *more, data=b""):
    args = [TOOL, mode, name, *map(str, (shape[0], shape[1], shape[1], shape[2])), *map(str, more)]
    return subprocess.run(args, input=data, stdout=subprocess.PIPE, check=True, timeout=250).stdout


def states(module):
    params = [p.detach().numpy().copy() for p in module.parameters()]
    buffers = [b.numpy().copy() for b in module.buffers()]
    return params, buffers


def names(name, shape, module):
    lines = [line.split() for line in tool("list", name, shape).decode().splitlines()]
    listed = lambda kind: [(w[1][len("model/"):], tuple(map(int, w[2:]))) for w in lines if w[0] == kind]
    assert listed("param") == [(n, tuple(p.shape)) for n, p in module.named_parameters()], name
    assert listed("buffer") == [(n, tuple(b.shape)) for n, b in module.named_buffers()], name
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        ddp = DistributedDataParallel(module)
        for _ in range(3):
            ddp(torch.randn(2, shape[0], shape[1], shape[1])).sum().backward()
        order = ddp._get_ddp_logging_data()["prev_iteration_grad_ready_order_indices"]
        dist.destroy_process_group()
    registered = [n for n, _ in module.named_parameters()]
    assert [n for n, _ in listed("ready")] == [registered[int(i)] for i in order.split(", ")], name
    module.zero_grad(set_to_none=True)


def randomise(module, rng):
    """Weights of trained size everywhere, so that nothing is zero or one by chance of the start."""
    with torch.no_grad():
        for n, p in module.named_parameters():
            if p.dim() == 1:
                centre = 1 if n.endswith("weight") else 0
                p.copy_(torch.from_numpy(rng.normal(centre, 0.1, p.shape).astype(np.float32)))
        for n, b in module.named_buffers():
            if n.endswith("mean"):
                b.copy_(torch.from_numpy(rng.normal(0, 0.1, b.shape).astype(np.float32)))
            elif n.endswith("var"):
                b.copy_(torch.from_numpy(rng.uniform(0.5, 2, b.shape).astype(np.float32)))
            else:
                b.fill_(41)


def step(name, shape, kernels):
    torch.manual_seed(1)
    rng = np.random.default_rng(2)
    module = torch_zoo.make(name, *shape)
    randomise(module, rng)
    params, buffers = states(module)
    n = 3 if kernels == "ref" else BATCH.get(name, 16)
    images = rng.normal(size=(n, shape[0], shape[1], shape[1])).astype(np.float32)
    labels = rng.integers(0, shape[2], n).astype(np.int32)
    data = b"".join(a.tobytes() for a in [*params, *buffers, images, labels])
    got = tool("step", name, shape, kernels, n, data=data)
    # the judge: the same module in f64, of which PyTorch's own f32 is a rounding
    losses, results = [], []
    for dtype in (torch.float64, torch.float32):
        judge = torch_zoo.make(name, *shape)
        judge.load_state_dict(module.state_dict())
        judge = judge.to(dtype)
        optimizer = torch.optim.SGD(judge.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
        x = torch.from_numpy(images).to(dtype)
        loss = F.cross_entropy(judge(x), torch.from_numpy(labels).long())
        loss.backward()
        grads = [p.grad.numpy().copy() for p in judge.parameters()]
        optimizer.step()
        after, after_buffers = states(judge)
        with torch.no_grad():
            logits = judge.eval()(x).numpy()
        losses.append(float(loss))
        results.append((grads, after, after_buffers, logits))
    (loss,), got = split(got, [np.zeros((), np.float32)])
    own_grads, got = split(got, params)
    own_params, got = split(got, params)
    own_buffers, got = split(got, buffers)
    (own_logits,), got = split(got, [np.zeros((n, shape[2]), np.float32)])
    assert not got
    what = f"{name}, {kernels}: "
    check(what + "loss", abs(float(loss) / losses[0] - 1), 1e-5)
    listed = [k for k, _ in module.named_parameters()]
    exact, torch32 = results
    for kind, own, judged, theirs, limit in (
            ("gradient of ", own_grads, exact[0], torch32[0], 2e-5),
            ("updated ", own_params, exact[1], torch32[1], 2e-6)):
        for k, a, b, c in zip(listed, own, judged, theirs):
            # PyTorch's own f32 may be further off in a network this deep
            check(what + kind + k, distance(a, b), max(limit, 4 * distance(c, b)))
    for (k, _), a, b in zip(module.named_buffers(), own_buffers, exact[2]):
        if k.endswith("tracked"):
            assert a == b == 42, k
        else:
            check(what + k, distance(a, b), 2e-5)
    # of the updated network, in which the roundings of the whole step have grown
    check(what + "logits", distance(own_logits, exact[3]), max(2e-5, 8 * distance(torch32[3], exact[3])))


def train(name, shape, folder, *more):
    args = [os.path.join(BUILD, "sdclab-train"), "--model", name, "--data", "synthetic",
            "--data-shape", f"{shape[0]}x{shape[1]}x{shape[1]}", "--data-classes", str(shape[2]),
            "--data-samples", "8", "--batch", "4", "--lr", "0.01", "--momentum", "0.9",
            "--eval-samples", "0", "--quiet", "-o", folder, *more]
    subprocess.run(args, check=True, timeout=250, stdout=subprocess.DEVNULL)


def model_part(tensors):
    return {k[len("model/"):]: torch.from_numpy(v.copy()) for k, v in tensors.items()
            if k.startswith("model/")}


def checkpoints(name, shape):
    torch.manual_seed(3)
    module = torch_zoo.make(name, *shape)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "out.safetensors")
        os.mkdir(os.path.join(folder, "a"))
        train(name, shape, os.path.join(folder, "a"), "--steps", "2", "--snapshot", "0",
              "--save", file, "--format", "safetensors")
        fresh = load_file(os.path.join(folder, "a", "snapshot-0-rank-0.safetensors"))
        initial(name, module, model_part(fresh))
        trained = load_file(file)
        module.load_state_dict(model_part(trained), strict=True)
        params, buffers = states(module)
        for k, b in module.named_buffers():
            assert not k.endswith("tracked") or b == 2, k
        # the reverse: PyTorch's weights under the program, which trains none of them
        randomise(module, np.random.default_rng(4))
        sent = {f"model/{k}": v.numpy() for k, v in module.state_dict().items()}
        for k in ("loop/step", "loop/epoch", "loop/cursor"):
            sent[k] = np.zeros((), np.int64)
        sent["loop/rng"] = np.array([4, 0, 0, 0], np.uint32)
        theirs = os.path.join(folder, "torch.safetensors")
        save_file(sent, theirs)
        os.mkdir(os.path.join(folder, "b"))
        train(name, shape, os.path.join(folder, "b"), "--steps", "0", "--load", theirs, "--snapshot", "0")
        back = load_file(os.path.join(folder, "b", "snapshot-0-rank-0.safetensors"))
        for k, v in model_part(back).items():
            assert v.numpy().tobytes() == sent[f"model/{k}"].tobytes(), k
    # the same logits from a checkpoint
    rng = np.random.default_rng(5)
    images = rng.normal(size=(4, shape[0], shape[1], shape[1])).astype(np.float32)
    data = b"".join(a.tobytes() for a in [*params, *buffers, images, np.zeros(4, np.int32)])
    ours = np.frombuffer(tool("eval", name, shape, "onednn", 4, data=data), np.float32)
    module.load_state_dict(model_part(trained), strict=True)
    with torch.no_grad():
        logits = module.eval()(torch.from_numpy(images)).numpy()
    check(f"{name}: logits of a checkpoint", distance(ours.reshape(logits.shape), logits), 1e-5)


def initial(name, module, ours):
    """Mean and spread of every initial tensor are those of PyTorch's distribution."""
    for k, t in module.state_dict().items():
        a, b = ours[k].double(), t.double()
        if b.numel() == 1 or float(b.std()) == 0:
            assert torch.equal(ours[k], t), k  # a constant
            continue
        if a.numel() < 1000:
            continue
        bound = 6 * float(b.std()) / a.numel() ** 0.5
        check(f"{name}: mean of initial {k}", abs(float(a.mean())), bound)
        check(f"{name}: spread of initial {k}", abs(float(a.std() / b.std()) - 1), 6 / a.numel() ** 0.5)
        check(f"{name}: greatest of initial {k}", abs(float(a.abs().max() / b.abs().max()) - 1), 0.35)


def main():
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    name, kernels = sys.argv[1], sys.argv[2:]
    old = name in ("mlp", "lenet5")
    shapes = [(1, 28, 10)] if old else [(3, 32, 10)] if name == "vgg11" else [(3, 32, 10), (1, 28, 7)]
    for shape in shapes:
        names(name, shape, torch_zoo.make(name, *shape))
    for kernel in kernels:
        step(name, shapes[0], kernel)
    step(name, shapes[-1], kernels[0])
    checkpoints(name, shapes[0])
    sys.exit(failures > 0)


main()
