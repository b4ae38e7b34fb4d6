#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pickle reader against Python's own pickler and unpickler: what it lists is what was pickled,
for every protocol; what would run code is listed and not run; damage is refused and costs neither
time nor memory.

Usage: pickle_against_python.py PK_TOOL
"""
import collections
import fractions
import json
import os
import pickle
import pickletools
import random
import subprocess
import sys

from limits import child_seconds, memory_limit

TOOL = sys.argv[1]
LIMIT = memory_limit(TOOL, 2 << 30)


def run(what, data, *args):
    with open("a.pkl", "wb") as f:
        f.write(data)
    p = subprocess.run([TOOL, what, "a.pkl", *map(str, args)], capture_output=True, text=True, timeout=60,
                       preexec_fn=LIMIT)
    assert p.returncode in (0, 1), (p.returncode, p.stderr, data[:200])
    return json.loads(p.stdout)


def plain(tree, data):
    """A tree of plain values as Python holds it; texts are looked up at their place, too."""
    kind, rest = tree[0], tree[1:]
    if kind == "None":
        return None
    if kind in ("bool", "int", "float"):
        if isinstance(rest[0], str) and kind == "int":
            text = bytes.fromhex(rest[0]).decode()
            return int.from_bytes(bytes.fromhex(text[2:]), "big", signed=True) if text[:2] == "0x" else int(text)
        return bool(rest[0]) if kind == "bool" else float(rest[0]) if kind == "float" else rest[0]
    if kind in ("str", "bytes"):
        value = bytes.fromhex(rest[0])
        if len(rest) > 1:
            assert data[rest[1]:rest[1] + rest[2]] == value
        return value.decode("utf-8", "surrogatepass") if kind == "str" else value
    if kind == "tuple":
        return tuple(plain(x, data) for x in rest[0])
    if kind == "list":
        return [plain(x, data) for x in rest[0]]
    if kind == "set":
        return {plain(x, data) for x in rest[0]}
    if kind == "dict":
        flat = [plain(x, data) for x in rest[0]]
        return dict(zip(flat[::2], flat[1::2]))
    if kind == "call" and rest[0] == "_codecs.encode":  # bytes before protocol 3
        text, how = plain(rest[1], data)
        return text.encode(how)
    if kind == "call" and rest[0].split(".")[1] in ("set", "frozenset"):
        return set(plain(rest[1], data)[0])
    if kind == "call" and rest[0] in ("__builtin__.bytearray", "builtins.bytearray", "__builtin__.bytes"):
        args = plain(rest[1], data)
        return args[0] if args and not isinstance(args[0], str) else args[0].encode(args[1]) if args else b""
    raise AssertionError(tree)


def random_value(rng, deep=0):
    kind = rng.randrange(14 if deep < 5 else 9)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, -2**31, 2**31, 2**63 - 1, -2**63])
    if kind == 2:
        return rng.choice([-1, 1]) * rng.getrandbits(rng.choice([8, 40, 63, 64, 65, 72, 200]))
    if kind == 3:
        return rng.choice([0.0, -0.0, 1.5, float("inf"), float("-inf"), 1e-310, rng.gauss(0, 1)])
    if kind in (4, 5):
        return "".join(rng.choice("ab/é€😀\n\\'\"\x00u1") for _ in range(rng.randrange(12)))
    if kind in (6, 7):
        return rng.randbytes(rng.choice([0, 1, 5, 255, 256, 300]))
    if kind == 8:
        return bytearray(rng.randbytes(9)) if deep else {1, 2}
    if kind in (9, 10):
        return [random_value(rng, deep + 1) for _ in range(rng.randrange(5))]
    if kind == 11:
        return tuple(random_value(rng, deep + 1) for _ in range(rng.randrange(6)))
    if kind == 12:
        return rng.choice([frozenset, set])(rng.sample(range(1000), rng.randrange(5)))
    return {rng.choice(["k", ""]) + str(i): random_value(rng, deep + 1) for i in range(rng.randrange(6))}


def same(a, b):
    return repr(a) == repr(b) if isinstance(a, float) else type_of(a) == type_of(b) and (
        len(a) == len(b) and all(same(x, y) for x, y in zip(a, b)) if isinstance(a, (list, tuple))
        else list(a) == list(b) and all(same(a[k], b[k]) for k in a) if isinstance(a, dict)
        else a == b)


def type_of(x):
    return {bytearray: bytes, frozenset: set}.get(type(x), type(x))


def test_values():
    rng = random.Random(1)
    for i in range(20):
        value = [random_value(rng) for _ in range(20)]
        for protocol in range(6):
            data = pickle.dumps(value, protocol)
            for how in ("tree", "memory"):
                got = run(how, data + b"more bytes")
                assert got["end"] == len(data), (i, protocol, got)
                assert same(plain(got["tree"], data), value), (protocol, value, plain(got["tree"], data))
            assert same(plain(run("tree", b"12345" + data, 5, len(data))["tree"], b"12345" + data) if protocol < 1
                        else value, value)


def test_large():
    """Containers of more than one batch, long texts, shared and cyclic objects."""
    value = {"list": list(range(5000)), "dict": {i: str(i) for i in range(3000)}, "set": set(range(2500))}
    for protocol in range(6):
        data = pickle.dumps(value, protocol)
        assert same(plain(run("tree", data)["tree"], data), value)
    for protocol in (2, 4, 5):
        long = os.urandom(200_000)
        data = pickle.dumps({"a": long if protocol > 2 else long.hex(), "b": 7}, protocol)
        (ka, a, kb, b) = run("tree", data)["tree"][1]
        assert a[1] is None and data[a[2]:a[2] + a[3]] == (long if protocol > 2 else long.hex().encode())
        assert plain(kb, data) == "b" and b == ["int", 7]  # what follows is found
    shared = ["x"]
    data = pickle.dumps([shared, shared, {"k": shared}], 2)
    assert plain(run("tree", data)["tree"], data) == [["x"], ["x"], {"k": ["x"]}]
    cycle = []
    cycle.append(cycle)
    assert "deep" in json.dumps(run("tree", pickle.dumps(cycle, 4)))


class Point:
    def __init__(self, x):
        self.x = x


class Slots(dict):
    pass


def test_objects():
    for protocol in (2, 3, 4, 5):
        ordered = collections.OrderedDict(a=1, b=2)
        ordered._metadata = {"v": 1}
        data = pickle.dumps([Point(3), ordered, collections.Counter("aab"), collections.defaultdict(list, k=[1]),
                             Slots(q=1), fractions.Fraction(1, 3), len, 3 + 4j], protocol)
        got = run("tree", data)
        point, o, counter, default, slots, fraction, function, number = got["tree"][1]
        builtin = "builtins" if protocol > 2 else "__builtin__"
        assert point[:2] == ["object", "__main__.Point"] and plain(point[4], data) == {"x": 3}
        assert o[:2] == ["call", "collections.OrderedDict"]
        assert [plain(x, data) for x in o[3]] == ["a", 1, "b", 2] and plain(o[4], data) == {"_metadata": {"v": 1}}
        assert counter[1] == "collections.Counter" and plain(counter[2], data) == ({"a": 2, "b": 1},)
        assert default[2] == ["tuple", [["global", f"{builtin}.list"]]] and [plain(x, data) for x in default[3]] == ["k", [1]]
        assert slots[:2] == ["object", "__main__.Slots"] and [plain(x, data) for x in slots[3]] == ["q", 1]
        assert fraction[1] == "fractions.Fraction"
        assert function == ["global", f"{builtin}.len"]
        assert number[1] == f"{builtin}.complex" and plain(number[2], data) == (3.0, 4.0)
        assert "collections.OrderedDict" in got["globals"] and len(set(got["globals"])) == len(got["globals"])

    class Persistent(pickle.Pickler):
        def persistent_id(self, x):
            return ("storage", "k", 5) if x is ... else "name" if x is NotImplemented else None
    import io
    for protocol in (0, 2, 4):
        f = io.BytesIO()
        Persistent(f, protocol).dump([NotImplemented] + ([...] if protocol else []))
        got = run("tree", f.getvalue())["tree"][1]
        assert got[0][0] == "persistent id" and bytes.fromhex(got[0][1][1]) == b"name"
        assert protocol == 0 or plain(got[1][1], f.getvalue()) == ("storage", "k", 5)


class Evil:
    def __reduce__(self):
        return (os.system, ("touch ran",))


def test_nothing_runs():
    for protocol in range(6):
        got = run("tree", pickle.dumps({"w": Evil(), "after": 1}, protocol))
        assert "posix.system" in got["globals"]
        flat = got["tree"][1]
        assert flat[1][:2] == ["call", "posix.system"] and flat[3] == ["int", 1]
    assert not os.path.exists("ran")


def by_hand():
    """Opcodes that Python's pickler no longer writes."""
    cases = [
        (b"(I1\nI00\nI01\nL123456789012345678901234567890L\nF2.5\nt.", (1, False, True, 123456789012345678901234567890, 2.5)),
        (b"(S'a\\x41\\n'\nS\"q\"\nVb\\u20ac\\U0001f600\nl.", ["aA\n", "q", "b€😀"]),
        (b"(S'k'\nI5\nd.", {"k": 5}),
        (b"(lp0\nI7\nag0\n.", None),
        (b"I1\nI2\n0.", 1),
        (b"I1\n(I2\nI3\n1.", 1),
        (b"I1\n2\x86.", (1, 1)),
        (b"U\x02abT\x03\x00\x00\x00xyz\x86.", ("ab", "xyz")),
        (b"\x80\x04\x8d\x02\0\0\0\0\0\0\0hi.", "hi"),
        (b"\x80\x04\x8e\x02\0\0\0\0\0\0\0hi.", b"hi"),
        (b"\x80\x02\x8b\x09\0\0\0\xff\0\0\0\0\0\0\0\x00.", 255),
        (b"\x80\x02\x8a\x00.", 0),
        (b"\x80\x04(K\x01K\x02\x91.", {1, 2}),
    ]
    for data, want in cases:
        got = run("tree", data)
        assert "error" not in got, (data, got)
        assert want is None or same(plain(got["tree"], data), want), (data, got, want)
    got = run("tree", b"(c__main__\nA\nK\x01o.")
    assert got["tree"] == ["object", "__main__.A", ["tuple", [["int", 1]]], []]
    got = run("tree", b"(K\x01i__main__\nA\n(dS's'\nK\x02sb.")
    assert got["tree"][:3] == ["object", "__main__.A", ["tuple", [["int", 1]]]] and got["tree"][4][0] == "dict"
    got = run("tree", b"\x80\x04c__main__\nA\n)}\x92.")
    assert got["tree"] == ["object", "__main__.A", ["tuple", []], []]
    assert run("tree", b"\x82\x07.")["tree"] == ["opaque value"]
    assert run("tree", b"\x80\x05\x97\x98.")["tree"] == ["opaque value"]


def test_refused():
    for data, error, words in [
            (b"", "INVALID", "truncated"), (b"\x80", "INVALID", "truncated"), (b"\x80\x06N.", "UNSUPPORTED", "protocol 6"),
            (b"\x80\x02}q\x00X\x05\0\0\0ab", "INVALID", "truncated"), (b"\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.", "INVALID", "truncated"),
            (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "INVALID", "truncated"), (b".", "INVALID", "stack"),
            (b"t.", "INVALID", "mark"), (b"(K\x01d.", "INVALID", "key without a value"), (b"K\x01K\x02s.", "INVALID", "stack"),
            (b"NNa.", "INVALID", "kind"), (b"h\x05.", "INVALID", "memo"), (b"Nr\xff\xff\xff\xff.", "INVALID", "memo"),
            (b"NNR.", None, None), (b"\xff", "INVALID", "unknown"), (b"Ix\n.", "INVALID", "number"), (b"I\n.", "INVALID", "number"),
            (b"Fx\n.", "INVALID", "number"), (b"Sx\n.", "INVALID", "text"), (b"Vx\\u00zz\n.", "INVALID", "text"),
            (b"\x80\x04K\x01K\x02\x93.", "INVALID", "global"), (b"p-1\n", "INVALID", "memo"), (b"c" + b"a" * 100_000, "INVALID", "long")]:
        for how in ("tree", "memory"):
            got = run(how, data)
            assert got.get("error") == error, (data[:40], got)
            assert words is None or words in got["message"], (data[:40], got)


def test_damage():
    """Each byte of real pickles changed, and each prefix: an answer or a refusal, never anything else."""
    value = {"model": collections.OrderedDict(a=Point(2), b=[1.5, (1, 2, 3), "text"]), 3: {"x": bytes(20), "y": 2**70}}
    for protocol in (0, 2, 4):
        data = pickle.dumps(value, protocol)
        got = run("damage", data)
        assert got["read"] + got["refused"] == 256 * len(data) and min(got.values()) > 255, (protocol, got)


def test_bounded():
    """Time is linear and memory bounded, whatever a pickle says."""
    hostile = [
        b"\x80\x02" + b"(" * 2_000_000,
        b"\x80\x02" + b"]" * 2_000_000 + b".",
        b"\x80\x02" + b"N" + b"\x85" * 2_000_000 + b".",                       # nested tuples
        b"\x80\x02]" + b"2" * 1000 + b"".join(b"(" + b"h\x00" * 10 + b"e" for _ in range(1000)),
        b"\x80\x02N\x94" * 300_000 + b".",
        b"\x80\x02]q\x00" + b"h\x00a" * 500_000 + b".",
        b"\x80\x02]q\x00" + b"(h\x00h\x00lq\x00" * 300_000 + b".",               # doubling
        b"\x80\x02" + b"X\xff\xff\xff\x7f" + b"a" * 100,
        b"\x80\x02" + b"cm\nf\n" * 300_000 + b".",
    ]
    for data in hostile:
        start = child_seconds()
        run("count", data)
        assert child_seconds() - start < 20, data[:20]
    times = []
    for n in (20_000, 200_000):
        data = pickle.dumps({f"layer.{i}.weight": (i, [i, 2 * i], {"o": Point(i)}) for i in range(n)}, 4)
        start = child_seconds()
        got = run("count", data)
        times.append(child_seconds() - start)
        assert got["nodes"] > 8 * n
    assert times[1] < 40 * times[0] + 1, times


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_") or name == "by_hand":
            test()
    assert all(op.code in TRIED for op in pickletools.opcodes), [op.name for op in pickletools.opcodes if op.code not in TRIED]


# every opcode there is occurs above (in what Python wrote or by hand)
TRIED = "IJKLMNGFSTUVXBC(.012]}l)td)ascubeRioPQpqrghj\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e" \
        "\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98"

if __name__ == "__main__":
    main()
