#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdclab seal and verify: damage of every kind is found and placed, nothing is called sound that nobody
vouches for, and what the seal says is what xxHash says."""
import copy
import json
import os
import shutil
import stat

import h5py
import numpy as np

from audit_kit import as_json, bits, main, peak_kib, run, save, sparse, validator

rng = np.random.default_rng(3)


def verify(*args, code=0):
    found = as_json("verify", *args, code=code, schema="verify-1.json")
    assert found["failed"] == (code == 1)
    return found


def damages(found):
    return [f for f in found["findings"] if f["kind"] == "damage"]


def fresh(name="a.safetensors"):
    for left in (name + ".seal", name):
        if os.path.exists(left):
            os.remove(left)
    tensors = {"big.weight": bits(rng.normal(0, 1, 5_000_000).astype(np.float32)),
               "mid.weight": bits(rng.normal(0, 1, (300, 200)).astype(np.float32)),
               "few.bias": bits(np.arange(10, dtype=np.float16)),
               "step": ("I64", np.array(7, np.uint64)), "none": ("F32", np.zeros((0, 4)))}
    save(name, tensors)
    return tensors


def sealed(path):
    seal = json.load(open(path + ".seal"))
    validator("seal-1.json").validate(seal)
    return seal


def test_nothing_is_sound_that_nobody_vouches_for():
    fresh()
    found = verify("a.safetensors")
    assert found["verdict"] == "not checked" and found["seal"] == "not checked" and found["covered"] == 1
    text = run("verify", "a.safetensors")
    assert "stored checksums: not checked" in text and "seal: not checked" in text and "sound\n" in text
    assert not text.endswith("\nsound\n") and "good" not in text
    verify("a.safetensors", "--require-checksums", code=1)
    run("seal", "a.safetensors")
    assert verify("a.safetensors", "--require-checksums")["verdict"] == "sound"
    assert run("verify", "a.safetensors").endswith("\nsound\n")


def test_a_seal_holds_the_digests_of_the_elements():
    try:
        import xxhash
    except ImportError:
        xxhash = None
    tensors = fresh()
    made = as_json("seal", "a.safetensors")
    assert made["seal"] == "a.safetensors.seal" and made["tensors"] == 5
    seal = sealed("a.safetensors")
    assert seal["files"][0]["size"] == os.path.getsize("a.safetensors") == made["bytes"]
    assert [t["name"] for t in seal["tensors"]] == sorted(tensors)
    big = next(t for t in seal["tensors"] if t["name"] == "big.weight")
    assert big["block"] == 32768 and len(big["blocks"]) == 153
    if xxhash:
        assert seal["files"][0]["xxh3"] == xxhash.xxh3_128_hexdigest(open("a.safetensors", "rb").read())
        for t in seal["tensors"]:
            raw = np.asarray(tensors[t["name"]][1]).reshape(-1)
            assert t["xxh3"] == xxhash.xxh3_128_hexdigest(raw.tobytes()), t["name"]
            for k, block in enumerate(t.get("blocks", [])):
                piece = raw[k * t["block"]:(k + 1) * t["block"]]
                assert block == xxhash.xxh3_128_hexdigest(piece.tobytes())[:16]
    first = open("a.safetensors.seal", "rb").read()
    run("seal", "a.safetensors", code=4, err="exists already")
    run("seal", "a.safetensors", "--force", "--threads", 1)
    assert open("a.safetensors.seal", "rb").read() == first  # equal checkpoints, equal seals
    os.symlink("a.safetensors", "link")
    before = open("a.safetensors", "rb").read()
    for to in ("a.safetensors", "./a.safetensors", "link"):  # a seal never takes the place of what it seals
        run("seal", "a.safetensors", "-f", "-o", to, code=2, err="which is to be sealed")
        assert open("a.safetensors", "rb").read() == before
    os.remove("link")
    assert not [n for n in os.listdir(".") if n.startswith(".sdc-tmp")]


def test_digests_do_not_depend_on_the_format():
    """The same values in HDF5, chunked and big-endian, have the same digests."""
    tensors = fresh()
    raw = tensors["mid.weight"][1].view(np.float32)
    with h5py.File("a.h5", "w") as f:
        f.create_dataset("mid.weight", data=raw.astype(">f4"), dtype=">f4", chunks=(7, 9))
    run("seal", "a.safetensors")
    run("seal", "a.h5", "--force")
    pick = lambda path: next(t for t in sealed(path)["tensors"] if t["name"] == "mid.weight")
    assert pick("a.h5")["xxh3"] == pick("a.safetensors")["xxh3"]
    assert verify("a.h5")["verdict"] == "sound"


def test_flipped_bits_are_placed():
    fresh()
    run("seal", "a.safetensors")
    before = os.stat("a.safetensors")
    altered = as_json("alter", "a.safetensors", "-o", "b.safetensors", "--flips", 3, "--seed", 5, "--no-record",
                      "--tensors", "*.weight", "--force")
    elems = {}
    for c in altered["changes"]:
        elems.setdefault(c["tensor"], []).append(c["elem"])
    found = verify("b.safetensors", "--seal", "a.safetensors.seal", code=1)
    by_tensor = {f["object"]: f for f in damages(found) if "first_elem" in f}
    assert by_tensor.keys() == elems.keys(), (by_tensor, elems)
    for name, f in by_tensor.items():
        assert f["first_elem"] <= min(elems[name]) <= f["last_elem"], (f, elems)
    text = run("verify", "b.safetensors", "--seal", "a.safetensors.seal", code=1)
    assert "damaged" in text and "blocks, first between elements" in text
    for threads in (1, 2, 5):
        assert as_json("verify", "b.safetensors", "--seal", "a.safetensors.seal", "--threads", threads, code=1) == found
    after = os.stat("a.safetensors")  # looking changes nothing
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


def test_changes_outside_of_tensors_are_found():
    fresh()
    run("seal", "a.safetensors")
    data = bytearray(open("a.safetensors", "rb").read())
    n = int.from_bytes(data[:8], "little")
    text = data[8:8 + n].decode()
    changed = text.replace(": ", ":", 1) + " "
    data[8:8 + n] = changed.encode()
    open("a.safetensors", "wb").write(data)
    found = verify("a.safetensors", code=1)
    assert [f["object"] for f in damages(found)] == ["a.safetensors"]
    assert any(f["kind"] == "note" and "every tensor is as sealed" in f["text"] for f in found["findings"])


def test_missing_new_and_reshaped_tensors():
    tensors = fresh()
    run("seal", "a.safetensors")
    other = dict(tensors)
    del other["few.bias"]
    other["new"] = ("F32", np.zeros(3))
    other["mid.weight"] = (tensors["mid.weight"][0], tensors["mid.weight"][1].reshape(200, 300))
    save("c.safetensors", other)
    texts = {f["object"]: f["text"] for f in damages(verify("c.safetensors", "--seal", "a.safetensors.seal", code=1))}
    assert "missing" in texts["few.bias"] and "not sealed" in texts["new"]
    assert "shape" in texts["mid.weight"] and "big.weight" not in texts


def test_truncated_and_senseless_files_are_damaged():
    fresh()
    run("seal", "a.safetensors")
    whole = open("a.safetensors", "rb").read()
    for cut in (len(whole) - 1, len(whole) // 2, 100, 9):
        open("cut.safetensors", "wb").write(whole[:cut])
        found = verify("cut.safetensors", code=1)
        assert not found["opened"] and found["verdict"] == "damaged", cut
        found = verify("cut.safetensors", "--seal", "a.safetensors.seal", code=1)
        assert any("sealed with" in f["text"] for f in damages(found)), cut
    with h5py.File("whole.h5", "w") as f:
        f["w"] = np.arange(1000, dtype=np.float32)
    data = open("whole.h5", "rb").read()
    open("cut.h5", "wb").write(data[:-1000])
    assert verify("cut.h5", code=1)["verdict"] == "damaged"
    assert "structure: damaged" in run("verify", "cut.h5", code=1)


def test_what_is_refused():
    run("verify", "nowhere.safetensors", code=4, err="nowhere.safetensors")
    open("words.txt", "w").write("nothing of the kind\n" * 20)
    run("verify", "words.txt", code=3, err="words.txt")
    open("pointer.safetensors", "w").write("version https://git-lfs.github.com/spec/v1\noid sha256:" + 64 * "0" + "\nsize 123\n")
    run("verify", "pointer.safetensors", code=3, err="LFS")
    fresh()
    run("verify", "a.safetensors", "--seal", "no.seal", code=4, err="no.seal")
    run("seal", "cut.safetensors", code=3)
    assert not os.path.exists("cut.safetensors.seal")


def test_finite():
    tensors = fresh()
    x = rng.normal(0, 1, 2_000_000).astype(np.float32)
    x[[1_500_000, 1_600_000]] = np.nan, -np.inf
    save("bad.safetensors", {**tensors, "x": bits(x), "h": bits(np.array([np.inf, 1], np.float16))})
    found = verify("bad.safetensors")
    assert not found["finite_checked"]
    found = verify("bad.safetensors", "--finite", code=1)
    bad = {f["object"]: f for f in found["findings"] if f["kind"] == "not finite"}
    assert bad.keys() == {"x", "h"} and bad["x"]["text"] == "1 NaN, 1 Inf" and bad["x"]["first_elem"] == 1_500_000
    run("verify", "bad.safetensors", "--finite", code=1, out="first at [1500000]")
    verify("a.safetensors", "--finite")


def mutations(value, path=()):
    """Every place of a document with another value, left out, or with an unknown key beside it."""
    others = [None, "x", -1, 1.5, [], {}]
    if isinstance(value, dict):
        for key in value:
            for other in others:
                yield path + (key,), other
            yield path + (key,), KeyError
            yield from mutations(value[key], path + (key,))
        yield path + ("unknown",), 1
    elif isinstance(value, list):
        for i, item in enumerate(value[:2]):
            for other in others:
                yield path + (i,), other
            yield from mutations(item, path + (i,))


def test_seals_are_read_as_strictly_as_the_schema_says():
    save("m.safetensors", {"w": ("F32", np.zeros(40000)), "b": ("F32", np.zeros(2))})
    run("seal", "m.safetensors", "--force")
    seal, schema, n = sealed("m.safetensors"), validator("seal-1.json"), 0
    for path, other in mutations(seal):
        changed = copy.deepcopy(seal)
        at = changed
        for key in path[:-1]:
            at = at[key]
        if other is KeyError:
            del at[path[-1]]
        else:
            at[path[-1]] = other
        valid = schema.is_valid(changed)
        json.dump(changed, open("changed.seal", "w"))
        found = as_json("verify", "m.safetensors", "--seal", "changed.seal", code=None)
        refused = any("the seal itself is damaged" in f["text"] for f in damages(found))
        stricter = any("do not make up" in f["text"] for f in damages(found))
        assert refused == (not valid) or stricter, (path, other, valid, found)
        assert found["failed"] == (refused or damaged(seal, changed)), (path, other, found)
        n += 1
    assert n > 80
    for text in (b"", b"{", b"[]", b"\xff\xfe", b'{"schema": "sdclab.seal/2"}'):
        open("changed.seal", "wb").write(text)
        verify("m.safetensors", "--seal", "changed.seal", code=1)


def damaged(seal, changed):
    """Does a valid seal say something else of the same file? Names and format may change."""
    files = lambda s: [(f["size"], f["xxh3"].lower()) for f in s["files"]]
    return files(seal) != files(changed)


def bundle():
    """A set: a copy of a checkpoint of TensorFlow's."""
    shutil.rmtree("set", ignore_errors=True)
    shutil.copytree(os.path.join(os.environ["SDC_SOURCE_DIR"], "tests", "data", "tensorbundle", "adam"), "set")
    for name in os.listdir("set"):
        os.chmod(os.path.join("set", name), 0o644)
    return os.path.join("set", "ckpt-1.data-00000-of-00001")


def flip(path, at, mask=1):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ mask]))


def test_stored_checksums_of_a_set():
    data = bundle()
    found = verify("set", "--require-checksums")
    assert found["verdict"] == "sound" and found["files"] == 2 and found["covered"] == found["tensors"]
    assert found["checksums"] == {"stored": 27, "wrong": 0, "not_checked": 0} and found["seal"] == "not checked"
    names = [t["name"] for t in as_json("inspect", "set")["files"][0]["tensors"]]
    flip(data, os.path.getsize(data) // 2)
    found = verify("set", code=1)
    (damage,) = damages(found)
    assert any(n in damage["object"] for n in names) and "checksum: stored CRC-32C" in damage["text"], damage
    assert found["checksums"]["wrong"] == 1
    assert "1 wrong" in run("verify", "set", "--threads", 1, code=1)


def test_a_set_is_sealed_as_one():
    data = bundle()
    run("seal", "set/")
    seal = sealed("set/ckpt-1")  # the prefix, however the set was named
    assert len(seal["files"]) == 2 and seal["format"] == "tensorbundle"
    assert verify("set")["seal"] == "matches"
    flip(data, 100)
    found = verify("set", code=1)
    assert {f["object"] for f in damages(found)} >= {"ckpt-1.data-00000-of-00001"}
    os.remove(data)
    found = verify("set", code=1)
    assert not found["opened"] and any("incomplete" in f["text"] for f in damages(found)), found
    assert any("missing" in f["text"] for f in damages(found) if f["object"]), found


def test_hdf5_sums_and_filters():
    data = {n: rng.normal(size=(200, 300)).astype(np.float32) for n in ("fl", "gz", "lzf", "c")}
    with h5py.File("f.h5", "w", libver="latest") as f:
        f.create_dataset("fl", data=data["fl"], chunks=(50, 60), fletcher32=True)
        f.create_dataset("gz", data=data["gz"], chunks=(50, 60), compression="gzip")
        f.create_dataset("lzf", data=data["lzf"], chunks=(50, 60), compression="lzf")
        f.create_dataset("c", data=data["c"])
        place = {n: f[n].id.get_chunk_info(7).byte_offset for n in ("fl", "gz")}
        header = h5py.h5o.get_info(f["c"].id).addr
    found = verify("f.h5")
    # Fletcher-32 vouches for fl, zlib's own sum for gz; nobody for lzf and c
    assert found["covered"] == 2 and found["verdict"] == "not checked" and found["checksums"]["wrong"] == 0
    assert found["checksums"]["stored"] > 20  # 20 chunks, and lookup3 of the metadata
    for name, at, words in (("fl", place["fl"] + 1000, "Fletcher-32"), ("gz", place["gz"] + 1000, "")):
        flip("f.h5", at)
        (damage,) = damages(verify("f.h5", code=1))
        assert name in damage["object"] and words in damage["text"], damage
        flip("f.h5", at)
    flip("f.h5", header + 20)
    found = verify("f.h5", code=1)
    assert found["verdict"] == "damaged"
    flip("f.h5", header + 20)
    assert verify("f.h5")["checksums"]["wrong"] == 0
    # an index of chunks under no checksum: damaged where the chunks are read
    with h5py.File("old.h5", "w", libver="earliest") as f:
        f.create_dataset("w", data=data["fl"], chunks=(50, 60))
    verify("old.h5")
    at = open("old.h5", "rb").read().index(b"TREE\x01")
    flip("old.h5", at)
    found = verify("old.h5", code=1)
    assert any("w" == d["object"] or "chunks" in d["text"] for d in damages(found)), found


def test_a_file_on_which_libhdf5_dies_is_damaged():
    with open("die.sh", "w") as f:
        f.write("#!/bin/sh\nkill -SEGV $$\n")
    os.chmod("die.sh", 0o755)
    with h5py.File("fine.h5", "w") as f:
        f["w"] = np.arange(10, dtype=np.float32)
    dying = {**os.environ, "SDCLAB_HDF5_HELPER": os.path.abspath("die.sh")}
    found = as_json("verify", "fine.h5", code=1, schema="verify-1.json", env=dying)
    assert found["verdict"] == "damaged" and "died" in damages(found)[0]["text"], found
    run("scan", "fine.h5", code=3, err="died", env=dying)
    verify("fine.h5")


def test_zip_members():
    try:
        import torch
    except ImportError:
        print("     skipped in part: PyTorch is not there")
        return
    w = torch.randn(300, 40)
    torch.save({"w": w, "half": torch.randn(50).half(), "part": torch.randn(10)[2:5]}, "t.pt")
    notes = as_json("inspect", "t.pt", schema="inspect-1.json")["files"][0]["notes"]
    assert any(n["kind"] == "note" and "28 of its 40 bytes" in n["text"] for n in notes), notes
    assert any(f["kind"] == "note" and "28 of its 40 bytes" in f["text"] for f in verify("t.pt")["findings"])
    assert "28 of its 40 bytes" in run("inspect", "t.pt")
    found = verify("t.pt", "--require-checksums")
    assert found["verdict"] == "sound" and found["checksums"]["stored"] >= 3
    whole = open("t.pt", "rb").read()
    at = whole.index(w.numpy().tobytes()) + 4000
    flip("t.pt", at)
    found = verify("t.pt", code=1)
    (damage,) = damages(found)
    assert "data/0" in damage["object"] and "CRC-32" in damage["text"], damage
    flip("t.pt", at)
    # PyTorch can leave its sums out, as zero: nobody vouches for such a member
    import zlib
    data = bytearray(whole)
    crc = zlib.crc32(w.numpy().tobytes()).to_bytes(4, "little")
    n = data.count(crc)
    open("zero.pt", "wb").write(bytes(data.replace(crc, bytes(4))))
    assert n >= 1
    found = verify("zero.pt")
    assert found["verdict"] == "not checked" and found["checksums"]["not_checked"] == 1, found
    verify("zero.pt", "--require-checksums", code=1)
    for cut in (len(whole) // 10, len(whole) // 2, len(whole) - 1):
        open("cut.pt", "wb").write(whole[:cut])
        assert verify("cut.pt", code=1)["verdict"] == "damaged"


def test_inspect_tells_members_notes_and_checksums():
    bundle()
    found = as_json("inspect", "set", "--checksums", schema="inspect-1.json")["files"][0]
    assert [m["name"] for m in found["members"]] == ["ckpt-1.index", "ckpt-1.data-00000-of-00001"]
    assert found["checksums"] == {"CRC-32C": 27} and found["size"] == sum(m["size"] for m in found["members"])
    text = run("inspect", "set", "--checksums")
    assert "2 files" in text and "stored checksums: 27 CRC-32C" in text
    fresh()
    assert as_json("inspect", "a.safetensors", "--checksums", schema="inspect-1.json")["files"][0]["checksums"] == {}
    run("inspect", "a.safetensors", "--checksums", out="stored checksums: none")


def test_memory_does_not_grow_with_the_file():
    sparse("small.safetensors", 16)
    sparse("big.safetensors", 1024)
    for command in (["seal", "--no-sync", "--force"], ["verify", "--finite"]):
        small, big = (peak_kib(*command, "--threads", 2, f"{n}.safetensors") for n in ("small", "big"))
        assert big < small + 4096, (command, small, big)
    os.remove("big.safetensors")


main(globals())
