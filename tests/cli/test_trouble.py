# SPDX-License-Identifier: Apache-2.0
"""Troubles that people met with HDF5 and PyTorch files, through the program: what every command says of
files that are none, that reading changes nothing, that altering changes the planned bytes and no others
in files of any size, and that stored sums are never made up."""
import fcntl
import glob
import hashlib
import io
import json
import os
import struct
import subprocess
import zipfile

import h5py
import numpy as np

from audit_kit import SDCLAB, as_json, main, run, save

try:
    import torch
    import torch_files as tf
except ImportError:
    torch = None

rng = np.random.default_rng(12)


def fresh(*names):
    for name in names:
        for path in glob.glob(name) + glob.glob(name + ".*"):
            os.remove(path)


def changes(path):
    with open(path + ".sdc.jsonl") as f:
        return [line for line in map(json.loads, f) if line["type"] == "change"]


def data_of(path):
    with open(path, "rb") as f:
        return f.read()


def nonzero(path):
    """{offset: byte} of a sparse file's bytes that are not zero."""
    found = {}
    with open(path, "rb") as f:
        end = os.fstat(f.fileno()).st_size
        at = 0
        while at < end:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole from here on
                break
            stop = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            assert stop - at < 1 << 24, "more than a hole"
            f.seek(at)
            found.update((at + i, b) for i, b in enumerate(f.read(stop - at)) if b)
            at = stop
    return found


def damages(found):
    return [f for f in found["findings"] if f["kind"] == "damage"]


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "5e" * 32 + "\nsize 4711\n"


def test_every_command_names_a_pointer_of_git_lfs():
    for name in ("p.h5", "p.pt", "p.keras", "p.ckpt"):
        with open(name, "w") as f:
            f.write(POINTER)
        for command in (["inspect", name], ["alter", name, "-o", "x", "--flips", 1], ["alter", name, "--in-place", "--flips", 1],
                        ["diff", name, name], ["verify", name], ["scan", name], ["seal", name]):
            said = "5e" * 32 + ", 4711 bytes"
            run(*command, code=3, err="Git LFS pointer")
            run(*command, code=3, err=said)
        assert data_of(name) == POINTER.encode() and not os.path.exists("x")


def samples():
    """One file of each kind, and what else belongs to it."""
    x = rng.standard_normal((40, 30)).astype("f4")
    fresh("s", "copy")
    with h5py.File("s.h5", "w", libver="latest") as f:
        f["plain"] = x
        f.create_dataset("gzip", data=x, chunks=(7, 11), compression="gzip")
        f.create_dataset("sum", data=x, chunks=(7, 11), fletcher32=True)
    inner = io.BytesIO(data_of("s.h5"))
    with zipfile.ZipFile("s.keras", "w") as z:
        z.writestr("config.json", "{}")
        z.writestr("model.weights.h5", inner.getvalue())
    names = ["s.h5", "s.keras"]
    if torch:
        torch.save({"w": torch.from_numpy(x), "t": torch.from_numpy(x).t()}, "s.pt")
        torch.save({"w": torch.from_numpy(x)}, "s.pth", _use_new_zipfile_serialization=False)
        names += ["s.pt", "s.pth"]
    return names


def test_reading_changes_no_file():
    for name in samples():
        os.utime(name, ns=(10**18, 10**18))
        os.chmod(name, 0o444)
        before = hashlib.sha256(data_of(name)).digest()
        folder = sorted(os.listdir("."))
        for command in (["inspect", name, "--checksums"], ["diff", name, name], ["verify", name, "--finite"], ["scan", name]):
            run(*command)
        assert sorted(os.listdir(".")) == folder, name
        status = os.stat(name)
        assert status.st_mtime_ns == 10**18 and hashlib.sha256(data_of(name)).digest() == before, name
        os.chmod(name, 0o644)


def test_a_locked_file_is_left_alone_at_once():
    for name in samples():
        before = data_of(name)
        with open(name, "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            run("alter", name, "--in-place", "--flips", 1, code=4, err="lock")
            run("alter", name, "-o", "copy", "--flips", 1, code=4, err="lock")
        assert data_of(name) == before and not os.path.exists(name + ".sdc.jsonl") and not os.path.exists("copy")


def test_planned_bytes_and_no_others_in_place():
    """The length stays; what differs are the planned bytes and the sums over them."""
    for name in samples():
        before = data_of(name)
        fresh(name + "x")
        chosen = ["--not-tensors", "gzip"] if "pt" not in name else []
        run("alter", name, "--in-place", "--flips", 6, "--seed", 3, *chosen)
        after, planned = data_of(name), changes(name)
        assert len(after) == len(before) and len(planned) == 6
        at = {i for i in range(len(before)) if before[i] != after[i]}
        elements = {c["offset"] + i for c in planned for i, (a, b) in
                    enumerate(zip(bytes.fromhex(c["old"]), bytes.fromhex(c["new"]))) if a != b}
        assert elements <= at, (name, elements - at)
        if name == "s.pth":
            assert elements == at
        if name in ("s.pt", "s.keras"):
            with zipfile.ZipFile(name) as z:
                assert z.testzip() is None
        assert len(at - elements) <= 8 + 4 * 6 + 8, (name, len(at - elements))
        run("undo", name + ".sdc.jsonl")
        assert data_of(name) == before


def test_planned_bytes_and_no_others_over_4_gib():
    """In place, in sparse files: of those nothing else is even written."""
    n = (1 << 30) + 100
    fresh("big.h5")
    with h5py.File("big.h5", "w") as f:
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        dcpl.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(f.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((n,)), dcpl=dcpl)
    names = ["big.h5"]
    if torch:
        fresh("big.pt", "big.pth")
        state = {"x": tf.tensor("0", n, (n,))}
        tf.write_sparse_zip("big.pt", {"data.pkl": tf.dumps(state), "data/0": 4 * n, "version": b"3\n"})
        tf.write_legacy("big.pth", state, {"0": (n, b"")}, holes={"0": 4 * n})
        names += ["big.pt", "big.pth"]
    for name in names:
        before = nonzero(name)
        size = os.path.getsize(name)
        run("alter", name, "--in-place", "--at", f"x[{n - 1}]@lsb:30", "--at", f"x[{n // 2}]@lsb:22")
        after = nonzero(name)
        assert os.path.getsize(name) == size
        differ = sorted(at for at in before.keys() | after.keys() if before.get(at, 0) != after.get(at, 0))
        planned = sorted(c["offset"] + i for c in changes(name)
                         for i in range(4) if c["old"][2 * i:2 * i + 2] != c["new"][2 * i:2 * i + 2])
        assert differ == planned and len(planned) == 2 and planned[1] > 1 << 32, (name, differ, planned)
        run("undo", name + ".sdc.jsonl")
        restored = nonzero(name)
        assert all(before.get(at, 0) == restored.get(at, 0) for at in before.keys() | restored.keys())
        fresh(name)


def test_a_sum_that_the_writer_left_out_is_not_made_up():
    if not torch:
        return
    w = struct.pack("<6f", *range(1, 7))
    state = {"w": tf.tensor("0", 6, (6,)), "hole": tf.tensor("1", 6, (6,))}
    tf.write_torch("zero.pt", state, {"0": w, "1": bytes(24)}, crc=False)
    for where in ("w[2]@lsb:5", "hole[2]@lsb:5"):
        fresh("out.pt")
        before = data_of("zero.pt")
        said = run("alter", "zero.pt", "-o", "out.pt", "--at", where)
        assert "1 checksum not mended: the file's writer left it out" in said and "mended\n" not in said, said
        after = data_of("out.pt")
        assert len(before) == len(after) and sum(a != b for a, b in zip(before, after)) == 1
        found = as_json("verify", "out.pt", schema="verify-1.json")
        assert found["verdict"] == "not checked" and found["checksums"]["not_checked"] == 4 and not damages(found), found
    # records that were reserved and never filled are no damage, and told
    notes = as_json("inspect", "zero.pt")["files"][0]["notes"]
    assert any("zeros only (data/1)" in n["text"] for n in notes), notes


def test_a_stale_sum_names_the_member_and_pytorch_reads_on():
    if not torch:
        return
    torch.save({"a": torch.ones(50), "b": torch.full((60,), 2.0)}, "crc.pt")
    for how, code in (("stale", 1), ("mend", 0)):
        fresh("out.pt")
        run("alter", "crc.pt", "-o", "out.pt", "--at", "b[7]@lsb:22", "--checksum", how)
        found = as_json("verify", "out.pt", code=code, schema="verify-1.json")
        assert [("data/1" in d["object"], "CRC-32" in d["text"]) for d in damages(found)] == [(True, True)] * code
        loaded = torch.load("out.pt")
        differ = loaded["b"] != 2
        assert differ.sum() == 1 and differ[7] and (loaded["a"] == 1).all()
        with zipfile.ZipFile("out.pt") as z:
            assert (z.testzip() is None) == (how == "mend")


def test_layouts_of_one_tensor_have_no_difference():
    if not torch:
        return
    x = torch.randn(5, 7)
    torch.save({"w": x.t()}, "turned.pt")
    torch.save({"w": x.t().contiguous()}, "straight.pt")
    torch.save({"w": x.t()}, "turned.pth", _use_new_zipfile_serialization=False)
    torch.save({"w": torch.randn(9, 9, 9).new_zeros(9, 7).as_strided((7, 5), (1, 9), 3).copy_(x.t())}, "window.pt")
    assert data_of("turned.pt") != data_of("straight.pt")
    for other in ("turned.pt", "turned.pth", "window.pt"):
        found = as_json("diff", "straight.pt", other, code=None)
        assert found["differing_elements"] == 0 and found["tensors_b"] == 1 and found["same_bits"], found
    fresh("one.pt")
    run("alter", "turned.pt", "-o", "one.pt", "--at", "w[6,1]@lsb:3")
    found = as_json("diff", "straight.pt", "one.pt", code=1)
    assert found["differing_elements"] == 1, found
    differ = (torch.load("one.pt")["w"] != x.t()).nonzero().tolist()
    assert differ == [[6, 1]]


def test_bytes_of_no_tensor_are_never_drawn():
    if not torch:
        return
    torch.save({"view": torch.zeros(10_000_000)[4_000_000:4_000_010]}, "view.pt")
    notes = as_json("inspect", "view.pt")["files"][0]["notes"]
    assert any("39999960 of its 40000000 bytes belong to no tensor" in n["text"] for n in notes), notes
    fresh("out.pt")
    run("alter", "view.pt", "-o", "out.pt", "--flips", 300, "--seed", 1)
    old, new = (torch.load(n)["view"].as_strided((10_000_000,), (1,), 0).numpy().view("u4") for n in ("view.pt", "out.pt"))
    differ = np.flatnonzero(old != new)
    assert 8 <= len(differ) <= 10 and all(4_000_000 <= i < 4_000_010 for i in differ), differ
    fresh("view.pt", "out.pt")


def test_values_that_are_no_numbers_are_counted_and_kept():
    bits = np.array([0x3f80, 0x7fc0, 0xffc1, 0x7f80, 0xff80, 0x0001], "u2")
    with h5py.File("nan.h5", "w") as f:
        f["labelled"] = bits.view("V2")
        f["labelled"].attrs["dtype"] = "bfloat16"
        f["opaque"] = bits.view("V2")
        t = h5py.h5t.IEEE_F32LE.copy()  # as HDF5 2.0's own type has it
        t.set_fields(15, 7, 8, 0, 7)
        t.set_size(2)
        t.set_ebias(127)
        d = h5py.h5d.create(f.id, b"native", t, h5py.h5s.create_simple((6,)))
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, bits, t)
    before = data_of("nan.h5")
    found = as_json("scan", "nan.h5", "--as", "opaque=bf16")
    counts = {t["name"]: (t["nan"], t["inf"]) for t in found["tensors"]}
    assert counts == {n: (2, 2) for n in ("labelled", "opaque", "native")}, counts
    names = ["nan.h5"]
    if torch:
        torch.save({"fine": torch.ones(4), "bad": torch.tensor([1, float("nan"), float("inf"), float("nan")])}, "nan.pt")
        names.append("nan.pt")
    for name in names:
        found = as_json("verify", name, "--finite", code=1, schema="verify-1.json")
        bad = {f["object"]: f["text"] for f in found["findings"] if f["kind"] == "not finite"}
        assert bad == ({"bad": "2 NaN, 1 Inf"} if name == "nan.pt" else {n: "2 NaN, 2 Inf" for n in ("labelled", "native")}), bad
    assert data_of("nan.h5") == before


def test_a_damaged_layout_is_an_error_and_no_empty_data_set():
    x = np.arange(24, dtype="f4").reshape(4, 6)
    with h5py.File("l.h5", "w", libver="earliest") as f:
        f.create_dataset("chunks", data=x, chunks=(2, 6))
        f.create_dataset("never", shape=(4, 6), dtype="f4")
    tensors = {t["name"]: t for t in as_json("inspect", "l.h5")["files"][0]["tensors"]}
    assert not tensors["never"]["alterable"] and "never written" in json.dumps(tensors["never"]), tensors["never"]
    whole = data_of("l.h5")
    at = whole.index(b"TREE\x01")
    for where, new in ((at, b"EERT"), (at + 4, b"\x07"), (at + 6, b"\xff\xff")):  # signature, kind, number of entries
        bad = bytearray(whole)
        bad[where:where + len(new)] = new
        with open("bad.h5", "wb") as f:
            f.write(bad)
        found = as_json("verify", "bad.h5", code=1)
        assert damages(found), found
        p = subprocess.run([SDCLAB, "inspect", "bad.h5", "--json"], capture_output=True, text=True, timeout=100)
        if p.returncode == 0:
            (t,) = (t for t in json.loads(p.stdout)["files"][0]["tensors"] if t["name"] == "chunks")
            assert not t["alterable"] and "never written" not in json.dumps(t), t


def test_scaleoffset_is_not_altered_and_its_damage_ends_nothing():
    x = rng.integers(-500, 500, (8, 64)).astype("i4")
    with h5py.File("so.h5", "w") as f:
        f.create_dataset("scale", data=x, chunks=(4, 64), scaleoffset=0)
        f["free"] = x
        place = f["scale"].id.get_chunk_info(0)
    fresh("out.h5")
    run("alter", "so.h5", "-o", "out.h5", "--at", "scale[0,0]@lsb:3", code=3, err="scaleoffset")
    run("alter", "so.h5", "-o", "out.h5", "--flips", 20)
    assert {c["tensor"] for c in changes("out.h5")} == {"free"}
    whole = data_of("so.h5")
    for at in range(place.byte_offset, place.byte_offset + 24):
        for new in (0, 0x7f, 0xff):
            bad = bytearray(whole)
            bad[at] = new
            with open("bad.h5", "wb") as f:
                f.write(bad)
            found = as_json("verify", "bad.h5", code=None)
            assert found["verdict"] in ("damaged", "not checked"), found


def test_undo_of_a_chunk_that_moved_restores_the_values():
    with h5py.File("z.h5", "w") as f:
        f.create_dataset("z", data=np.zeros(4096, "f4"), chunks=(4096,), compression="gzip")
        f["behind"] = np.ones(9)
        old = f["z"].id.get_chunk_info(0)
    fresh("out.h5")
    run("alter", "z.h5", "-o", "out.h5", "--flips", 60, "--tensors", "z")
    with h5py.File("out.h5") as f:
        new = f["z"].id.get_chunk_info(0)
        assert np.count_nonzero(f["z"][()]) > 40 and new.size > old.size
    run("undo", "out.h5.sdc.jsonl")
    with h5py.File("out.h5") as f:
        assert not f["z"][()].any() and (f["behind"][()] == 1).all()


def zero_tails(path):
    """What scan and verify say of it, which is the same."""
    found = as_json("scan", path, schema="scan-1.json")["notes"]
    said = [f["text"] for f in as_json("verify", path, code=None)["findings"] if f["kind"] == "note" and "zero" in f["text"]]
    assert ["warning: " + n for n in found] == said, (found, said)
    if found:
        run("scan", path, out=found[0])
    return found


def test_an_end_of_zeros_is_told():
    """As an interrupted download into space taken beforehand leaves it."""
    x = rng.standard_normal(5000).astype("f4")
    x[4999] = 1
    save("z.safetensors", {"a": ("F32", x.view("u4")), "b": ("F32", x.view("u4")), "c": ("I64", np.arange(1000) + 7)})
    whole = data_of("z.safetensors")
    assert zero_tails("z.safetensors") == []
    end_of_b = len(whole) - 8000

    def cut(at):
        with open("z.safetensors", "wb") as f:
            f.write(whole[:at] + bytes(len(whole) - at))
        return zero_tails("z.safetensors")

    # inside b: its elements 1001 to 4999, and c
    (text,) = cut(end_of_b - 4 * 3999 - 2)
    n = len(whole) - len(whole[:end_of_b - 4 * 3999 - 2].rstrip(b"\0"))
    assert f"the last {n} of the {len(whole)} bytes of z.safetensors are zero, from element 1001 of tensor b on, " in text, text
    assert "1 tensor as a whole" in text and "interrupted" in text and "so do tensors" not in text
    # c alone, or a few bytes: zeros that may be meant
    (text,) = cut(end_of_b)
    assert "1 tensor as a whole" in text and " in part" not in text and "from element" not in text and "so do tensors" in text
    assert cut(len(whole) - 4000) == []
    # without a directory at its end an archive is no archive any more
    if torch:
        torch.save({"w": torch.ones(9000), "v": torch.ones(9000)}, "z.pt")
        whole = data_of("z.pt")
        with open("z.pt", "wb") as f:
            f.write(whole[:50000] + bytes(len(whole) - 50000))
        run("scan", "z.pt", code=3, err=f"the directory at the end of the zip archive is missing; the file's last {len(whole) - 50000} ")
        (damage,) = damages(as_json("verify", "z.pt", code=1))
        assert "bytes are zero; 2 members are whole" in damage["text"], damage
        torch.save({"w": torch.ones(9000)}, "z.pth", _use_new_zipfile_serialization=False)
        whole = data_of("z.pth")
        with open("z.pth", "wb") as f:
            f.write(whole[:-20000] + bytes(20000))
        assert "from element 4000 of tensor w on" in zero_tails("z.pth")[0]


def test_differences_are_told_by_tensor_and_place():
    if not torch:
        return
    a = {"first": torch.zeros(9), "second": torch.arange(20.0).reshape(4, 5)}
    b = {"first": torch.zeros(9), "second": a["second"].clone()}
    b["second"][2, 3] += 1
    b["second"][3, 0] -= 1  # the sum of all elements stays
    torch.save(a, "a.pt")
    torch.save(b, "b.pt")
    found = as_json("diff", "a.pt", "b.pt", code=1)
    assert [t["name"] for t in found["tensors"] if t["differing"]] == ["second"], found
    text = run("diff", "a.pt", "b.pt", code=1)
    assert "second[2,3]" in text and "13" in text, text
    fresh("a.pt.seal")
    run("seal", "a.pt")
    os.replace("b.pt", "a.pt")
    found = as_json("verify", "a.pt", code=1, schema="verify-1.json")
    assert [d["object"] for d in damages(found)] == ["a.pt", "second"], found


if __name__ == "__main__":
    main(globals())
