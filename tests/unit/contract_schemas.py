# SPDX-License-Identifier: Apache-2.0
"""What the C side writes against schemas/, and schemas/ against what the C side reads.

Every sample must pass its schema. Then each is changed in every place: an unknown key in each object,
each key left out, each value replaced by one of another type. What the schema refuses the reader must
refuse too; a reader may be stricter, but only in the rules between keys that a schema cannot hold, and
those are listed here.
"""
import copy
import json
import os
import re
import subprocess
import sys
import warnings

warnings.simplefilter("ignore")
from jsonschema import Draft202012Validator

PROGRAM = sys.argv[1]
SCHEMAS = os.path.join(os.environ["SDC_SOURCE_DIR"], "schemas")
KINDS = {"run": "run-1.json", "event": "events-1.json", "worker": "worker-1.json", "record": "record-1.json"}

# Messages of rules between keys, or of one of several ways to write the same.
STRICTER = [r"differ from those of recipe", r"items, expected", r"is not above the one before it",
            r"outside the run", r"is not among the steps", r"does not go with", r"rank: \d+, of \d+ ranks",  r"is before from_step", r"no rank loads a checkpoint", r"this rank reads",
            r"lacks \{step\}", r"no save\.path", r"has one rank", r"eval_correct\[\d\]: \d+ of",
            r"do not lead from", r"other: expected with op swap only", r"expected the \d+ hex digits", r"nothing sends it on", r"expected a digest",
            r"null beside", r"expected a number, found null", r"\d+ items, expected \d+ as in",
            r"bit \d+ of an \w+, which has", r"op: value", r"op: scale", r"op: mask", r"op: burst", r"op: flip", r"switches\.order: expected", r"averaging\.\w+: (belongs to strategy|strategy single)",
            r"bits: expected any, sign", r"op flip needs a bit",
            r"too big integer"]  # jansson holds integers in 64 bits, also where a float is meant

REPLACEMENTS = [None, True, "x", "", -1, 1.5, 0, [], {}, ["x"], [None], 2 ** 63]


def validator(name):
    schema = json.load(open(os.path.join(SCHEMAS, name)))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def no_open_objects(schema, where, found):
    """Every object of a schema says additionalProperties, false or the type of values."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" or schema.get("type") == ["object", "null"]:
            if "additionalProperties" not in schema and "oneOf" not in schema:
                found.append(where)
        for key, value in schema.items():
            no_open_objects(value, f"{where}/{key}", found)
    elif isinstance(schema, list):
        for i, value in enumerate(schema):
            no_open_objects(value, f"{where}/{i}", found)


def samples(kind):
    out = subprocess.run([PROGRAM, "write", kind], stdout=subprocess.PIPE, check=True, timeout=60).stdout
    return [json.loads(line) for line in out.decode().splitlines()]


def read(kind, documents):
    text = "".join(json.dumps(d) + "\n" for d in documents)
    out = subprocess.run([PROGRAM, "read", kind], input=text.encode(), stdout=subprocess.PIPE, check=True,
                         timeout=100).stdout.decode().splitlines()
    assert len(out) == len(documents), (kind, len(out), len(documents))
    return out


def mutations(document):
    """(what was done, new document) for every place of the document."""
    def places(value, path):
        yield path, value
        if isinstance(value, dict):
            for key in value:
                yield from places(value[key], (*path, key))
        elif isinstance(value, list):
            for i, item in enumerate(value[:2]):
                yield from places(item, (*path, i))

    def at(root, path):
        for step in path:
            root = root[step]
        return root

    for path, value in places(document, ()):
        if isinstance(value, dict):
            new = copy.deepcopy(document)
            at(new, path)["unknown_key"] = 1
            yield f"unknown key at {path}", new
        if not path:
            continue
        if isinstance(path[-1], str):
            new = copy.deepcopy(document)
            del at(new, path[:-1])[path[-1]]
            yield f"{path} left out", new
        for replacement in REPLACEMENTS:
            new = copy.deepcopy(document)
            at(new, path[:-1])[path[-1]] = replacement
            yield f"{path} = {replacement!r}", new


def reader_of(kind, document):
    if kind != "record":
        return kind
    return "header" if document.get("type") == "header" else "change"


failures, n_refused, n_accepted = [], 0, 0
for kind, name in KINDS.items():
    v = validator(name)
    opened = []
    no_open_objects(v.schema, name, opened)
    failures += [f"{w}: open object" for w in opened]
    for sample in samples(kind):
        for error in v.iter_errors(sample):
            failures.append(f"{name}: what is written does not pass: {error.message} in {sample}")
        todo = list(mutations(sample))
        reader = reader_of(kind, sample)
        for (what, document), said in zip(todo, read(reader, [d for _, d in todo])):
            valid = v.is_valid(document)
            # an environment or list of versions holds any key
            free = what.startswith("unknown key at ('environment'") or what.startswith("unknown key at ('versions'")
            if what.startswith("unknown key") and not free and valid:
                failures.append(f"{name}: the schema accepts {what}")
            if not valid and said == "ok":
                failures.append(f"{kind}: the reader accepts what the schema refuses: {what}")
            if valid and said != "ok" and not any(re.search(p, said) for p in STRICTER):
                failures.append(f"{kind}: the schema accepts what the reader refuses: {what}: {said}")
            n_refused += said != "ok"
            n_accepted += said == "ok"

# what a minimal description becomes is what the schema gives as defaults
schema = json.load(open(os.path.join(SCHEMAS, "run-1.json")))
full = samples("run")[1]
for key, spec in schema["properties"].items():
    if "default" in spec and full[key] != spec["default"]:
        failures.append(f"run: default of {key}: {full[key]!r}, the schema says {spec['default']!r}")
    elif "default" not in spec and key not in schema["required"]:
        failures.append(f"run: the schema has no default for {key}")
    for inner, inner_spec in spec.get("properties", {}).items():
        if inner_spec.get("default", full[key][inner]) != full[key][inner]:
            failures.append(f"run: default of {key}.{inner}")

print("\n".join(failures[:40]))
print(f"{n_refused} refused, {n_accepted} accepted, {len(failures)} problems")
sys.exit(1 if failures else 0)
