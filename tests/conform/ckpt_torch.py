#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's files: those of the real library, and files made byte by byte for what it does not write
here. Values, places, aliases, views, checksums and refusals.

Usage: ckpt_torch.py CKPT_TOOL
"""
import collections
import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import warnings
import zipfile
import zlib

import numpy as np
import torch

import torch_files as tf
from limits import memory_limit

warnings.filterwarnings("ignore")
TOOL = sys.argv[1]
UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def tool(*args, limit=None):
    p = subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, timeout=60, preexec_fn=limit)
    assert p.returncode in (0, 1), (args, p.returncode, p.stderr)
    return json.loads(p.stdout)


def values(path):
    out = tool("values", path)
    assert "error" not in out, out
    return out


def refused(path, *words, error="INVALID"):
    out = tool("values", path)
    assert out.get("error") == error, (path, words, str(out)[:300])
    for w in words:
        assert w in out["message"], (w, out["message"])


def raw(t):
    """The bytes of a tensor's elements in C order."""
    t = t.detach().resolve_conj().resolve_neg()
    if t.is_complex():
        t = torch.view_as_real(t)
    if t.dtype == torch.bfloat16:
        t = t.contiguous().view(torch.int16)
    return t.contiguous().numpy().tobytes()


def shape_of(t):
    return list(t.shape) + ([2] if t.is_complex() else [])


def walk(x, name=""):
    """Names as sdclab makes them."""
    if isinstance(x, torch.Tensor):
        yield name or "tensor", x
    elif isinstance(x, dict):
        for k, v in x.items():
            yield from walk(v, f"{name}/{k}" if name else str(k))
    elif isinstance(x, (list, tuple)):
        for k, v in enumerate(x):
            yield from walk(v, f"{name}/{k}" if name else str(k))


def by_name(out):
    """Tensors under all their names."""
    return {n: t for name, t in out["tensors"].items() for n in [name, *t["aliases"]]}


def check_places(path, t):
    """What is read is what the file has at the mapped places."""
    data = open(path, "rb").read()
    size = len(t["values"]) // 2 // max(1, t["n_elems"])
    got = bytes.fromhex(t["values"])
    for k, at in enumerate(t["offsets"]):
        element = data[at:at + size]
        assert (element[::-1] if t["big_endian"] else element) == got[k * size:(k + 1) * size], k


def check_sums(path, out):
    data, n = open(path, "rb").read(), 0
    with zipfile.ZipFile(path) as z:
        deflated = {i.filename for i in z.infolist() if i.compress_type == zipfile.ZIP_DEFLATED}
    for s in out["sums"]:
        assert s["kind"] == "CRC-32" and len(s["places"]) == 2, s
        n += 1
        if s["unknown"]:
            continue
        covered = data[s["offset"]:s["offset"] + s["size"]]
        if s["what"][7:] in deflated:  # TorchScript deflates its sources
            covered = zlib.decompress(covered, -15)
        for file, at in s["places"]:
            assert struct.unpack_from("<I", data, at)[0] == zlib.crc32(covered), s
    return n


def compare(path, obj, sums=True, more=()):
    """more: further names of tensors."""
    out = values(path)
    names, want = by_name(out), dict(walk(obj))
    assert set(names) == set(want) | set(more), (set(names) ^ set(want) ^ set(more))
    for name, x in want.items():
        t = names[name]
        assert t["shape"] == shape_of(x), (name, t["shape"])
        assert bytes.fromhex(t["values"]) == raw(x), name
        assert t["locked"] is None, t
        check_places(path, t)
    if sums:
        with zipfile.ZipFile(path) as z:
            assert check_sums(path, out) == sum(i.file_size > 0 for i in z.infolist())
    else:
        assert out["sums"] == []
    return out


def flip_each(path, name, obj_of, elements, sums=True):
    """The mapped bit of an element changes that element for torch.load, and nothing else."""
    out = values(path)
    t = by_name(out)[name]
    before = {n: raw(x) for n, x in walk(obj_of(torch.load(path)))}
    for k in elements:
        data = bytearray(open(path, "rb").read())
        data[t["offsets"][k]] ^= 4
        for s in out["sums"] if sums else []:
            for _, at in s["places"]:
                struct.pack_into("<I", data, at, zlib.crc32(data[s["offset"]:s["offset"] + s["size"]]))
        open("flipped.pt", "wb").write(data)
        if sums:
            assert zipfile.ZipFile("flipped.pt").testzip() is None
        size = len(t["values"]) // 2 // t["n_elems"]
        for n, x in walk(obj_of(torch.load("flipped.pt"))):
            want = bytearray(before[n])
            if n == name:
                want[k * size + (size - 1 if t["big_endian"] else 0)] ^= 4
            assert raw(x) == want, (n, k)


def varied():
    base = torch.arange(40.0).mul(0.37)
    return {
        "turned": torch.arange(24.0).reshape(4, 6).t(),
        "permuted": torch.arange(60, dtype=torch.int16).reshape(3, 4, 5).permute(2, 0, 1),
        "half": torch.arange(7).to(torch.float16), "brain": torch.arange(9).mul(0.1).to(torch.bfloat16),
        "complex": torch.arange(6).to(torch.complex64).mul(1 + 2j).reshape(2, 3),
        "bool": torch.tensor([True, False, True]), "byte": torch.arange(5, dtype=torch.uint8),
        "long": torch.tensor(-5), "empty": torch.zeros(0, 3), "wide": torch.arange(4, dtype=torch.float64),
        "list": [torch.ones(2), (torch.zeros(3), {"x": torch.full((2, 2), 7.0)})], 7: torch.full((3,), 2.0),
        "middle": base[3:11].clone(), "every": base[::3], "names/with.dots": torch.ones(1),
    }


def test_protocols():
    for legacy in (False, True):
        for protocol in (2, 3, 4, 5):
            state = varied()
            torch.save(state, "a.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
            out = compare("a.pt", state, sums=not legacy)
            assert out["format"] == ("pytorch-legacy" if legacy else "pytorch")
            if protocol in (2, 4):
                for name in ("turned", "permuted", "brain", "every"):
                    flip_each("a.pt", name, lambda x: x, [0, 1, 5, 6], sums=not legacy)
    torch.save(torch.arange(5.0), "one.pt")
    compare("one.pt", torch.arange(5.0))
    torch.save([], "none.pt")
    assert values("none.pt")["tensors"] == {}


def test_sharing():
    w = torch.arange(30.0).reshape(5, 6)
    state = {"w": w, "tied": w, "row": w[2], "flat": w.view(-1), "column": w[:, 1], "expanded": torch.ones(1).expand(4),
             "left": torch.arange(12.0).reshape(3, 4)[:, :2], "window": torch.arange(9.0).as_strided((4, 3), (2, 1))}
    both = torch.arange(12.0).reshape(3, 4)
    state["a"], state["b"] = both[:, :2], both[:, 2:]
    parameter = torch.nn.Parameter(torch.ones(3))
    state["p"], state["q"] = parameter, parameter
    torch.save(state, "s.pt")
    out = compare("s.pt", state)
    t = out["tensors"]
    assert t["w"]["aliases"] == ["tied"] and t["p"]["aliases"] == ["q"]
    assert t["w"]["shared"] is None
    for name in ("row", "flat", "column"):
        assert t[name]["shared"] == "view of w", t[name]
    assert "expanded" in t["expanded"]["shared"] and "same bytes" in t["window"]["shared"]
    assert t["a"]["shared"] is None and t["b"]["shared"] is None  # side by side in one storage
    assert sum(x["stored_size"] for x in t.values()) == 4 * (30 + 6 + 12 + 3), "bytes counted once"
    key = t["left"]["storage"].split()[-1]
    assert any(f"storage {key}: 24 of its 48 bytes belong to no tensor" in n for n in out["notes"]), out["notes"]
    base = torch.zeros(100_000)
    torch.save({"view": base[5:15]}, "v.pt")
    assert any("399960 of its 400000 bytes" in n for n in values("v.pt")["notes"])
    flat = torch.arange(4000.0)
    torch.save({"flat": flat, **{f"p{i}": flat[20 * i:20 * i + 20] for i in range(200)}}, "f.pt")
    t = values("f.pt")["tensors"]
    assert sum(x["stored_size"] for x in t.values()) == 16000
    assert all((x["shared"] == "view of flat") == (n != "flat") for n, x in t.items())


def test_roles():
    for optimizer, words in [(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), {"momentum_buffer": "momentum"}),
                             (torch.optim.Adam, {"exp_avg": "adam-m", "exp_avg_sq": "adam-v", "step": "counter"}),
                             (torch.optim.AdamW, {"exp_avg": "adam-m", "exp_avg_sq": "adam-v", "step": "counter"})]:
        net = torch.nn.Sequential(collections.OrderedDict(fc=torch.nn.Linear(3, 2), bn=torch.nn.BatchNorm1d(2)))
        o = optimizer(net.parameters())
        net(torch.randn(4, 3)).sum().backward()
        o.step()
        state = {"model": {f"module.{k}": v for k, v in net.state_dict().items()}, "optimizer": o.state_dict(), "epoch": 3}
        torch.save(state, "o.pt")
        # one group of parameters, in the model's order: states are known by their parameter, too
        parameters = ["fc.weight", "fc.bias", "bn.weight", "bn.bias"]
        slots = {f"optimizer/state/{i}/{k}": f"optimizer/module.{parameters[i]}/{k}"
                 for i, s in state["optimizer"]["state"].items() for k, v in s.items() if isinstance(v, torch.Tensor)}
        t = compare("o.pt", state, more=slots.values())["tensors"]
        assert all(t[n]["aliases"] == [alias] for n, alias in slots.items()) and len(slots) >= 4
        roles = {n: (x["part"], x["role"]) for n, x in t.items()}
        assert roles["model/module.fc.weight"] == ("model", "weight")
        assert roles["model/module.bn.weight"] == ("model", "norm-scale")
        assert roles["model/module.bn.running_var"] == ("model", "running-var")
        for word, role in words.items():
            assert roles[f"optimizer/state/0/{word}"] == ("optimizer", role), (word, roles)


def step(net, groups):
    o = torch.optim.Adam(groups)
    net(torch.randn(4, 3)).sum().backward()
    o.step()
    return o


def aliases_of(path):
    return {n: t["aliases"] for n, t in values(path)["tensors"].items() if "/state/" in n}


def test_states_of_several_groups():
    """Numbers go on from group to group. PyTorch 2.6 and later store names with them, if it has them."""
    net = torch.nn.Sequential(collections.OrderedDict(one=torch.nn.Linear(3, 3), two=torch.nn.Linear(3, 3), out=torch.nn.Linear(3, 1)))
    groups = [{"params": net.one.parameters()}, {"params": [*net.two.parameters(), *net.out.parameters()], "lr": 0.1}]
    o = step(net, groups).state_dict()
    assert [g["params"] for g in o["param_groups"]] == [[0, 1], [2, 3, 4, 5]]
    in_order = ["one.weight", "one.bias", "two.weight", "two.bias", "out.weight", "out.bias"]
    slots = ("exp_avg", "exp_avg_sq", "step")
    for legacy in (False, True):
        torch.save({"model": net.state_dict(), "optimizer": o}, "g.pt", _use_new_zipfile_serialization=not legacy)
        assert aliases_of("g.pt") == {f"optimizer/state/{i}/{k}": [f"optimizer/{n}/{k}"] for i, n in enumerate(in_order) for k in slots}
    # param_names as torch 2.6's Optimizer.add_param_group and state_dict write them; they need no model
    reverse = ["out.bias", "one.weight", "two.weight", "a/b", "", "one.bias"]
    o["param_groups"][0]["param_names"], o["param_groups"][1]["param_names"] = reverse[:2], reverse[2:]
    want = {f"state/{i}/{k}": [f"{n}/{k}"] for i, n in enumerate(reverse) for k in slots}
    torch.save(o, "g.pt")
    assert aliases_of("g.pt") == {} and {n: t["aliases"] for n, t in values("g.pt")["tensors"].items()} == want
    torch.save({"model": net.state_dict(), "optimizer": o}, "g.pt")
    assert aliases_of("g.pt") == {f"optimizer/{n}": [f"optimizer/{a[0]}"] for n, a in want.items()}
    # names that are not one for each parameter, or not different, name nothing; the model's order is left
    for names in (["x"], ["x", 7], ["x", None], ["x", "two.weight"], "xy"):
        o["param_groups"][0]["param_names"] = names
        torch.save(o, "g.pt")
        assert not any(t["aliases"] for t in values("g.pt")["tensors"].values()), names
    del o["param_groups"][1]["param_names"]
    torch.save({"model": net.state_dict(), "optimizer": o}, "g.pt")
    assert aliases_of("g.pt")["optimizer/state/5/exp_avg"] == ["optimizer/out.bias/exp_avg"]


def test_states_without_names():
    """Where the order of parameters is not the model's, or not known, states keep their numbers alone."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    weights, biases = [net[0].weight, net[1].weight], [net[0].bias, net[1].bias]
    for groups, model in [([{"params": weights}, {"params": biases}], net.state_dict()),
                          ([{"params": biases + weights}], net.state_dict()), ([{"params": weights}], net.state_dict()),
                          ([{"params": list(net.parameters())}], {"x": torch.ones(3)})]:
        o = torch.optim.Adam(groups)
        net(torch.randn(4, 3)).sum().backward()
        o.step()
        torch.save({"model": model, "optimizer": o.state_dict()}, "o.pt")
        assert not any(x["aliases"] for x in values("o.pt")["tensors"].values())


def test_modules():
    net = torch.nn.Sequential(collections.OrderedDict(fc=torch.nn.Linear(3, 2), bn=torch.nn.BatchNorm1d(2)))
    torch.save(net, "m.pt")
    compare("m.pt", dict(net.state_dict()))
    torch.save({"net": net}, "m.pt")
    compare("m.pt", {"net." + k: v for k, v in net.state_dict().items()})
    script = torch.jit.trace(net.eval(), torch.ones(2, 3))
    script.save("script.pt")
    compare("script.pt", dict(net.state_dict()))


def test_parts_of_tensors():
    q = torch.quantize_per_channel(torch.randn(4, 2), torch.rand(4).double(), torch.zeros(4, dtype=torch.long), 0, torch.qint8)
    sparse, csr = torch.eye(3).to_sparse(), torch.eye(4).to_sparse_csr()
    torch.save({"q": q, "s": sparse, "c": csr}, "parts.pt")
    compare("parts.pt", {"q:values": q.int_repr(), "q:scales": q.q_per_channel_scales(), "q:zero_points": q.q_per_channel_zero_points(),
                         "s:indices": sparse._indices(), "s:values": sparse._values(), "c:values": csr.values(),
                         "c:crow_indices": csr.crow_indices(), "c:col_indices": csr.col_indices()})

    data = struct.pack("<6f", *range(6))
    hooks = tf.call("collections.OrderedDict")
    plain = tf.tensor("0", 6, (2, 3))
    v3 = tf.call("torch._utils._rebuild_tensor_v3", tf.storage("1", 8, "torch.storage.UntypedStorage"), 2, (2, 3), (3, 1),
                 False, hooks, tf.G("torch.float8_e4m3fn"), {})
    f4 = tf.call("torch._utils._rebuild_tensor_v3", tf.storage("2", 2, "torch.storage.UntypedStorage"), 0, (2,), (1,),
                 False, hooks, tf.G("torch.float4_e2m1fn_x2"))
    dtensor = tf.call("torch._tensor._rebuild_from_type_v2", tf.G("torch._utils._rebuild_wrapper_subclass"),
                      tf.G("torch.distributed.tensor.DTensor"), (None, None, tf.size(4, 3)),
                      {"_local_tensor": plain, "_spec": tf.new("torch.distributed.tensor._dtensor_spec.DTensorSpec", {"mesh": None})})
    state = tf.call("torch._utils._rebuild_parameter_with_state", tf.tensor("3", 2, (2,)), True, hooks, {"mask": tf.tensor("4", 1, (1,))})
    subclass = tf.call("torch._tensor._rebuild_from_type_v2", tf.G("torch._utils._rebuild_tensor_v2"), tf.G("my.Tensor"),
                       (tf.storage("5", 2), 0, (2,), (1,), False, hooks), {"extra": tf.tensor("6", 1, (1,))})
    meta = tf.call("torch._utils._rebuild_meta_tensor_no_storage", tf.G("torch.bfloat16"), (3, 3), (3, 1), False)
    nested = tf.call("torch._utils._rebuild_nested_tensor", tf.tensor("7", 3, (3,)), tf.tensor("8", 2, (2,), cls="torch.LongStorage"))
    four = tf.call("torch._utils._rebuild_qtensor", tf.storage("9", 3, "torch.QUInt4x2Storage"), 0, (5,), (1,),
                   (tf.G("torch.per_tensor_affine"), 0.5, 0), False, hooks)
    odd = tf.call("torch._utils._rebuild_tensor_v2", tf.storage("0", 6, "torch.FutureStorage"), 0, (6,), (1,), False, hooks)
    strange = tf.call("torch._utils._rebuild_tensor_v3", tf.storage("1", 8, "torch.storage.UntypedStorage"), 0, (8,), (1,), False,
                      hooks, tf.G("torch.float3"))
    tf.write_torch("made.pt", {"plain": plain, "v3": v3, "f4": f4, "d": dtensor, "s": state, "sub": subclass, "meta": meta,
                               "n": nested, "four": four, "odd": odd, "strange": strange},
                   {"0": data, "1": bytes(range(8)), "2": b"\x21\x43", "3": data[:8], "4": data[:4], "5": data[:8],
                    "6": data[:4], "7": data[:12], "8": bytes(16), "9": b"\x10\x32\x04"})
    out = values("made.pt")
    t = out["tensors"]
    assert t["plain"]["aliases"] == ["d"] and bytes.fromhex(t["plain"]["values"]) == data
    assert t["v3"]["dtype"] == "F8_E4M3" and bytes.fromhex(t["v3"]["values"]) == bytes(range(2, 8))
    assert t["f4"]["dtype"] == "F4" and t["f4"]["shape"] == [2, 2] and bytes.fromhex(t["f4"]["values"]) == b"\1\2\3\4"
    assert t["f4"]["shifts"] == [0, 4, 0, 4]
    assert bytes.fromhex(t["four:values"]["values"]) == bytes([0, 1, 2, 3, 4]) and t["four:values"]["dtype"] == "U4"
    assert {"s", "s:mask", "sub", "sub:extra", "n:values", "n:sizes"} < set(t)
    assert "no bytes" in t["meta"]["locked"] and t["meta"]["dtype"] == "BF16" and t["meta"]["shape"] == [3, 3]
    assert "unknown" in t["odd"]["locked"] and "unknown" in t["strange"]["locked"]
    assert any("my.Tensor" in n for n in out["notes"])
    # the same tensor under a class that says another type is another tensor
    tf.write_torch("two.pt", {"f": tf.tensor("0", 6, (6,)), "i": tf.tensor("0", 6, (6,), cls="torch.IntStorage")}, {"0": data})
    t = values("two.pt")["tensors"]
    assert t["i"]["dtype"] == "I32" and t["i"]["shared"] == "view of f"


def test_arrays_in_the_pickle():
    """NumPy arrays are pickled inside data.pkl; their elements are alterable there."""
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    state = {"a": a, "f": np.asfortranarray(a * 2), "big": a.astype(">i2"), "t": torch.ones(2), "text": np.array(["x"]),
             "scalar": np.float64(3)}
    torch.save(state, "np.pt", pickle_protocol=3)
    t = values("np.pt")["tensors"]
    assert set(t) == {"a", "f", "big", "t"}
    for name in ("a", "f", "big"):
        assert bytes.fromhex(t[name]["values"]) == np.ascontiguousarray(state[name]).astype(state[name].dtype.newbyteorder("=")).tobytes()
        check_places("np.pt", t[name])
    data = bytearray(open("np.pt", "rb").read())
    data[t["f"]["offsets"][5]] ^= 1
    open("np2.pt", "wb").write(data)
    differ = torch.load("np2.pt")["f"].view(np.uint32) != torch.load("np.pt")["f"].view(np.uint32)
    assert differ.sum() == 1 and differ[1, 1]
    torch.save(state, "np.pt", pickle_protocol=2)
    t = values("np.pt")["tensors"]
    assert "text" in t["a"]["locked"] and t["t"]["locked"] is None
    device = tf.call("torch._utils._rebuild_device_tensor_from_numpy",
                     Raw_numpy(b"\0\0\x80\x3f\0\0\0\x40"), tf.G("torch.float32"), "xla:0", False)
    tf.write_torch("xla.pt", tf.dumps({"x": device}, 3), {})
    t = values("xla.pt")["tensors"]["x"]
    assert bytes.fromhex(t["values"]) == b"\0\0\x80\x3f\0\0\0\x40" and t["storage"] == "inside the pickle"


def Raw_numpy(data):
    dtype = tf.Raw(tf.call("numpy.dtype", "f4", False, True) + tf.put((3, "<", None, None, None, -1, -1, 0)) + b"b")
    array = tf.call("numpy.core.multiarray._reconstruct", tf.G("numpy.ndarray"), (0,), b"b")
    return tf.Raw(array + tf.put((1, (len(data) // 4,), dtype, False, data)) + b"b")


def test_byte_order():
    """Big-endian archives say so in a record; bit 31 of a float is then in its first byte."""
    data = struct.pack(">6f", *range(6))
    tf.write_torch("big.pt", {"w": tf.tensor("0", 6, (3, 2), (1, 3))}, {"0": data}, order=b"big")
    t = values("big.pt")["tensors"]["w"]
    assert t["big_endian"] and bytes.fromhex(t["values"]) == struct.pack("=6f", 0, 3, 1, 4, 2, 5)
    check_places("big.pt", t)
    tf.write_torch("little.pt", {"w": tf.tensor("0", 6, (6,))}, {"0": data}, order=b"little")
    assert not values("little.pt")["tensors"]["w"]["big_endian"]
    tf.write_torch("none.pt", {"w": tf.tensor("0", 6, (6,))}, {"0": data})
    assert not values("none.pt")["tensors"]["w"]["big_endian"]
    tf.write_torch("bad.pt", {"w": tf.tensor("0", 6, (6,))}, {"0": data}, order=b"middle")
    refused("bad.pt", "byteorder")
    # legacy: early writers used the machine's order for counts and data, later ones little-endian always
    state = {"w": tf.tensor("10", 6, (6,))}
    tf.write_legacy("big.pth", state, {"10": (6, data)}, little=False, order=">")
    t = values("big.pth")["tensors"]["w"]
    assert t["big_endian"] and bytes.fromhex(t["values"]) == struct.pack("=6f", *range(6))
    tf.write_legacy("late.pth", state, {"10": (6, data)}, little=False, order="<")
    out = values("late.pth")
    assert not out["tensors"]["w"]["big_endian"] and any("big-endian machine" in n for n in out["notes"])


def test_sums():
    data = struct.pack("<6f", *range(1, 7))
    state = {"w": tf.tensor("0", 6, (6,)), "v": tf.tensor("1", 6, (6,))}
    tf.write_torch("zero.pt", state, {"0": data, "1": bytes(24)}, crc=False)
    out = values("zero.pt")
    assert all(s["unknown"] for s in out["sums"]) and len(out["sums"]) == 4
    assert any("no checksum" in n for n in out["notes"]) and any("zeros only (data/1)" in n for n in out["notes"])
    tf.write_torch("some.pt", state, {"0": data, "1": data}, descriptor64=True)
    assert not any(s["unknown"] for s in values("some.pt")["sums"]) and check_sums("some.pt", values("some.pt")) == 4


def test_places():
    """Never from the key or the order: from the directory and the local header."""
    keys = [str(i) for i in range(12)]
    storages = {k: struct.pack("<I", int(k)) for k in sorted(keys)}  # 0, 1, 10, 11, 2, ...
    for align in (1, 64, 4096):
        state = {k: tf.tensor(k, 1, (1,), cls="torch.IntStorage") for k in keys}
        places = tf.write_torch("k.pt", state, storages, align=align)
        t = values("k.pt")["tensors"]
        for k in keys:
            assert bytes.fromhex(t[k]["values"]) == storages[k] and t[k]["offsets"] == [places[f"data/{k}"]]
            assert align == 1 or places[f"data/{k}"] % align == 0
    state = {"w": tf.tensor("0", 1, (1,), cls="torch.IntStorage")}
    places = tf.write_torch("pre.pt", state, {"0": b"abcd"}, prefix=b"#!/bin/sh\n" * 9, folder="renamed", comment=b"bye")
    out = values("pre.pt")
    assert out["tensors"]["w"]["offsets"] == [places["data/0"]] and any("90 bytes before" in n for n in out["notes"])
    check_sums("pre.pt", out)
    longer = tf.write_torch("long.pt", state, {"0": b"abcdefgh"})
    assert values("long.pt")["tensors"]["w"]["offsets"] == [longer["data/0"]]
    os.rename("long.pt", "something_else.bin")
    assert values("something_else.bin")["format"] == "pytorch"


def test_out_of_bounds():
    data = bytes(24)
    cases = [((7,), (1,), 0), ((6,), (1,), 1), ((2, 3), (4, 1), 0), ((2,), (5,), 1), ((2,), (-1,), 1), ((1,), (1,), -1),
             ((1,), (1,), 6), ((2,), (2**62,), 0), ((2**33, 2**33), (1, 1), 0), ((2, 2), (2**63 - 1, 2**63 - 1), 0),
             ((1,), (1,), 2**63 - 1)]
    for shape, stride, offset in cases:
        tf.write_torch("b.pt", {"w": tf.tensor("0", 6, shape, stride, offset)}, {"0": data})
        refused("b.pt", "tensor w")
        tf.write_legacy("b.pth", {"w": tf.tensor("0", 6, shape, stride, offset)}, {"0": (6, data)})
        refused("b.pth", "tensor w")
    tf.write_torch("b.pt", {"w": tf.tensor("0", 6, (2, 3), (4, 1))}, {"0": data})
    refused("b.pt", "out of bounds")
    tf.write_torch("b.pt", {"w": tf.tensor("0", 6, (1, 6), (10**9, 1)), "e": tf.tensor("0", 6, (0, 9), (9, 1), 6),
                            "x": tf.tensor("0", 6, (10**6, 6), (0, 1))}, {"0": data})
    t = values("b.pt")["tensors"]  # strides of single steps may be anything
    assert t["w"]["n_elems"] == 6 and "expanded" in t["x"]["shared"]
    tf.write_torch("b.pt", {"w": tf.tensor("0", 7, (6,))}, {"0": data})
    refused("b.pt", "truncated", "data/0", "24 bytes")
    tf.write_torch("b.pt", {"w": tf.tensor("0", 6, (6,)), "v": tf.tensor("1", 6, (6,))}, {"0": data})
    t = values("b.pt")["tensors"]
    assert "missing" in t["v"]["locked"] and "unreadable" in t["v"] and t["w"]["locked"] is None
    for bad in [(1.5,), ("x",), None]:
        tf.write_torch("b.pt", {"w": tf.call("torch._utils._rebuild_tensor_v2", tf.storage("0", 6), 0, bad, (1,), False, {})}, {"0": data})
        refused("b.pt", "tensor w")


def test_truncated():
    torch.save({f"layer{i}": torch.full((100,), float(i)) for i in range(20)}, "t.pt")
    data = open("t.pt", "rb").read()
    for percent in (10, 50, 99):
        open("cut.pt", "wb").write(data[:len(data) * percent // 100])
        refused("cut.pt", "truncated", "whole")
    torch.save({f"layer{i}": torch.full((100,), float(i)) for i in range(20)}, "t.pth", _use_new_zipfile_serialization=False)
    data = open("t.pth", "rb").read()
    for percent in (1, 10, 50, 99):
        open("cut.pth", "wb").write(data[:len(data) * percent // 100])
        refused("cut.pth", "truncated")
    open("cut.pth", "wb").write(data[:-100])
    refused("cut.pth", "first of 20 that is not whole; 19 before it are")
    open("lfs.pt", "w").write("version https://git-lfs.github.com/spec/v1\noid sha256:" + "ab" * 32 + "\nsize 12345\n")
    refused("lfs.pt", "Git LFS", "abab", "12345", error="UNSUPPORTED")


def test_deflated():
    """Files that another tool packed again load in PyTorch, too."""
    state = varied()
    torch.save(state, "a.pt")
    with zipfile.ZipFile("a.pt") as z, zipfile.ZipFile("d.pt", "w", zipfile.ZIP_DEFLATED) as d:
        for i in z.infolist():
            d.writestr(i.filename, z.read(i))
    loaded = dict(walk(torch.load("d.pt")))
    out = values("d.pt")
    for name, t in by_name(out).items():
        assert bytes.fromhex(t["values"]) == raw(loaded[name]), name
        assert t["n_elems"] == 0 or "deflate" in t["unmapped"], t


def test_globals():
    class Evil:
        def __reduce__(self):
            return (os.system, ("touch ran",))
    for legacy in (False, True):
        torch.save({"w": torch.ones(3), "evil": Evil(), "z": torch.ones(2)}, "e.pt", _use_new_zipfile_serialization=not legacy)
        out = values("e.pt")
        assert set(out["tensors"]) == {"w", "z"} and not os.path.exists("ran")
        assert any("posix.system" in n and "nothing was executed" in n for n in out["notes"]), out["notes"]
    import argparse
    torch.save({"w": torch.ones(3), "args": argparse.Namespace(lr=0.1), "o": collections.Counter("ab")}, "n.pt")
    assert values("n.pt")["notes"] == []


def test_odd_containers():
    cycle = tf.Raw(b"}q\x05(" + tf.put("self") + b"h\x05" + tf.put("w") + tf.tensor("0", 1, (1,)) + b"u")
    tf.write_torch("c.pt", cycle, {"0": bytes(4)})
    t = values("c.pt")["tensors"]
    assert any(n == "w" or "w" in x["aliases"] for n, x in t.items())
    deep = tf.tensor("0", 1, (1,))
    for _ in range(1000):
        deep = tf.Raw(b"](" + deep + b"e")
    tf.write_torch("c.pt", deep, {"0": bytes(4)})
    out = values("c.pt")
    assert out["tensors"] == {} and any("nested deeper" in n for n in out["notes"])
    laughs = b"]q\x00" + tf.put([tf.tensor("0", 1, (1,))])  # each list holds the one before ten times
    for i in range(1, 40):
        laughs += b"](" + (b"h" + bytes([i - 1])) * 10 + b"eq" + bytes([i])
    tf.write_torch("c.pt", b"\x80\x02" + laughs + b".", {"0": bytes(4)})
    values("c.pt")
    same = {1: tf.tensor("0", 1, (1,)), "1": tf.tensor("1", 1, (1,)), ("a", 2): tf.tensor("2", 1, (1,))}
    tf.write_torch("c.pt", same, {str(i): bytes(4) for i in range(3)})
    assert set(values("c.pt")["tensors"]) == {"1", "1#2", "(a,2)"}
    ordered = tf.call("collections.OrderedDict", [["w", tf.tensor("0", 1, (1,))], ["v", tf.tensor("1", 1, (1,))]])
    tf.write_torch("c.pt", ordered, {"0": bytes(4), "1": bytes(4)})  # as Python 2 wrote them
    assert set(values("c.pt")["tensors"]) == {"w", "v"}
    torch.save({"s": torch.arange(3.0).storage()}, "st.pt")
    assert values("st.pt")["tensors"]["s"]["n_elems"] == 3


def test_legacy():
    a, b = struct.pack("<4f", 1, 2, 3, 4), struct.pack("<3d", 5, 6, 7)
    state = {"b": tf.tensor("9", 3, (3,), cls="torch.DoubleStorage"), "a": tf.tensor("10", 4, (4,))}
    places = tf.write_legacy("l.pth", state, {"10": (4, a), "9": (3, b)})
    t = values("l.pth")["tensors"]
    assert t["a"]["offsets"][0] == places["10"] and t["b"]["offsets"][0] == places["9"]
    view = tf.call("torch._utils._rebuild_tensor", tf.storage("10", 4, view=("11", 1, 2)), 1, (1,), (1,))
    tf.write_legacy("v.pth", {"v": view}, {"10": (4, a)})  # a view of a storage of old writers
    assert bytes.fromhex(values("v.pth")["tensors"]["v"]["values"]) == a[8:12]
    tf.write_legacy("v.pth", {"v": tf.call("torch._utils._rebuild_tensor", tf.storage("10", 4, view=("11", 3, 2)), 0, (1,), (1,))},
                    {"10": (4, a)})
    refused("v.pth", "out of bounds")
    tf.write_legacy("w.pth", state, {"10": (5, a), "9": (3, b)})
    refused("w.pth", "count 5", "pickle says 4")
    tf.write_legacy("w.pth", state, {"10": (4, a), "9": (3, b), "77": (1, b)})
    refused("w.pth", "storage 77")
    tf.write_legacy("w.pth", state, {"10": (4, a)})
    t = values("w.pth")["tensors"]
    assert "missing" in t["b"]["locked"] and t["a"]["locked"] is None
    tf.write_legacy("w.pth", state, {"10": (4, a), "9": (3, b)}, rest=open("l.pth", "rb").read())
    assert any("another save" in n for n in values("w.pth")["notes"])
    tf.write_legacy("w.pth", state, {"10": (4, a), "9": (3, b)}, protocol=4)
    assert set(values("w.pth")["tensors"]) == {"a", "b"}
    with tarfile.open("oldest.pt", "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    refused("oldest.pt", "oldest", "tar", error="UNSUPPORTED")


def test_legacy_over_2_gib():
    """Sizes of storages over 2 and 4 GiB; the file is sparse."""
    for numel in (3 * 2**28, 2**30 + 5):
        state = {"large": tf.tensor("1", numel, (numel,)), "small": tf.tensor("2", 3, (3,))}
        small = struct.pack("<3f", 1, 2, 3)
        places = tf.write_legacy("large.pth", state, {"1": (numel, b""), "2": (3, small)}, holes={"1": 4 * numel})
        m = tool("map", "large.pth", "small", 1)
        assert m["offset"] == places["2"] + 4 and places["2"] > 4 * numel, m
        assert tool("map", "large.pth", "large", numel - 1)["offset"] == places["1"] + 4 * (numel - 1)
        os.remove("large.pth")


def test_over_4_gib():
    """Sizes and offsets in the zip64 fields that are needed, and no others."""
    numel = 2**30 + 7
    state = {"large": tf.tensor("0", numel, (numel,)), "small": tf.tensor("1", 3, (3,))}
    places = tf.write_sparse_zip("large.pt", {"data.pkl": tf.dumps(state), "data/0": 4 * numel, "data/1": struct.pack("<3f", 1, 2, 3),
                                              "version": b"3\n"})
    assert places["data/1"] > 2**32
    for name, k, place in [("large", numel - 1, "data/0"), ("small", 2, "data/1")]:
        assert tool("map", "large.pt", name, k)["offset"] == places[place] + 4 * k
    sums = {s["what"]: s for s in tool("list", "large.pt")["sums"]}
    assert sums["member archive/data/0"]["unknown"] and sums["member archive/data/0"]["size"] == 4 * numel
    small = sums["member archive/data/1"]
    with open("large.pt", "rb") as f:
        for _, at in small["places"]:
            f.seek(at)
            assert struct.unpack("<I", f.read(4))[0] == zlib.crc32(struct.pack("<3f", 1, 2, 3))
    os.remove("large.pt")


def test_unchanged_by_reading():
    torch.save(varied(), "u.pt")
    before = (os.stat("u.pt").st_mtime_ns, open("u.pt", "rb").read())
    values("u.pt")
    tool("diff", "u.pt", "u.pt")
    assert before == (os.stat("u.pt").st_mtime_ns, open("u.pt", "rb").read())


def test_damage():
    """A byte of data.pkl changed: another listing or a refusal, in bounded memory."""
    limit = memory_limit(TOOL, 1 << 28)
    tf.write_torch("d.pt", {"w": tf.tensor("0", 6, (2, 3)), "s": ["x", 1.5]}, {"0": bytes(24)})
    data = open("d.pt", "rb").read()
    at = data.index(b"\x80\x02")
    end = data.index(b"PK\7\10", at)
    for i in range(at, end, 2):
        for flip in (0x01, 0x80):
            open("dd.pt", "wb").write(data[:i] + bytes([data[i] ^ flip]) + data[i + 1:])
            tool("list", "dd.pt", limit=limit)


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "ok", flush=True)


if __name__ == "__main__":
    main()
