#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scan, predict, seal, verify and diff of a sparse file over 4 GiB: the last element counts, and memory
stays small."""
import os
import struct

from audit_kit import as_json, main, peak_kib, run, sparse

MIB = 4608  # one tensor of over 2^30 elements and 2^32 bytes
N = MIB * 2**20 // 4
LIMIT_KIB = 64 * 1024


def end(path, raw):
    with open(path, "r+b") as f:
        f.seek(-4, os.SEEK_END)
        f.write(struct.pack("<I", raw))


def test_the_last_element_of_a_large_tensor():
    for name in ("a", "b"):
        sparse(f"{name}.safetensors", MIB)
        end(f"{name}.safetensors", 0x3f800000)
    run("seal", "a.safetensors", "--no-sync", "--force")
    end("b.safetensors", 0x7fc00000)
    t = as_json("scan", "b.safetensors", schema="scan-1.json")["tensors"][0]
    assert t["nan"] == 1 and t["zero"] == N - 1 and t["nonfinite"][0]["elem"] == N - 1
    found = as_json("diff", "a.safetensors", "b.safetensors", code=1, schema="diff-1.json")
    assert found["tensors"][0]["first_elem"] == N - 1 and found["first_byte"] == os.path.getsize("a.safetensors") - 2
    found = as_json("verify", "b.safetensors", "--seal", "a.safetensors.seal", "--finite", code=1, schema="verify-1.json")
    damage = [f for f in found["findings"] if f["kind"] == "damage" and f["object"].startswith("model/")]
    assert damage[0]["last_elem"] == N - 1 and damage[0]["first_elem"] >= N - 2**23
    found = as_json("predict", "a.safetensors", schema="predict-1.json")
    assert found["sites"] == N * 32 and found["classes"]["sign"] == N
    assert found["classes"]["from-zero"] + found["classes"].get("to-extreme", 0) + found["classes"]["sign"] >= 32 * (N - 1)
    for command in (["scan", "a.safetensors"], ["predict", "a.safetensors"], ["verify", "a.safetensors"]):
        assert peak_kib(*command) < LIMIT_KIB, command
    assert peak_kib("diff", "a.safetensors", "b.safetensors", code=1) < LIMIT_KIB
    for name in ("a", "b"):
        os.remove(f"{name}.safetensors")


main(globals())
