#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual's reference page equals what the command tables say, every command's help names every
option, and libsdclab exports exactly what the public headers declare."""
import json
import os
import re
import subprocess
import sys

root, sdclab, build = os.environ["SDC_SOURCE_DIR"], os.environ["SDCLAB"], os.environ["SDC_BINARY_DIR"]
failures = []


def run(*args):
    return subprocess.run([sdclab, *args], capture_output=True, text=True, timeout=60)


def walk(commands, path=()):
    for c in commands:
        if "commands" in c:
            yield from walk(c["commands"], (*path, c["name"]))
        else:
            yield (*path, c["name"]), c


page = run("help", "--markdown").stdout
kept = open(os.path.join(root, "docs", "user", "commands.md")).read()
if page != kept:
    failures.append("docs/user/commands.md is not what `sdclab help --markdown` prints: refresh it")

interface = json.loads(run("help", "--json").stdout)
n = 0
for path, command in walk(interface["commands"]):
    n += 1
    if not command.get("options") and "options" not in command:
        continue  # hands its words to another program
    shown = run(*path, "--help")
    asked = run("help", *path)
    if shown.returncode != 0 or shown.stdout != asked.stdout or shown.stderr:
        failures.append(f"{' '.join(path)} --help and help {' '.join(path)} differ or fail")
    for option in command["options"] + interface["common_options"]:
        if not re.search(r"--" + re.escape(option["name"]) + r"\b", shown.stdout):
            failures.append(f"help of {' '.join(path)} lacks --{option['name']}")
    bad = run(*path, "--surely-not-an-option")
    if bad.returncode != 2 or "unknown option '--surely-not-an-option'" not in bad.stderr or bad.stdout:
        failures.append(f"{' '.join(path)}: an unknown option gives {bad.returncode}: {bad.stderr!r}")
    for word in path:
        if f"sdclab {' '.join(path)}" not in kept:
            failures.append(f"docs/user/commands.md lacks {' '.join(path)}")

library = os.path.join(build, "libsdclab.so")
declared = set()
for name in sorted(os.listdir(os.path.join(root, "include", "sdc"))):
    text = re.sub(r"/\*.*?\*/", " ", open(os.path.join(root, "include", "sdc", name)).read(), flags=re.S)
    for m in re.finditer(r"SDC_API\b[^;{]*?\b(sdc_[a-z0-9_]+)\s*\(", text):
        declared.add(m.group(1))
out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True)
if out.returncode != 0:
    failures.append(f"nm {library}: {out.stderr}")
else:
    exported = {line.split()[-1] for line in out.stdout.splitlines() if " T " in line or " D " in line or " R " in line or " B " in line}
    for name in sorted(exported - declared):
        failures.append(f"libsdclab exports {name}, which no public header declares")
    for name in sorted(declared - exported):
        failures.append(f"public headers declare {name}, which libsdclab does not export")

for program in ("sdclab",):
    needed = subprocess.run(["readelf", "-d", os.path.join(build, program)], capture_output=True, text=True).stdout
    for foreign in ("libdnnl", "libmpi", "libgomp"):
        if foreign in needed:
            failures.append(f"{program} links {foreign}")

print("\n".join(failures))
print(f"{n} commands looked at, {len(declared)} public functions, {len(failures)} problems")
sys.exit(1 if failures else 0)
