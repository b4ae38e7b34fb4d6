#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""replay between PyTorch's order of axes and Keras', and between names: a network that PyTorch made
is stored as PyTorch and as Keras 2 and 3 would store it; after a replay the same logical elements
differ by the same bits, as NumPy and PyTorch see it, and both networks compute the same."""
import json
import os
import shutil
import subprocess
import sys
import traceback

import h5py
import jsonschema
import numpy as np
import torch
from safetensors.numpy import load_file, save_file

SDCLAB = os.environ["SDCLAB"]
UINT = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}


def run(*args, code=0, err=None, out=None):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    assert err is None or err in p.stderr, f"{args}: {err!r} is not in {p.stderr!r}"
    assert out is None or out in p.stdout, f"{args}: {out!r} is not in {p.stdout!r}"
    return p.stdout


def as_json(*args):
    return json.loads(run(*args, "--json"))


with open(os.path.join(os.environ["SDC_SOURCE_DIR"], "schemas", "record-1.json")) as schema:
    RECORD = jsonschema.Draft202012Validator(json.load(schema))


def record_of(path):
    with open(path) as f:
        lines = [json.loads(line) for line in f]
    for line in lines:
        RECORD.validate(line)
    return lines


def without_shapes(record, path):
    """As records were before they told the shapes."""
    with open(path, "w") as f:
        for line in record_of(record):
            line.pop("shape", None)
            f.write(json.dumps(line) + "\n")
    return path


def bits(array):
    array = np.ascontiguousarray(array)
    return array.view(UINT[array.dtype.itemsize])


# ---- the network ----

class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.conv1 = torch.nn.Conv2d(1, 6, 5, padding=2)
        self.bn1 = torch.nn.BatchNorm2d(6)
        self.dw = torch.nn.Conv2d(6, 12, 3, groups=6)
        self.conv2 = torch.nn.Conv2d(12, 16, 3)
        self.fc1 = torch.nn.Linear(16 * 5 * 5, 20)
        self.fc2 = torch.nn.Linear(20, 20)
        self.fc3 = torch.nn.Linear(20, 10)
        with torch.no_grad():
            for t in (self.bn1.weight, self.bn1.bias, self.bn1.running_mean):
                t.normal_()
            self.bn1.running_var.uniform_(0.5, 2)
        self.eval()

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(self.bn1(self.conv1(x)), 2)
        x = self.conv2(self.dw(x))
        x = torch.nn.functional.max_pool2d(torch.relu(x), 2)
        return self.fc3(self.fc2(self.fc1(torch.flatten(x, 1))))


def state_of(net):
    return {k: v.numpy().copy() for k, v in net.state_dict().items()}


def windows(x, k):
    return np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(1, 2))  # N H W C k k


def pool(x):
    n, h, w, c = x.shape
    return x[:, :h // 2 * 2, :w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


def keras_forward(k, x):
    """The same network with Keras' channels_last weights, written down with NumPy alone."""
    x = np.pad(x.transpose(0, 2, 3, 1), ((0, 0), (2, 2), (2, 2), (0, 0)))
    x = np.einsum("nhwcij,ijco->nhwo", windows(x, 5), k["conv1", "kernel"]) + k["conv1", "bias"]
    x = (x - k["bn1", "moving_mean"]) / np.sqrt(k["bn1", "moving_variance"] + 1e-5)
    x = pool(x * k["bn1", "gamma"] + k["bn1", "beta"])
    x = np.einsum("nhwcij,ijcm->nhwcm", windows(x, 3), k["dw", "depthwise_kernel"])
    x = x.reshape(*x.shape[:3], -1) + k["dw", "bias"]
    x = np.einsum("nhwcij,ijco->nhwo", windows(x, 3), k["conv2", "kernel"]) + k["conv2", "bias"]
    x = pool(np.maximum(x, 0))
    x = x.reshape(len(x), -1)
    for layer in ("fc1", "fc2", "fc3"):
        x = x @ k[layer, "kernel"] + k[layer, "bias"]
    return x


def keras_of(state):
    """(layer, variable) -> array, by hand."""
    s = state
    k = {("bn1", "gamma"): s["bn1.weight"], ("bn1", "beta"): s["bn1.bias"],
         ("bn1", "moving_mean"): s["bn1.running_mean"], ("bn1", "moving_variance"): s["bn1.running_var"],
         ("fc1", "kernel"): s["fc1.weight"].reshape(20, 16, 5, 5).transpose(2, 3, 1, 0).reshape(400, 20)}
    for layer in ("conv1", "conv2"):
        k[layer, "kernel"] = s[layer + ".weight"].transpose(2, 3, 1, 0)
    for layer in ("fc2", "fc3"):
        k[layer, "kernel"] = s[layer + ".weight"].T
    if "dw.weight" in s:
        k["dw", "depthwise_kernel"] = s["dw.weight"].reshape(6, 2, 3, 3).transpose(2, 3, 0, 1)
    for layer in ("conv1", "conv2", "dw", "fc1", "fc2", "fc3"):
        k[layer, "bias"] = s[layer + ".bias"]
    return {name: np.ascontiguousarray(a) for name, a in k.items()}


def write_torch(path, state, prefix=""):
    save_file({prefix + k: v for k, v in state.items()}, path)


def write_torch_h5(path, state, prefix=""):
    with h5py.File(path, "w") as f:
        for k, v in state.items():
            f.create_dataset(prefix + k, data=v)


def write_keras2(path, state):
    """As Model.save writes: layers with the paths of their variables."""
    k = keras_of(state)
    with h5py.File(path, "w") as f:
        f.attrs["keras_version"], f.attrs["backend"] = "2.11.0", "tensorflow"
        g = f.create_group("model_weights")
        layers = sorted({layer for layer, _ in k})
        g.attrs["layer_names"] = [name.encode() for name in layers]
        for layer in layers:
            names = [f"{layer}/{v}:0" for l, v in k if l == layer]
            g.create_group(layer).attrs["weight_names"] = [n.encode() for n in names]
            for n in names:
                g[layer].create_dataset(n, data=k[layer, n.split("/")[1][:-2]])


ORDER = ["gamma", "beta", "moving_mean", "moving_variance", "kernel", "depthwise_kernel", "bias"]
CLASSES = {"conv1": "conv2d", "conv2": "conv2d_1", "bn1": "batch_normalization", "dw": "depthwise_conv2d",
           "fc1": "dense", "fc2": "dense_1", "fc3": "dense_2"}


def write_keras3(path, state, names=None):
    """As Model.save_weights of Keras 3: variables by number."""
    k = keras_of(state)
    with h5py.File(path, "w") as f:
        for layer in sorted({layer for layer, _ in k}):
            variables = sorted((v for l, v in k if l == layer), key=ORDER.index)
            for i, v in enumerate(variables):
                f.create_dataset(f"layers/{names[layer] if names else layer}/vars/{i}", data=k[layer, v])


def read_keras(path, names=None):
    found = {}
    with h5py.File(path, "r") as f:
        f.visititems(lambda n, o: found.__setitem__(n, o[()]) if isinstance(o, h5py.Dataset) else None)
    back = {v: k for k, v in names.items()} if names else None
    k = {}
    for name, value in found.items():
        parts = name.split("/")
        if parts[0] == "model_weights":
            k[parts[1], parts[3][:-2]] = value
            continue
        layer = back[parts[1]] if back else parts[1]
        number, n = int(parts[3]), sum(name.startswith(f"{parts[0]}/{parts[1]}/") for name in found)
        if n == 4:
            own = ORDER[:4]
        else:
            own = ["depthwise_kernel" if layer == "dw" else "kernel", "bias"][-n:]
        k[layer, own[number]] = value
    return k


# The map that a user writes: the first dense layer sees the flattened map in another order.
FC1 = "fc1.weight -> {} view=-1,16,5,5 axes=oihw-hwio\n"
TARGETS = {
    "keras2": (write_keras2, "model_weights/fc1/fc1/kernel:0", None, ""),
    "keras3": (write_keras3, "layers/fc1/vars/0", None, ""),
    "keras3-classes": (lambda p, s: write_keras3(p, s, CLASSES), "layers/dense/vars/0", CLASSES,
                       "layer bn1 -> batch_normalization\nlayer fc1 -> dense\n"),
}


def write_map(target):
    with open("net.map", "w") as f:
        f.write(FC1.format(TARGETS[target][1]) + TARGETS[target][3])
    return ["--map", "net.map", "--map", "torch-keras"]


def assert_same_difference(torch_before, torch_after, keras_before, keras_after):
    """The XOR of the two PyTorch states, laid out as Keras', is the XOR of the two Keras states."""
    flat = {k: (bits(torch_before[k]) ^ bits(torch_after[k])) for k in torch_before}
    want = keras_of(flat)
    assert want.keys() == keras_before.keys() == keras_after.keys()
    n = 0
    for name in want:
        got = bits(keras_before[name]) ^ bits(keras_after[name])
        assert np.array_equal(got, want[name]), name
        n += np.count_nonzero(got)
    return n


def write_pt(path, state):
    """As training scripts save a model under DistributedDataParallel."""
    torch.save({"epoch": 3, "model_state_dict": {"module." + k: torch.from_numpy(v) for k, v in state.items()}}, path)


def read_pt(path):
    return {k[len("module."):]: v.numpy() for k, v in torch.load(path)["model_state_dict"].items()}


def test_torch_to_keras(target):
    torch_to_keras(target, write_torch, load_file)


def test_pt_to_keras(target):
    torch_to_keras(target, write_pt, read_pt)


def torch_to_keras(target, write_source, read_source):
    write, _, names, _ = TARGETS[target]
    a, b = state_of(Net(1)), state_of(Net(2))
    write_source("a", a)
    write("b", b)
    result = as_json("alter", "a", "-o", "a2", "--flips", 300, "--seed", 3, "--bits", "lsb:0-22,lsb:31",
                     "--part", "model", "--dtype", "F32")
    got = as_json("replay", "a2.sdc.jsonl", "b", "-o", "b2", *write_map(target), "--from", "a")
    assert got["altered"] == result["altered"] and got["altered_bits"] == 300
    after = read_source("a2")
    keras = read_keras("b2", names)
    assert assert_same_difference(a, after, read_keras("b", names), keras) == result["altered"]
    # what the elements mean: the altered network computes the same in either layout
    write("c", a)
    run("replay", "a2.sdc.jsonl", "c", "--in-place", *write_map(target), "--from", "a", "--exact")
    net = Net(0)
    net.load_state_dict({k: torch.from_numpy(v) for k, v in after.items()})
    x = np.random.default_rng(5).normal(size=(3, 1, 28, 28)).astype(np.float32)
    with torch.no_grad():
        want, clean = net(torch.from_numpy(x)).numpy(), Net(1)(torch.from_numpy(x)).numpy()
    assert not np.allclose(want, clean, rtol=1e-2)
    np.testing.assert_allclose(keras_forward(read_keras("c", names), x), want, rtol=1e-3, atol=1e-3)
    # the record names its origin, keeps how the sites were drawn, and is undone like any other
    header = record_of("b2.sdc.jsonl")[0]
    assert header["origin"] == "a2.sdc.jsonl" and header["seed"] == 3 and header["choice"]["flips"] == 300
    assert record_of("a2.sdc.jsonl")[0].get("origin") is None
    run("undo", "b2.sdc.jsonl")
    subprocess.run(["cmp", "b", "b2"], check=True)


def test_keras_to_torch_and_back():
    a, b = state_of(Net(1)), state_of(Net(2))
    write_keras3("k", a)
    write_torch("t", b)
    with open("back.map", "w") as f:
        f.write("layers/fc1/vars/0 -> fc1.weight view=5,5,16,-1 axes=hwio-oihw\n")
    result = as_json("alter", "k", "-o", "k2", "--flips", 200, "--seed", 4)
    args = ("replay", "k2.sdc.jsonl", "t", "-o", "t2", "--map", "back.map", "--map", "keras-torch")
    # the depthwise kernel's multiplier is in its shape alone
    old = without_shapes("k2.sdc.jsonl", "old")
    run(args[0], old, *args[2:], code=3, err="does not fit the shape of dw.weight; the checkpoint it comes from would tell")
    got = as_json(args[0], old, "t", "-o", "t0", *args[5:], "--from", "k")
    assert got["altered"] == result["altered"]
    got = as_json(*args)
    subprocess.run(["cmp", "t0", "t2"], check=True)
    assert got["altered"] == result["altered"] > 150
    assert_same_difference(b, load_file("t2"), read_keras("k"), read_keras("k2"))
    # and there again: the same faults as at first
    shutil.copy("k", "k3")
    run("replay", "t2.sdc.jsonl", "k3", "--in-place", *write_map("keras3"), "--from", "t")
    subprocess.run(["cmp", "k2", "k3"], check=True)


def test_shapes_are_worked_out():
    """Without --from, where layers are found by name, the target's shapes are enough."""
    a = state_of(Net(1))
    del a["dw.weight"]
    write_torch("a", a)
    write_keras3("b", a)
    run("alter", "a", "-o", "a2", "--flips", 300, "--seed", 3, "--dtype", "F32")
    run("replay", "a2.sdc.jsonl", "b", "-o", "b1", *write_map("keras3"), "--from", "a")
    run("replay", "a2.sdc.jsonl", "b", "-o", "b2", *write_map("keras3"))
    subprocess.run(["cmp", "b1", "b2"], check=True)
    assert_same_difference(a, load_file("a2"), read_keras("b"), read_keras("b1"))
    write_keras3("c", a, CLASSES)
    run("replay", "a2.sdc.jsonl", "c", "-o", "c2", "--map", "torch-keras", code=3, err="has no counterpart")
    assert not os.path.exists("c2")


def test_layers_that_look_alike_are_not_guessed():
    a = {f"{n}.weight": np.ones((4, 4), np.float32) for n in ("fc1", "fc2")}
    save_file(a, "a")
    save_file({f"layers/{n}/vars/0": np.ones((4, 4), np.float32) for n in ("dense", "dense_1")}, "b")
    run("alter", "a", "-o", "a2", "--at", "fc2.weight[1,3]@lsb:4")
    args = ("replay", "a2.sdc.jsonl", "b", "-o", "b2", "--from", "a", "--map", "torch-keras")
    run(*args, code=3, err="tensor fc2.weight of the record has no counterpart")
    with open("m", "w") as f:
        f.write("layer fc2 -> dense_1\n")
    run(*args, "--map", "m")
    changed = load_file("b2")["layers/dense_1/vars/0"] != 1
    assert changed.sum() == 1 and changed[3, 1]


WRAPPED = [("", "module."), ("module.", ""), ("model/", "model/module."), ("", "model/"),
           ("_orig_mod.", "state_dict/module.")]


def test_names_without_a_map():
    a, b = state_of(Net(1)), state_of(Net(2))
    for n, (p, q) in enumerate(WRAPPED):
        write_torch(f"a{n}", a, p)
        write_torch_h5(f"b{n}", b, q)
        run("alter", f"a{n}", "-o", f"x{n}", "--flips", 100, "--seed", n, "--dtype", "F32")
        run("replay", f"x{n}.sdc.jsonl", f"b{n}", "-o", f"y{n}")
        before, after = load_file(f"a{n}"), load_file(f"x{n}")
        with h5py.File(f"b{n}") as old, h5py.File(f"y{n}") as new:
            for name in a:
                assert np.array_equal(bits(old[q + name][()]) ^ bits(new[q + name][()]),
                                      bits(before[p + name]) ^ bits(after[p + name])), name


def test_values_go_to_other_types():
    save_file({"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, "a")
    save_file({"w": np.zeros((2, 3), np.float16)}, "b")
    run("alter", "a", "-o", "n", "--at", "w[1,2]", "--op", "value=nan")
    run("alter", "a", "-o", "v", "--at", "w[0,1]", "--op", "value=0.1")
    run("alter", "a", "-o", "f", "--at", "w[0,1]@lsb:3")
    run("replay", "n.sdc.jsonl", "b", "-o", "bn")
    run("replay", "v.sdc.jsonl", "b", "-o", "bv")
    assert np.isnan(load_file("bn")["w"][1, 2]) and np.isfinite(load_file("bn")["w"]).sum() == 5
    assert load_file("bv")["w"][0, 1] == np.float16(0.1)
    run("replay", "f.sdc.jsonl", "b", "-o", "bf", code=3, err="tensor w is F16, but the record's bits are of w's F32")
    run("replay", "v.sdc.jsonl", "b", "-o", "bf", "--exact", code=3, err="tensor w is F16")
    assert not os.path.exists("bf")


OPS = ["flip=3", "set0", "set1", "mask=5", "mask=9/8", "burst=4", "scale=-2.5", "random", "swap"]


def expected(op, change, old, other):
    """What the operator makes of another value; NumPy's arithmetic, not the program's."""
    raw = int(old)
    b = sum(1 << i for i in change["bits"])
    was, new = (int.from_bytes(bytes.fromhex(change[k]), "little") for k in ("old", "new"))
    name = op.split("=")[0]
    if name == "set0":
        return raw & ~b
    if name == "set1":
        return raw | b
    if name == "scale":
        value = np.array(raw, np.uint32).view(np.float32)
        return int((value.astype(np.float64) * -2.5).astype(np.float32).view(np.uint32))
    if name == "random":  # the same place among the values that are not the old one
        place = new if new < was else new - 1
        return place if place < raw else place + 1
    return int(other) if name == "swap" else raw ^ b


def test_every_operator():
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=(5, 4, 3, 3)).astype(np.float32) for _ in range(2))
    save_file({"c.weight": a}, "a")
    keras = np.ascontiguousarray(b.transpose(2, 3, 1, 0))
    with h5py.File("b", "w") as f:
        f["layers/c/vars/0"] = keras
    for n, op in enumerate(OPS):
        result = as_json("alter", "a", "-o", f"a{n}", "--flips", 30, "--op", op, "--seed", n)
        got = as_json("replay", f"a{n}.sdc.jsonl", "b", "-o", f"b{n}", "--map", "torch-keras")
        assert got["planned"] == result["planned"] == 30, op
        with h5py.File(f"b{n}") as f:
            after = bits(f["layers/c/vars/0"][()].transpose(3, 2, 0, 1).copy())
        before = bits(b).copy()
        want = before.copy().reshape(-1)
        for c in result["changes"]:
            other = before.reshape(-1)[c.get("other", 0)]
            want[c["elem"]] = expected(op, c, before.reshape(-1)[c["elem"]], other)
        assert np.array_equal(after.reshape(-1), want), op


def test_refusals_change_nothing():
    save_file({"w": np.ones((2, 3), np.float32), "only": np.ones(2, np.float32)}, "a")
    save_file({"w": np.full((2, 3), 2, np.float32)}, "b")
    save_file({"w": np.ones((3, 2), np.float32), "only": np.ones(2, np.float32)}, "c")
    save_file({"w": np.ones((2, 3), np.float32), "only": np.ones(2, np.float32)}, "d")
    run("alter", "a", "-o", "a2", "--at", "w[1,0]@lsb:3", "--at", "only[1]@lsb:2")
    before = open("b", "rb").read()
    run("replay", "a2.sdc.jsonl", "b", "--in-place", code=3,
        err="b: tensor only of the record has no counterpart: no tensor has its name")
    run("replay", "a2.sdc.jsonl", "b", "--in-place", "--skip-missing", "--exact", code=3,
        err="b: w[1,0] holds 2 (0x40000000), but a2.sdc.jsonl found 1 (0x3f800000) in w[1,0]")
    # element 3 of (2,3) is [1,0], of (3,2) it is [1,1]
    run("replay", without_shapes("a2.sdc.jsonl", "old"), "c", "--in-place", code=3, err="does not fit the shape of w")
    run("replay", "a2.sdc.jsonl", "c", "--in-place", code=3,
        err="c: tensor w of the record has no counterpart: its shape is [2,3], but w has [3,2]")
    run("replay", "a2.sdc.jsonl", "b", "-o", "x", "--map", "no.map", code=4, err="neither a built-in map")
    run("replay", "a2.sdc.jsonl", "b", code=2, err="nothing says where the altered file goes")
    run("replay", "a", "b", "-o", "x", code=3, err="no alteration record")
    run("replay", "a2.sdc.jsonl", "b", "-o", "x", "--from", "b", code=3, err="b: has no tensor only")
    run("replay", "a2.sdc.jsonl", "b", "--skip-missing", "--dry-run", out="1 would be altered",
        err="1 of 2 changes of the record left out")
    assert open("b", "rb").read() == before and not os.path.exists("x")
    assert not os.path.exists("b.sdc.jsonl") and not os.path.exists("c.sdc.jsonl")
    run("replay", "a2.sdc.jsonl", "d", "-o", "d2", "--exact")
    subprocess.run(["cmp", "a2", "d2"], check=True)
    # a rule that leaves a tensor out is no missing counterpart
    with open("m", "w") as f:
        f.write("only -> -\n")
    run("replay", "a2.sdc.jsonl", "b", "-o", "b2", "--map", "m", out="1 altered")


def test_another_shape_is_refused():
    save_file({"w": np.ones((120, 400), np.float32), "b": np.ones(120, np.float32), "s": np.float32(1).reshape(())}, "a")
    run("alter", "a", "-o", "a2", "--at", "w[0,5]@lsb:3", "--at", "b[7]@lsb:2", "--at", "s[]@lsb:1")
    told = {c["tensor"]: c["shape"] for c in record_of("a2.sdc.jsonl") if c["type"] == "change"}
    assert told == {"w": [120, 400], "b": [120], "s": []}
    s = {"s": np.float32(2).reshape(())}
    for n, (w, b) in enumerate([((100, 400), 120), ((400, 120), 120), ((120, 400), 100), ((160, 300), 120), ((48000,), 120)]):
        save_file({"w": np.full(w, 2, np.float32), "b": np.full(b, 2, np.float32), **s}, "c")
        which, was, found = ("b", (120,), (b,)) if b != 120 else ("w", (120, 400), w)
        shown = [str(list(shape)).replace(" ", "") for shape in (was, found)]
        run("replay", "a2.sdc.jsonl", "c", "--in-place", code=3,
            err=f"tensor {which} of the record has no counterpart: its shape is {shown[0]}, but {which} has {shown[1]}")
        assert (load_file("c")["w"] == 2).all()
        assert not os.path.exists("c.sdc.jsonl")
    # rules that say where the elements lie
    save_file({"w": np.full((400, 120), 2, np.float32), "b": np.full(120, 2, np.float32), **s}, "c")
    open("m", "w").write("w -> w transpose\n")
    run("replay", "a2.sdc.jsonl", "c", "-o", "d", "--map", "m", out="3 altered")
    assert [list(i) for i in np.argwhere(load_file("d")["w"] != 2)] == [[5, 0]]
    save_file({"w": np.full((400, 100), 2, np.float32), "b": np.full(120, 2, np.float32), **s}, "c")
    run("replay", "a2.sdc.jsonl", "c", "-o", "e", "--map", "m", code=3, err="its shape [120,400] becomes [400,120], but w has [400,100]")
    save_file({"w": np.full((160, 300), 2, np.float32), "b": np.full(120, 2, np.float32), **s}, "c")
    open("m", "w").write("w -> w view=160,300\n")
    run("replay", "a2.sdc.jsonl", "c", "-o", "f", "--map", "m", out="3 altered")
    # a record of before they were told
    save_file({"w": np.full((100, 400), 2, np.float32), "b": np.full(100, 2, np.float32), **s}, "c")
    run("replay", without_shapes("a2.sdc.jsonl", "old"), "c", "-o", "g", out="3 altered")
    lines = [json.loads(line) for line in open("a2.sdc.jsonl")]
    for shape in ([120, 2**62], [1], [3, 2]):
        for line in lines:
            if line.get("tensor") == "b":
                line["shape"] = shape
        open("bad", "w").write("".join(json.dumps(line) + "\n" for line in lines))
        run("replay", "bad", "a", "-o", "h", code=3, err="tensor b")


def test_a_record_that_was_cut_short():
    save_file({"w": np.ones((2, 3), np.float32)}, "a")
    run("alter", "a", "-o", "a2", "--flips", 3)
    lines = open("a2.sdc.jsonl").read().splitlines(keepends=True)
    open("whole", "w").write("".join(lines[:-1]))
    open("cut", "w").write("".join(lines[:-2]))
    run("replay", "whole", "a", "-o", "b")
    subprocess.run(["cmp", "a2", "b"], check=True)
    run("replay", "cut", "a", "-o", "c", code=3, err="cut: was cut short")
    swapped = [json.loads(line) for line in lines]
    swapped[1]["index"] = "[1,"
    open("bad", "w").write("".join(json.dumps(line) + "\n" for line in swapped))
    run("replay", "bad", "a", "-o", "c", code=3, err="is no index")
    twice = [lines[0], lines[1], *lines[1:]]
    open("twice", "w").write("".join(twice))
    run("replay", "twice", "a", "-o", "c", code=3, err="two changes are of element")


def test_the_manual():
    """The last map of docs/user/replay.md, and that all of them are maps."""
    with open(os.path.join(os.environ["SDC_SOURCE_DIR"], "docs", "user", "replay.md")) as f:
        maps = [block.split("```")[0] for block in f.read().split("```map\n")[1:]]
    a = state_of(Net(1))
    write_torch("a", a)
    write_keras2("b", a)
    run("alter", "a", "-o", "a2", "--flips", 100, "--tensors", "fc1*", "--tensors", "conv*", "--tensors", "*.bias")
    assert len(maps) == 2
    with open("all.map", "w") as f:
        f.write("".join(maps).replace("*.bias ", "bn1.bias -> model_weights/bn1/bn1/beta:0\n*.bias "))
    run("replay", "a2.sdc.jsonl", "b", "-o", "b2", "--map", "all.map")
    assert_same_difference(a, load_file("a2"), read_keras("b"), read_keras("b2"))


def main():
    tests = []
    for name, function in list(globals().items()):
        if name.startswith("test_"):
            takes = function.__code__.co_argcount
            tests += [(name, function, (t,)) for t in TARGETS] if takes else [(name, function, ())]
    failed, home = 0, os.getcwd()
    for name, function, args in tests:
        folder = os.path.join(home, "_".join((name, *args)))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        os.chdir(folder)
        try:
            function(*args)
        except Exception:
            failed += 1
            print(f"FAILED {name}{args}")
            traceback.print_exc(file=sys.stdout)
        os.chdir(home)
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
