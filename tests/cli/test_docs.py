#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what pages of the manual show: every `console` block of docs/user/formats.md, its commands in
order in one folder that holds the files of tests/data/small, and compares what they print (standard
output) with what the page says. `--write` puts the real output into the page instead."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ["SDC_SOURCE_DIR"]
SDCLAB = os.environ["SDCLAB"]
SMALL = os.path.join(SOURCE, "tests/data/small")
PAGES = ["docs/user/formats.md"]


def make_files(folder):
    subprocess.run([sys.executable, os.path.join(SMALL, "generate.py"), folder], check=True, timeout=120)
    for name in os.listdir(SMALL):
        path = os.path.join(SMALL, name)
        if name.startswith("fc."):
            (shutil.copytree if os.path.isdir(path) else shutil.copy)(path, os.path.join(folder, name))


def run_block(block, folder):
    """The block with the real output of its commands."""
    out = []
    for line in block.split("\n"):
        if not line.startswith("$ "):
            continue
        out.append(line)
        command = line[2:].replace("sdclab", f'"{SDCLAB}"', 1)
        p = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=60)
        assert p.returncode in (0, 1), f"{line}: exit {p.returncode}\n{p.stdout}{p.stderr}"
        assert "sdclab " not in p.stderr or "restore with" in p.stderr, f"{line}: {p.stderr}"
        out += [x.rstrip() for x in p.stdout.rstrip("\n").split("\n")] if p.stdout else []
    return "\n".join(out)


def run_page(page, write):
    with open(os.path.join(SOURCE, page)) as f:
        text = f.read()
    folder = tempfile.mkdtemp(dir=".")
    make_files(folder)
    failed = []

    def replace(m):
        real = run_block(m.group(1), folder)
        if real != m.group(1).rstrip("\n"):
            failed.append(f"{page} shows\n{m.group(1)}\nbut these commands print\n{real}")
        return f"```console\n{real}\n```"
    new = re.sub(r"```console\n(.*?)\n```", replace, text, flags=re.S)
    shutil.rmtree(folder)
    if write:
        with open(os.path.join(SOURCE, page), "w") as f:
            f.write(new)
        return 0
    for message in failed:
        print(message)
    return len(failed)


if __name__ == "__main__":
    sys.exit(1 if sum(run_page(p, "--write" in sys.argv) for p in PAGES) else 0)
