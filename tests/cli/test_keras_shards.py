# SPDX-License-Identifier: Apache-2.0
"""Weights of Keras 3 in shards: files of real Keras (tests/data/keras) and sets made with h5py. The set is
listed whole, altered in the right file, and h5py sees the planned change and no other."""
import glob
import hashlib
import json
import os
import shutil

import h5py
import numpy as np

from audit_kit import as_json, main, run

REAL = os.path.join(os.environ["SDC_SOURCE_DIR"], "tests", "data", "keras")
LAYERS = ["dense/vars/0", "dense/vars/1", *(f"batch_normalization/vars/{i}" for i in range(4)), "dense_1/vars/0", "dense_1/vars/1"]
NAMES = [f"layers/{n}" for n in LAYERS] + [f"optimizer/vars/{i}" for i in range(14)]  # variable v holds 100 v, 100 v + 1, ...


def copy(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for old in glob.glob(folder + ".*"):
        os.remove(old)
    os.mkdir(folder)
    for path in glob.glob(os.path.join(REAL, "net*")):
        shutil.copy(path, folder)
    return folder


def read(folder):
    """name -> (shard, array), as h5py reads them."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.h5"))):
        with h5py.File(path) as f:
            f.visititems(lambda n, o: found.update({n: (os.path.basename(path), o[()])}) if isinstance(o, h5py.Dataset) else None)
    return found


def files(folder):
    return {n: open(os.path.join(folder, n), "rb").read() for n in sorted(os.listdir(folder)) if ".sdc" not in n}


def index(folder):
    with open(os.path.join(folder, "net.weights.json")) as f:
        return json.load(f)


def write_index(folder, value):
    with open(os.path.join(folder, "net.weights.json"), "w") as f:
        json.dump(value, f)


def listed(path, **more):
    return as_json("inspect", path, schema="inspect-1.json", **more)["files"][0]


def changes(record):
    with open(record) as f:
        return [c for c in map(json.loads, f) if c["type"] == "change"]


def test_the_files_are_those_of_keras():
    with open(os.path.join(REAL, "SHA256SUMS")) as f:
        for line in f:
            digest, name = line.split()
            with open(os.path.join(REAL, name), "rb") as g:
                assert hashlib.sha256(g.read()).hexdigest() == digest, name


def test_the_set_is_one_checkpoint():
    copy("set")
    for path in ("set", "set/net.weights.json"):
        found = listed(path)
        assert found["format"] == "keras-shards" and found["notes"] == [], found["notes"]
        assert [m["name"] for m in found["members"]] == ["net.weights.json", *(f"net_0000{i}.weights.h5" for i in range(5))]
        tensors = {t["name"]: t for t in found["tensors"]}
        assert set(tensors) == set(NAMES) == set(read("set"))
        assert tensors["layers/dense/vars/0"]["shape"] == [6, 5] and all(t["alterable"] for t in tensors.values())
        assert tensors["optimizer/vars/2"]["part"] == "optimizer" and tensors["layers/dense/vars/0"]["part"] == "model"
    # a single file with the values that the writer gave to the variables
    with h5py.File("single.h5", "w") as f:
        for v, name in enumerate(NAMES):
            old = read("set")[name][1]
            f[name] = (100 * v + np.arange(old.size).reshape(old.shape)).astype(old.dtype)
    d = as_json("diff", "set", "single.h5")
    assert d["differing_elements"] == 0 and d["tensors_a"] == d["tensors_b"] == 22, d
    run("scan", "set")
    run("verify", "set")


def check(before, after, planned):
    left = {(c["tensor"], c["elem"]): bytes.fromhex(c["new"]) for c in planned}
    for name, (shard, old) in before.items():
        assert after[name][0] == shard
        size = old.dtype.itemsize
        a, b = old.tobytes(), after[name][1].tobytes()
        for k in range(old.size):
            want = left.pop((name, k), a[k * size:(k + 1) * size])
            assert b[k * size:(k + 1) * size] == want, (name, k)
    assert not left


def test_altered_in_the_right_files():
    copy("set")
    before, bytes_before = read("set"), files("set")
    shutil.rmtree("out", ignore_errors=True)
    for old in glob.glob("out.*"):
        os.remove(old)
    result = as_json("alter", "set", "-o", "out", "--flips", 40, "--seed", 2)
    planned = changes(result["record"])
    assert len({read("set")[c["tensor"]][0] for c in planned}) > 2 and files("set") == bytes_before
    check(before, read("out"), planned)
    for c in planned:  # the record says where
        shard = before[c["tensor"]][0]
        new = bytes.fromhex(c["new"])
        assert files("out")[shard][c["offset"]:c["offset"] + len(new)] == new, c
    run("verify", "out")
    run("undo", result["record"])
    assert files("out") == bytes_before
    result = as_json("alter", "set/net.weights.json", "--in-place", "--at", "layers/batch_normalization/vars/3[2]@lsb:22")
    check(before, read("set"), changes(result["record"]))
    different = [n for n, data in files("set").items() if data != bytes_before[n]]
    assert different == ["net_00001.weights.h5"], different
    run("undo", result["record"])
    assert files("set") == bytes_before


def packed(folder):
    """Chunks with checksums in one shard, compressed ones in the other."""
    copy(folder)
    rng = np.random.default_rng(1)
    with h5py.File(f"{folder}/net_00002.weights.h5", "w", libver="latest") as f:
        f.create_dataset("optimizer/vars/2", data=rng.standard_normal((6, 5)).astype("f4"), chunks=(2, 5), fletcher32=True)
    with h5py.File(f"{folder}/net_00003.weights.h5", "w", libver="latest") as f:
        for i in range(3, 8):
            f.create_dataset(f"optimizer/vars/{i}", data=rng.standard_normal((6, 5)).astype("f4"), chunks=(2, 5),
                             compression="gzip", fletcher32=True)


def test_checksums_and_compressed_chunks():
    packed("set")
    found = listed("set")
    assert any("total_size of 804" in n["text"] for n in found["notes"]), found["notes"]
    tensors = {t["name"]: t for t in found["tensors"]}
    assert tensors["optimizer/vars/4"]["recoded"] and not tensors["optimizer/vars/2"]["recoded"]
    before, bytes_before = read("set"), files("set")
    said = run("verify", "set", code=0)
    assert "0 wrong" in said, said
    shutil.rmtree("out", ignore_errors=True)
    for old in glob.glob("out.*"):
        os.remove(old)
    sites = ["--at", "optimizer/vars/2[3,1]@lsb:4", "--at", "optimizer/vars/2[5,1]@lsb:4"]
    result = as_json("alter", "set", "-o", "out", *sites)
    check(before, read("out"), changes(result["record"]))  # libhdf5 compares the sums
    run("verify", "out")
    run("undo", result["record"])
    assert files("out") == bytes_before
    shutil.rmtree("out")
    os.remove(result["record"])
    result = as_json("alter", "set", "-o", "out", "--checksum", "stale", *sites)
    assert "net_00002.weights.h5" in run("verify", "out", code=1)
    shutil.rmtree("out")
    os.remove(result["record"])
    run("alter", "set", "--in-place", "--at", "optimizer/vars/4[3,1]@lsb:4", code=3)
    assert files("set") == bytes_before
    result = as_json("alter", "set", "-o", "out", "--at", "optimizer/vars/4[3,1]@lsb:4", "--at", "layers/dense/vars/1[1]@lsb:4")
    check(before, read("out"), changes(result["record"]))


def test_incomplete_and_contradicting_sets():
    copy("set")
    os.remove("set/net_00003.weights.h5")
    for command in (["inspect", "set"], ["alter", "set", "-o", "never", "--flips", 1]):
        run(*command, code=3, err="incomplete set: net_00003.weights.h5 is missing")
    copy("set")
    shutil.copy("set/net_00002.weights.h5", "set/net_00003.weights.h5")
    run("inspect", "set", code=3, err="tensor optimizer/vars/2 is in net_00002.weights.h5 and in net_00003.weights.h5")
    copy("set")
    with h5py.File("set/net_00002.weights.h5", "w") as f:
        f["else/vars/0"] = np.ones(3)
    run("inspect", "set", code=3, err="incomplete set: net_00002.weights.h5 holds nothing of the group /optimizer/vars")
    copy("set")
    with h5py.File("set/net_00002.weights.h5", "r+") as f:
        f["else/vars/0"] = np.ones(3)
        f["optimizer/vars-of-others/0"] = np.ones(3)
    notes = listed("set")["notes"]
    assert any("2 tensors of the shards are not in the index, such as else/vars/0" in n["text"] for n in notes), notes
    copy("set")
    os.truncate("set/net_00001.weights.h5", 9000)
    run("inspect", "set", code=3, err="net_00001.weights.h5: truncated")
    with open("set/net_00001.weights.h5", "w") as f:
        f.write("version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 9\n")
    run("inspect", "set", code=3, err="Git LFS pointer")
    assert not os.path.exists("never")


def test_indexes():
    copy("set")
    good = index("set")
    os.symlink(".", "set/here")
    one = {**good, "weight_map": {k: v[0] if len(v) == 1 else v for k, v in good["weight_map"].items()}}
    write_index("set", one)  # a text for a single file, as ShardedH5IOStore takes it, too
    assert len(listed("set")["tensors"]) == 22
    for bad, words in (({**good, "weight_map": {**good["weight_map"], "/x/vars": [7]}}, "weight_map: /x/vars: expected names of files"),
                       ({**good, "weight_map": {**good["weight_map"], "/x/vars": [["net_00000.weights.h5"]]}}, "expected names"),
                       ({"weight_map": {"/optimizer/vars": ["../set/net_00001.weights.h5"]}}, "unsafe path"),
                       ({"weight_map": {"/optimizer/vars": ["/etc/x.weights.h5"]}}, "unsafe path"),
                       ({"weight_map": {"/optimizer/vars": ["net.weights.json", "net_00001.weights.h5"]}}, "no HDF5 file"),
                       ({"weight_map": {"/optimizer/vars": ["here", "net_00001.weights.h5"]}}, "here")):
        write_index("set", bad)
        run("inspect", "set/net.weights.json", code=3, err=words)
    with open("set/net.weights.json", "w") as f:
        f.write('{"weight_map": {"/optimizer/vars": ["net_00001.weights.h5"')
    run("inspect", "set", code=3, err="net.weights.json")
    write_index("set", {**good, "metadata": {"total_size": 1}})
    assert any("total_size of 1, the tensors have 804 bytes" in n["text"] for n in listed("set")["notes"])
    shutil.copy("set/net.weights.json", "set/other.weights.json")
    run("inspect", "set", code=2, err="several indexes, such as net.weights.json")
    assert len(listed("set/other.weights.json")["tensors"]) == 22
    assert listed("set/net_00000.weights.h5")["format"] == "hdf5"  # a shard alone is the file that it is


def test_an_archive_that_keras_does_not_read_is_refused_by_name():
    run("inspect", os.path.join(REAL, "npz.keras"), code=3, err="model.weights.npz: pickled dictionaries, which Keras itself refuses to load")


main(globals())
