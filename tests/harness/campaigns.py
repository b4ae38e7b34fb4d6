# SPDX-License-Identifier: Apache-2.0
"""What the tests that run campaigns share: a small spec on synthetic data, runs, stores compared."""
import math
import os
import shutil
import sqlite3
import stat
import subprocess
import sys

SDCLAB = os.environ["SDCLAB"]
BUILD = os.environ["SDC_BINARY_DIR"]
SOURCE = os.environ["SDC_SOURCE_DIR"]

SPEC = """campaign: {name}
seed: {seed}
trainer: native
model: mlp
kernels: ref
data: {{name: synthetic}}
batch: 4
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
baseline: {{seeds: 2, checkpoints: [6]}}
window: {{steps: {steps}, eval_samples: 50, digest_every: 2}}
clean: {{e0: 2, e1: 2}}
factors:
  recipe: [ddp/after-wrap-all, horovod/rank0-broadcast]
  ranks: [2]
  part: [model, optimizer]
  flips: [1, 20]
  altered_ranks: [one, all]
pair_over: [recipe, part]
trials: {trials}
claims: [H1a, H3]
margin: 0.02
"""


def fresh(name):
    shutil.rmtree(name, ignore_errors=True)
    return name


def write_spec(path, name="small", seed=5, steps=6, trials=2, change=lambda text: text):
    with open(path, "w") as f:
        f.write(change(SPEC.format(name=name, seed=seed, steps=steps, trials=trials)))
    return path


def run(*args, program=None, timeout=300, env=None):
    return subprocess.run([program or SDCLAB, "campaign", "run", *args], capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **(env or {})})


def expect(result, code, *texts):
    said = result.stdout + result.stderr
    if result.returncode != code or not all(t in said for t in texts):
        sys.exit(f"{result.args}: exit {result.returncode}, expected {code} with {texts}\n{said}")
    return result


def program_with(folder, trainer=None):
    """A copy of the program in a folder of its own, beside this trainer (a path), or beside none."""
    os.makedirs(fresh(folder))
    copy = shutil.copy(SDCLAB, folder)
    if trainer:
        shutil.copy(trainer, os.path.join(folder, "sdclab-train"))
        os.chmod(os.path.join(folder, "sdclab-train"), 0o755)
    return os.path.abspath(copy)


def proxy_program(folder):
    """The program with the trainer that misbehaves on request, and the environment it needs."""
    program = program_with(folder)
    python = os.environ["SDC_PYTHON"]
    script = os.path.join(folder, "sdclab-train")
    with open(script, "w") as f:
        f.write(f"#!/bin/sh\nexec {python} {SOURCE}/tests/harness/proxy_trainer.py\n")
    os.chmod(script, os.stat(script).st_mode | stat.S_IXUSR)
    os.makedirs(os.path.join(folder, "marks"), exist_ok=True)
    return program, {"SDC_PROXY_TRAINER": os.path.join(BUILD, "sdclab-train"),
                     "SDC_PROXY_MARKS": os.path.abspath(os.path.join(folder, "marks"))}


# columns that tell of the clock and of who did it, not of what came out
CLOCK = {"trial": {"worker", "seconds", "finished", "attempts"}, "golden": {"step_seconds"}}
CLOCK_META = {"created", "finished", "interrupted", "trials_per_minute"}


def contents(folder):
    """Every table as a sorted list of rows, without clocks."""
    db = sqlite3.connect(f"file:{folder}/store.sqlite?mode=ro", uri=True)
    tables = [r[0] for r in db.execute("select name from sqlite_master where type='table' and name not like 'sqlite%'")]
    out = {}
    for table in tables:
        columns = [r[1] for r in db.execute(f'pragma table_info("{table}")')]
        keep = [c for c in columns if c not in CLOCK.get(table, ())]
        names = ",".join(f'"{c}"' for c in keep)
        rows = [tuple(repr(v) for v in r) for r in db.execute(f'select {names} from "{table}"')]
        if table == "meta":
            rows = [r for r in rows if r[0].strip("'") not in CLOCK_META]
        out[table] = sorted(rows)
    db.close()
    return out


def same_stores(a, b):
    one, two = contents(a), contents(b)
    if one.keys() != two.keys():
        sys.exit(f"{a} and {b} have other tables")
    for table in one:
        if one[table] != two[table]:
            differ = sorted(set(one[table]) ^ set(two[table]))
            sys.exit(f"{a} and {b}: table {table} differs ({len(one[table])} and {len(two[table])} rows):\n"
                     + "\n".join(map(str, differ[:6])))


def stored(folder):
    """Trials in the store, 0 while there is none yet (its tables come after its file)."""
    try:
        return query(folder, "select count(*) from trial")[0][0]
    except sqlite3.OperationalError:
        return 0


def query(folder, sql):
    db = sqlite3.connect(f"file:{folder}/store.sqlite?mode=ro", uri=True)
    rows = db.execute(sql).fetchall()
    db.close()
    return rows


def trainers_left(folder):
    """Trainer processes of this test that still run: they have its folder in their environment."""
    left = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{pid}/cmdline").read()
            state = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
            cwd = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if ("sdclab-train" in command or "proxy_trainer" in command) and state != "Z" and cwd == os.path.abspath(folder):
            left.append((pid, command.replace("\0", " ")))
    return left


def isnan(x):
    return x is None or (isinstance(x, float) and math.isnan(x))
