#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules about the tree itself: layers, foreign headers, banned calls, sizes, licences.

Run without arguments it checks the whole tree; `--self-test` plants one violation of each rule in a
scratch copy and expects each to be found.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Layer -> layers it may include besides itself. Written out, so that the picture in
# docs/dev/architecture.md can be compared with it line by line.
BASE = ["base"]
LOW = ["num", "io"] + BASE
MID = ["contract", "data"] + LOW
PARTS = {
    "base": [],
    "num": BASE,
    "io": BASE,
    "contract": LOW,
    "data": LOW,
    "fault": MID,
    "ckpt": MID,
    "nn": MID,
    "comm": MID,
    "stat": MID,
}
UPPER = ["fault", "ckpt", "nn", "comm", "stat"] + MID
ALLOWED = dict(PARTS)
ALLOWED["alter"] = UPPER
ALLOWED["audit"] = UPPER
ALLOWED["train"] = UPPER
# camp alters in process and reaches every trainer only as a worker process
ALLOWED["camp"] = ["alter", "audit", "fault", "ckpt", "stat"] + MID
ALLOWED["report"] = ["stat"] + MID
ALLOWED["cli"] = ["camp", "report", "train", "alter", "audit"] + UPPER

# Which layer each public header belongs to.
PUBLIC = {
    "status.h": "base", "rng.h": "base", "num.h": "num", "tensor.h": "contract", "choice.h": "contract",
    "outcome.h": "contract", "run.h": "contract", "events.h": "contract", "worker.h": "contract",
    "record.h": "contract", "name_map.h": "contract", "data.h": "data", "ckpt.h": "ckpt", "fault.h": "fault", "alter.h": "alter",
    "audit.h": "audit", "sdc.h": "cli",
}

# Foreign header (prefix) -> files that may include it (prefixes of paths).
FOREIGN = {
    "hdf5.h": ["src/ckpt/fmt/hdf5_helper/"],
    "H5": ["src/ckpt/fmt/hdf5_helper/"],
    "liblzf/": ["src/ckpt/fmt/hdf5_filter.c"],
    "dnnl": ["src/nn/onednn"],
    "oneapi/": ["src/nn/onednn"],
    "mpi.h": ["src/comm/mpi"],
    "sqlite3.h": ["src/camp/store"],
    "yaml.h": ["src/camp/spec"],
    "zlib.h": ["src/io/"],
    "snappy": ["src/ckpt/sstable_snappy.c"],
    "jansson.h": ["src/base/json.c"],
    "xxhash.h": ["src/base/hash.c"],
    "Random123/": ["src/base/rng.c"],
    "gsl/": ["src/stat/"],
    "omp.h": ["src/nn/"],
}

LIBRARY = {"base", "num", "io", "contract", "data", "ckpt", "fault", "alter", "audit"}
ALLOC = r"\b(malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup|asprintf|vasprintf)\s*\("
UNSAFE = (r"\b(atoi|atol|atoll|atof|strtol|strtoll|strtoul|strtoull|strtod|strtof|sscanf|fscanf|sprintf|vsprintf|"
          r"strcpy|strcat|strncat|gets|strtok|system|popen|tmpnam|mktemp|alloca|rand|srand|drand48|random|signal)\s*\(")
SPEAK = r"\b(printf|fprintf|puts|fputs|putchar|perror|exit|_exit|abort|quick_exit)\s*\("

PROGRAMS = ("src/ckpt/fmt/hdf5_helper/",)  # in a library layer's folder, but not in the library

MAX_FILE, MAX_FUNCTION = 800, 100
# Longer ones, each with its reason. This list may only shrink.
LONG_FILES = {}
LONG_FUNCTIONS = {}

# (file prefix, banned word): allowed there, with the reason
EXCEPTIONS = {
    ("src/base/alloc.c", "malloc"): "the allocator itself",
    ("src/base/alloc.c", "calloc"): "the allocator itself",
    ("src/base/alloc.c", "realloc"): "the allocator itself",
    ("src/base/alloc.c", "aligned_alloc"): "the allocator itself",
    ("src/base/alloc.c", "free"): "the allocator itself",
    ("src/base/str.c", "strtoull"): "wrapped with a range and whole-string check",
    ("src/base/str.c", "strtod"): "wrapped with a range and whole-string check",
    ("src/base/guard.h", "fprintf"): "SDC_BUG reports a broken invariant of our own",
    ("src/base/guard.h", "abort"): "SDC_BUG reports a broken invariant of our own",
    ("src/io/replace.c", "free"): "realpath allocates with the system's malloc",
    ("src/camp/executor.c", "signal"): "default dispositions in a child before exec",
}


def strip_comments(text):
    """Blanks comments, strings and character constants, keeping line numbers."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def layer_of(path):
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[:2] == ["include", "sdc"]:
        return PUBLIC.get(parts[2])
    return None


def check_includes(path, text, problems):
    layer = layer_of(path)
    for number, line in enumerate(text.split("\n"), 1):
        m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not m:
            continue
        quoted, name = m.group(1) == '"', m.group(2)
        where = f"{path}:{number}"
        for prefix, places in FOREIGN.items():
            if name.startswith(prefix) and not any(path.startswith(p) for p in places) and path.startswith(("src/", "include/")):
                problems.append(f"{where}: foreign header <{name}> belongs in {places[0]}* alone")
        if not quoted or layer is None:
            continue
        if name.startswith("sdc/"):
            target = PUBLIC.get(name[4:])
            if target is None:
                problems.append(f"{where}: public header {name} has no layer in tests/tree/test_tree.py")
                continue
        elif "/" in name:
            target = name.split("/")[0]
        else:
            problems.append(f"{where}: include \"{name}\" must name its folder")
            continue
        if path.startswith("include/") and not name.startswith("sdc/"):
            problems.append(f"{where}: a public header includes the internal \"{name}\"")
        if target != layer and target not in ALLOWED.get(layer, []):
            problems.append(f"{where}: layer {layer} may not include {target} (\"{name}\")")


def check_calls(path, code, problems, exceptions):
    layer = layer_of(path)
    banned = [(ALLOC, "allocation only through base/alloc.h"), (UNSAFE, "banned function")]
    if layer in LIBRARY and not path.startswith(PROGRAMS):
        banned.append((SPEAK, "the library never prints, exits or aborts"))
    for number, line in enumerate(code.split("\n"), 1):
        for pattern, why in banned:
            for m in re.finditer(pattern, line):
                word = m.group(1)
                if any(path.startswith(p) and word == w for p, w in exceptions):
                    continue
                problems.append(f"{path}:{number}: {word}(): {why}")


def check_sizes(path, text, code, problems):
    lines = text.count("\n")
    if lines > MAX_FILE and path not in LONG_FILES:
        problems.append(f"{path}: {lines} lines, the limit is {MAX_FILE}")
    start = name = None
    for number, line in enumerate(code.split("\n"), 1):
        if start is None and re.match(r"^[A-Za-z_].*\)\s*\{\s*$", line) and not line.startswith(("struct", "enum", "static const struct")):
            start, name = number, line.strip()
        elif start is None and line.startswith(" ") and re.match(r"^\s+.*\)\s*\{\s*$", line) and number > 1:
            # a definition whose parameter list was wrapped
            back = number - 2
            all_lines = code.split("\n")
            while back >= 0 and all_lines[back].startswith(" "):
                back -= 1
            if back >= 0 and re.match(r"^[A-Za-z_][^;=]*\([^;{]*$", all_lines[back]):
                start, name = back + 1, all_lines[back].strip()
        elif start is not None and line.startswith("}"):
            length = number - start + 1
            m = re.search(r"([A-Za-z_0-9]+)\(", name)
            short = m.group(1) if m else name
            if length > MAX_FUNCTION and (path, short) not in LONG_FUNCTIONS:
                problems.append(f"{path}:{start}: {short}() has {length} lines, the limit is {MAX_FUNCTION}")
            start = None


def check_text(path, text, problems):
    if not re.search(r"SPDX-License-Identifier: Apache-2.0", text[:400]):
        problems.append(f"{path}: no SPDX line")
    if path.endswith(".h") and not re.search(r"#ifndef SDC_", text):
        problems.append(f"{path}: no include guard SDC_...")
    for number, line in enumerate(text.split("\n"), 1):
        if line.rstrip() != line:
            problems.append(f"{path}:{number}: trailing white space")
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            problems.append(f"{path}:{number}: unfinished mark")
    for flag in ("-ffast-math", "-Ofast", "-ffinite-math-only", "-march=native"):
        if flag in text and "test_tree" not in path:
            problems.append(f"{path}: the flag {flag} changes results")


def tracked(root):
    """Files that git knows or would add; without git, or outside a checkout, all but what is built."""
    try:
        out = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, check=True).stdout
        return [p for p in out.decode().split("\0") if p and os.path.exists(os.path.join(root, p))]
    except (FileNotFoundError, subprocess.CalledProcessError):
        found = []
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders
                          if f not in (".git", ".venv", "build", "__pycache__") and not f.endswith(".sdcrun")]
            found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
        return sorted(found)


def check(root, files):
    exceptions = set(EXCEPTIONS)
    problems = []
    for path in files:
        if re.search(r"(^|/)(build|\.venv)/|\.(o|a|so|pyc|sqlite)$|__pycache__", path):
            problems.append(f"{path}: a build product is tracked")
        if not re.search(r"\.(c|h|py|sh|cmake)$|CMakeLists.txt$", path):
            continue
        text = open(os.path.join(root, path), encoding="utf-8").read()
        if re.search(r"\.(c|h)$", path):
            check_text(path, text, problems)
            if path.startswith(("src/", "include/")):
                code = strip_comments(text)
                check_includes(path, text, problems)
                check_calls(path, code, problems, exceptions)
                check_sizes(path, text, code, problems)
    return problems


PLANTS = [
    ("src/base/plant.c", '#include "ckpt/ckpt.h"\n', "may not include"),
    ("src/ckpt/plant.c", '#include "sdc/fault.h"\n', "may not include"),
    ("src/camp/plant.c", '#include "train/train.h"\n', "may not include"),
    ("src/train/plant.c", "#include <hdf5.h>\n", "foreign header"),
    ("src/num/plant.c", "void f(void) {\n    printf(\"x\");\n}\n", "never prints"),
    ("src/num/plant2.c", "void *f(void) {\n    return malloc(3);\n}\n", "only through"),
    ("src/io/plant.c", "int f(char *s) {\n    return atoi(s);\n}\n", "banned function"),
    ("src/io/plant2.c", "int f(void) {\n" + "    g();\n" * 120 + "}\n", "the limit is 100"),
    ("src/io/plant3.c", "int a;\n" * 900, "the limit is 800"),
    ("include/sdc/plant.h", "int a;\n", "no include guard"),
]


def self_test(root):
    scratch = tempfile.mkdtemp(prefix="sdc-tree-")
    failed = 0
    try:
        for path, body, want in PLANTS:
            full = os.path.join(scratch, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w") as f:
                f.write("/* SPDX-License-Identifier: Apache-2.0 */\n" + body)
            found = check(scratch, [path])
            os.remove(full)
            if not any(want in p for p in found):
                print(f"planted {path}: '{want}' was not reported, only {found}")
                failed += 1
    finally:
        shutil.rmtree(scratch)
    print(f"{len(PLANTS) - failed} passed, {failed} failed")
    return failed == 0


def main():
    root = os.environ.get("SDC_SOURCE_DIR") or os.path.join(os.path.dirname(__file__), "..", "..")
    if "--self-test" in sys.argv:
        sys.exit(0 if self_test(root) else 1)
    files = tracked(root)
    problems = check(root, files)
    for p in problems:
        print(p)
    print(f"{len(files)} files looked at, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
