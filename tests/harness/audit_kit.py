# SPDX-License-Identifier: Apache-2.0
"""For the tests of commands that look at checkpoints: running them, their schemas, files to look at."""
import json
import os
import struct
import subprocess

import jsonschema
import numpy as np

SDCLAB = os.environ["SDCLAB"]
SCHEMAS = os.path.join(os.environ["SDC_SOURCE_DIR"], "schemas")

# name as in safetensors: NumPy type of the raw bits, bits of exponent and mantissa (0 for integers)
TYPES = {"F64": (np.uint64, 11, 52), "F32": (np.uint32, 8, 23), "F16": (np.uint16, 5, 10), "BF16": (np.uint16, 8, 7),
         "I64": (np.uint64, 0, 0), "I32": (np.uint32, 0, 0), "I16": (np.uint16, 0, 0), "I8": (np.uint8, 0, 0),
         "U64": (np.uint64, 0, 0), "U32": (np.uint32, 0, 0), "U16": (np.uint16, 0, 0), "U8": (np.uint8, 0, 0),
         "BOOL": (np.uint8, 0, 0)}
VALUES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32,
          "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8,
          "BOOL": np.uint8}


def run(*args, code=0, err=None, out=None, **more):
    p = subprocess.run([SDCLAB, *map(str, args)], capture_output=True, text=True, timeout=300, **more)
    assert p.returncode == code or code is None and p.returncode < 2, f"{args}: exit {p.returncode}, expected {code}\n{p.stdout}{p.stderr}"
    if code and code > 1:
        assert p.stderr.startswith("sdclab"), p.stderr
    for text, where in ((err, p.stderr), (out, p.stdout)):
        assert not text or text in where, f"{args}: {text!r} is not in {where!r}"
    return p.stdout


def validator(name):
    with open(os.path.join(SCHEMAS, name)) as f:
        schema = json.load(f)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def as_json(*args, code=0, schema=None, **more):
    found = json.loads(run(*args, "--json", code=code, **more))
    if schema:
        validator(schema).validate(found)
    return found


def save(path, tensors):
    """A safetensors file of {name: (type, raw bits as unsigned integers of any shape)}."""
    header, data, at = {}, [], 0
    for name, (dtype, raw) in tensors.items():
        raw = np.asarray(raw, TYPES[dtype][0], order="C")  # ascontiguousarray makes scalars vectors
        header[name] = {"dtype": dtype, "shape": list(np.asarray(raw).shape), "data_offsets": [at, at + raw.nbytes]}
        data.append(raw.tobytes())
        at += raw.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def bits(array):
    """The raw bits of an array, and its type's name."""
    array = np.asarray(array, order="C")
    for name, dtype in VALUES.items():
        if array.dtype == np.bool_ and name == "BOOL" or array.dtype == dtype and name != "BOOL":
            return name, array.view(TYPES[name][0])
    raise ValueError(array.dtype)


def doubles(dtype, raw):
    """The values as float64 (64-bit integers as NumPy converts them)."""
    raw = np.asarray(raw, TYPES[dtype][0])
    with np.errstate(invalid="ignore"):
        if dtype == "BF16":
            return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return raw.view(VALUES[dtype]).astype(np.float64)


def sparse(path, mib, tensors=1):
    """A safetensors file of F32 zeros that takes no space on the disk."""
    size = mib * 2**20 // tensors
    header = {f"model/layer{i}.weight": {"dtype": "F32", "shape": [size // 4], "data_offsets": [i * size, (i + 1) * size]}
              for i in range(tensors)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + tensors * size)


def peak_kib(*args, code=0):
    """Peak memory of a run in KiB."""
    import resource
    import sys
    script = ("import resource, subprocess, sys\n"
              "p = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL)\n"
              "assert p.returncode == int(sys.argv[1]), p.returncode\n"
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n")
    out = subprocess.run([sys.executable, "-c", script, str(code), SDCLAB, *map(str, args)], capture_output=True,
                         text=True, timeout=600)
    assert out.returncode == 0, out.stderr
    return int(out.stdout)


def main(namespace):
    """Runs the functions called test_*, each in the scratch folder; says which fail."""
    import sys
    import traceback
    failed = 0
    for name, test in list(namespace.items()):
        if name.startswith("test_") and callable(test):
            try:
                test()
                print(f"ok   {name[5:].replace('_', ' ')}")
            except Exception:
                failed += 1
                print(f"FAIL {name[5:].replace('_', ' ')}")
                traceback.print_exc(file=sys.stdout)
    sys.exit(1 if failed else 0)
