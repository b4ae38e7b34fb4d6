#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutated headers of safetensors, given to the reference library and to ours: both accept, with the
same tensors at the same places, or both refuse. Where they may differ is listed in `may_differ`,
each with its reason; every reason must occur, so that none outlives its cause.

Usage: safetensors_headers.py CKPT_TOOL
"""
import json
import random
import re
import struct
import subprocess
import sys

from safetensors import SafetensorError, deserialize

TOOL = sys.argv[1]
SEED, MUTATIONS = 20260501, 700
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
         "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}  # what the library, 0.4.5, knows
NEWER = {"F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"}


def theirs(data):
    """Name -> (type, shape, bytes), or None."""
    try:
        return {n: (t["dtype"], t["shape"], bytes(t["data"])) for n, t in deserialize(data)}
    except SafetensorError:
        return None


def ours(data):
    with open("m.safetensors", "wb") as f:
        f.write(data)
    p = subprocess.run([TOOL, "values", "m.safetensors"], capture_output=True, text=True, timeout=60)
    assert p.returncode in (0, 1), (data, p.returncode, p.stderr)
    out = json.loads(p.stdout)
    if "error" in out:
        assert out["error"] in ("INVALID", "LIMIT", "UNSUPPORTED"), (data, out)
        return None, out["message"]
    tensors = {}
    for name, t in out["tensors"].items():
        kind, shape = t["dtype_text"], t["shape"]
        if t["storage"].endswith("as bytes"):
            name, kind = name[:-len(":bytes")], t["storage"].split(",")[0]
        raw = bytes.fromhex(t.get("values", ""))
        if kind in SIZES and t["n_elems"]:
            at = t["offsets"][0]
            assert data[at:at + len(raw)] == raw, (data, name)
        tensors[name] = (kind, shape, raw)
    return tensors, ""


def members(text):
    """Every object of the header as a list of pairs, so that duplicates are seen; None: no JSON."""
    def number(s):
        return ("-0",) if s == "-0" else int(s)
    try:
        return json.loads(text, object_pairs_hook=lambda p: ("object", p), parse_int=number)
    except (ValueError, RecursionError):
        return None


def duplicates(v):
    if isinstance(v, tuple) and v[0] == "object":
        keys = [k for k, _ in v[1]]
        return len(set(keys)) < len(keys) or any(duplicates(x) for _, x in v[1])
    return isinstance(v, list) and any(map(duplicates, v))


def numbers(v):
    if isinstance(v, tuple) and v[0] == "object":
        return [n for _, x in v[1] for n in numbers(x)]
    if isinstance(v, list):
        return [n for x in v for n in numbers(x)]
    return [v] if isinstance(v, (int, float)) and not isinstance(v, bool) else ["-0"] if v == ("-0",) else []


def may_differ(header, message, we_accept):
    """Why the two may disagree about this header; None: they may not."""
    try:
        tree = members(header.decode())
    except UnicodeDecodeError:
        return None
    if not isinstance(tree, tuple):
        return None
    tensors = [v for k, v in tree[1] if k != "__metadata__"]
    if not we_accept:
        # The format's text: "Duplicate keys are disallowed." The library keeps the last.
        if duplicates(tree) and "duplicate" in message:
            return "duplicate keys"
        # A C string ends there. Refused in keys and values, of metadata too.
        if "\\u0000" in header.decode().lower():
            return "zero bytes in texts"
        # The text: "an object". A struct may also be an array for serde, and a text a variant of an enum.
        if any(isinstance(v, list) for v in tensors) and "expected an object" in message:
            return "tensors as arrays"
        if re.search(rb'"dtype"\s*:\s*\{', header) and "a string, found an object" in message:
            return "types as objects"
        # "a map of strings to strings": null is none.
        if ("__metadata__", None) in tree[1] and "__metadata__" in message:
            return "metadata null"
        # No file has so many, but an empty tensor may say so.
        if any(isinstance(n, int) and n >= 1 << 63 for n in numbers(tree)):
            return "sizes of 2^63 and more"
        if "dimensions, the limit" in message:
            return "many dimensions"
        return None
    kinds = [x for v in tensors if isinstance(v, tuple) for k, x in v[1] if k == "dtype"]
    # The list of types is open; those of newer versions are known, others are bytes.
    if any(k in NEWER for k in kinds):
        return "types of newer versions"
    if any(k not in SIZES for k in kinds):
        return "types nobody knows"
    # serde makes -0 a float; JSON says it is an integer, 0.
    if "-0" in numbers(tree):
        return "minus zero"
    # serde goes 128 deep, ours 2048; the text sets no limit, and no tensor is nested.
    if b"[" * 126 in header:
        return "deep nesting"
    return None


# ---- mutations ----

def tensor(name, kind, shape, begin, end):
    return f'"{name}":{{"dtype":"{kind}","shape":{shape},"data_offsets":[{begin},{end}]}}'


BASES = [
    ("{" + tensor("a", "F32", "[2,3]", 0, 24) + "}", 24),
    ('{"__metadata__":{"format":"pt","k":"v"},' + tensor("a.weight", "BF16", "[4]", 0, 8) + ","
     + tensor("b", "I64", "[]", 8, 16) + "," + tensor("e", "U8", "[0,7]", 16, 16) + "}   ", 16),
    ("{" + tensor("z", "U8", "[1]", 0, 1) + "," + tensor("odd", "F64", "[1]", 1, 9) + ","
     + tensor("\\u00e9\\\"\\\\", "BOOL", "[2]", 9, 11) + "}", 11),
    ('{\n "\u91cd\u307f" : { "shape" : [ 1 , 2 ] ,\t"data_offsets" : [ 0 , 4 ] , "dtype" : "F16" }\r\n}', 4),
]
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+|[{}\[\],:]|\s+')
NUMBERS = ["0", "1", "-1", "-0", "00", "01", "1.0", "1e0", "2e400", "+1", "0x1", "4294967296", "9223372036854775807",
           "9223372036854775808", "18446744073709551615", "18446744073709551616", "1" + "0" * 40, "null", "true", '"1"', "[]",
           "NaN", ".5", "1."]
TEXTS = ['""', '"a"', '"a\\u0000b"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\udc00\\ud800"', '"\\x41"', '"\\/"', '"\ttab"', '"\\t"',
         '"\u0085"', '"\ufeff"', '"\\u00"', "null", "1", "'a'", '"F32"', '"f32"', '"F8_E8M0"', '"F4"', '"C64"', '"F99"', '{"F32":null}',
         '"__metadata__"', '"dtype"', '"shape"', '"d\\u0074ype"', '"extra"', '"U8"', '"BOOL"', '"a:bytes"']
VALUES = ["null", "[]", "{}", "1", '"x"', '["F32",[2,3],[0,24]]', '["U8",[1],[0,1]]', "[" * 40 + "]" * 40, "[" * 200 + "]" * 200, '{"a":"b"}', '{"a":1}',
          '{"a":"b","a":"c"}', "true", "1e999", "[1,]", "1" * 60]


def random_tokens(rng, text):
    tokens = TOKEN.findall(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        i = rng.randrange(len(tokens))
        how = rng.randrange(8)
        if how == 0:
            del tokens[i]
        elif how == 1:
            tokens.insert(i, rng.choice(tokens))
        elif how == 2:
            j = rng.randrange(len(tokens))
            tokens[i], tokens[j] = tokens[j], tokens[i]
        elif how == 3:
            tokens.insert(i, rng.choice([" ", "\t", "\n", "\r", "\v", "\f", "\u00a0", "\ufeff", "\0", "//", "\u2028"]))
        elif how in (4, 5):
            i = rng.choice([k for k, t in enumerate(tokens) if t[0].isdigit()] or [i])
            old = tokens[i]
            tokens[i] = rng.choice(NUMBERS + [str(int(old) + d) for d in (-4, -1, 1, 4, 8) if old.isdigit()])
        else:
            i = rng.choice([k for k, t in enumerate(tokens) if t[0] == '"'] or [i])
            tokens[i] = rng.choice(TEXTS)
        if not tokens:
            break
    return "".join(tokens).encode()


def random_bytes(rng, text):
    b = bytearray(text.encode())
    for _ in range(rng.choice([1, 1, 2])):
        i, how = rng.randrange(len(b)), rng.randrange(3)
        if how == 0:
            b[i] = rng.choice(b'{}[]",:\\ 0129-+.eEun\x00\x1f\x7f\x80\xc0\xed\xff')
        elif how == 1:
            del b[i]
        else:
            b.insert(i, rng.choice(b'{}[]",:\\ 0129-\x00\xc3\xf4'))
        if not b:
            break
    return bytes(b)


def random_members(rng, text):
    """A member more, in an object: with a key that is there already, or another."""
    places = [m.end() for m in re.finditer(r"\{", text)]
    at = rng.choice(places)
    key = rng.choice(['"dtype"', '"shape"', '"data_offsets"', '"a"', '"b"', '"__metadata__"', '"x"', '"\\u0061"', '"format"'])
    value = rng.choice(VALUES + NUMBERS + TEXTS + ["[0,0]", "[0]"])
    if key in ('"a"', '"b"', '"x"', '"\\u0061"') and rng.random() < 0.6:
        value = tensor("", rng.choice(["U8", "F4", "F99", "F8_E8M0"]), rng.choice(["[0]", "[2,0]", "[18446744073709551615,0]", "[-0]"]),
                       0, 0)[3:]
    more = f"{key}:{value}"
    return (text[:at] + more + ("" if text[at:].lstrip()[:1] == "}" else ",") + text[at:]).encode()


def fixed():
    """What a few random hits may miss."""
    one = tensor("a", "U8", "[1]", 0, 1)
    yield "{" + one + "," + tensor("b", "U8", "[1]", 1, 2) + "}", 2
    yield "{" + one + "," + tensor("b", "U8", "[1]", 2, 3) + "}", 3  # a hole
    yield "{" + one + "," + tensor("b", "U8", "[1]", 0, 1) + "}", 1  # an overlap
    yield "{" + tensor("a", "U8", "[4]", 0, 4) + "," + tensor("b", "U8", "[4]", 3, 7) + "}", 7
    yield "{" + tensor("b", "U8", "[1]", 1, 2) + "," + one + "}", 2  # in another order
    yield "{" + one + "," + tensor("e", "F32", "[0]", 0, 0) + "," + tensor("f", "F32", "[0]", 1, 1) + "}", 1
    yield "{" + tensor("e", "F32", "[0]", 9, 9) + "," + one + "}", 1  # nothing, behind the end
    yield "{" + one + "}", 2
    yield "{" + one + "}", 0
    yield '{"__metadata__":{"format":"pt"},}', 0  # what a writer made of a state without tensors
    yield '{"__metadata__":{"format":"pt"}}', 0
    yield '{"__metadata__":{}', 0
    yield '{"__metadata__":null}', 0
    yield '{"__metadata__":{"a":null}}', 0
    yield '{"__metadata__":{},"__metadata__":{}}', 0
    yield '{"__metadata__":{"a":"1","a":"2"}}', 0
    yield "{" + one + "," + one + "}", 1
    yield '{"a":["U8",[1],[0,1]]}', 1
    yield '{"a":{"dtype":{"U8":null},"shape":[1],"data_offsets":[0,1]}}', 1
    yield '{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1
    yield "{" + tensor("a", "U8", "[" + "1," * 32 + "1]", 0, 1) + "}", 1
    yield "{" + tensor("a", "U8", "[" + "1," * 31 + "1]", 0, 1) + "}", 1
    yield "{" + tensor("a", "U8", "[18446744073709551615,0]", 0, 0) + "}", 0
    yield "{" + tensor("a", "U8", "[0,18446744073709551615,2]", 0, 0) + "}", 0
    yield "{" + tensor("a", "U8", "[18446744073709551615,2,0]", 0, 0) + "}", 0
    yield "{" + tensor("a", "F64", "[2305843009213693952]", 0, 0) + "}", 0  # times 8 is 2^64
    yield "{" + tensor("a", "U8", "[-0]", 0, 0) + "}", 0
    yield "{" + tensor("a\\u0000", "U8", "[1]", 0, 1) + "}", 1
    yield "{" + tensor("\\ud800", "U8", "[1]", 0, 1) + "}", 1
    yield "{" + tensor("\\ud83d\\ude00", "U8", "[1]", 0, 1) + "}", 1
    for kind in sorted(NEWER - {"F4", "C64", "F6_E2M3", "F6_E3M2"}) + ["F99"]:
        yield "{" + tensor("a", kind, "[1]", 0, 1) + "}", 1
    for depth in (100, 126, 127, 128, 129, 3000):  # serde's limit is 128
        yield '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":' + "[" * depth + "]" * depth + "}}", 1
    yield '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":' + "1" * 60 + "}}", 1
    yield '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1e999}}', 1
    for pad in (" ", "\n", "\t\r\n ", "\0", "\v", "\u00a0", "x", "{}"):
        yield "{" + one + "}" + pad, 1
        yield pad + "{" + one + "}", 1


def cases():
    rng = random.Random(SEED)
    for text, n in fixed():
        yield text.encode(), n
    for i in range(MUTATIONS):
        text, n = BASES[i % len(BASES)]
        header = [random_tokens, random_tokens, random_bytes, random_members][rng.randrange(4)](rng, text)
        yield header, n if rng.random() < 0.9 else max(0, n + rng.choice([-1, 1, 8]))


def main():
    seen, agreed = {}, {True: 0, False: 0}
    for header, n in cases():
        data = struct.pack("<Q", len(header)) + header + bytes(i * 37 & 255 for i in range(n))
        want, (got, message) = theirs(data), ours(data)
        if (want is None) != (got is None):
            why = may_differ(header, message, got is not None)
            assert why, (header, "theirs:", want, "ours:", got, message)
            seen.setdefault(why, header)
            continue
        agreed[want is not None] += 1
        if want is None:
            continue
        assert set(want) == set(got), (header, want, got)
        for name, (kind, shape, raw) in want.items():
            assert got[name] == (kind, shape, raw), (header, name, want[name], got[name])
    for why, header in sorted(seen.items()):
        print(f"differs, {why}: {header[:70]!r}")
    print(f"{agreed[True]} accepted by both, {agreed[False]} refused by both")
    assert agreed[True] > 80 and agreed[False] > 500, agreed
    assert len(seen) == 11, sorted(seen)


main()
