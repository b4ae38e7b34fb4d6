#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Campaigns run whole on the native trainer: results do not depend on workers, pairs get the same
faults, a trial can be repeated, every kind of trouble has its message and exit code."""
import os
import signal
import subprocess
import sys
import time

import campaigns as c


def case(f):
    start = time.time()
    f()
    print(f"{f.__name__}: passed in {time.time() - start:.1f} s", flush=True)


def workers_do_not_matter():
    spec = c.write_spec("small.yaml")
    c.expect(c.run(spec, "-o", c.fresh("one"), "--workers", "1"), 0, "32 of 32 trials and 12 of 12 controls")
    c.expect(c.run(spec, "-o", c.fresh("two"), "--workers", "2"), 0)
    c.same_stores("one", "two")
    if c.trainers_left("."):
        sys.exit(f"left behind: {c.trainers_left('.')}")
    if os.listdir("one/trials"):
        sys.exit(f"files of trials stay: {os.listdir('one/trials')}")
    # again: nothing to do, and nothing is changed
    before = c.contents("one")
    c.expect(c.run(spec, "-o", "one"), 0, "32 of 32 trials")
    c.expect(c.run("-o", "one"), 0, "32 of 32 trials")
    if c.contents("one") != before:
        sys.exit("a finished campaign was changed")


def arms_share_their_faults():
    """Over recipe byte for byte; over part by parameter, element and bit."""
    rows = c.query("one", "select t.id, c.label, f.tensor, f.elem, f.bits, f.old, f.new from fault f"
                          " join trial t on t.id = f.trial join cell c on c.number = t.cell order by f.trial, f.number")
    arms = {}
    for trial, label, tensor, elem, bits, old, new in rows:
        words = dict(w.split("=") for w in label.split())
        block = tuple(v for k, v in sorted(words.items()) if k not in ("recipe", "part")) + (trial.split("-")[1],)
        arms.setdefault(block, {}).setdefault((words["recipe"], words["part"]), []).append((tensor, elem, bits, old, new))
    if len(arms) != 8:
        sys.exit(f"{len(arms)} pairs, expected 4 blocks of 2 trials")
    for block, lists in arms.items():
        parts = {}
        for (_, part), faults in lists.items():
            parts.setdefault(part, []).append(faults)
        if any(len(p) != 2 or p[0] != p[1] for p in parts.values()):
            sys.exit(f"{block}: arms over recipe have other faults")
        plain = [[(t.replace("model/", "").replace("optimizer/", "").replace("/momentum", ""), e, b)
                  for t, e, b, _, _ in parts[p][0]] for p in ("model", "optimizer")]
        if sorted(plain[0]) != sorted(plain[1]):
            sys.exit(f"{block}: arms over part hit other parameters")


def labels_make_sense():
    """Independent of the judge: what must hold between columns of the store."""
    n = 0
    for row in c.query("one", "select t.id, o.exposure, o.numeric, o.trajectory, o.replicas, t.delivered, t.kept_ranks,"
                              " t.collapse_step, t.end_reason, t.end_step from trial t join outcome o on o.trial = t.id"
                              " where o.after = -1"):
        trial, exposure, numeric, trajectory, replicas, delivered, kept, collapse, reason, end = row
        n += 1
        ok = (kept == 0) == (exposure in ("none", "not-read", "erased-at-start"))
        ok &= (collapse >= 0) == numeric.startswith("non-finite")
        ok &= exposure != "not-read" or (trajectory == "bit-identical" and replicas == "all-equal" and delivered == 0)
        ok &= exposure != "not-read" or (reason == "equal-to-golden" and end == 7)
        ok &= exposure in ("none", "not-read") or delivered > 0
        if "-placebo-" in trial:
            ok &= trajectory == "bit-identical" and reason == "completed" and end == 12
        if "-nan-" in trial:
            ok &= numeric == "non-finite-immediate"
        if "-lsb-" in trial:
            ok &= trajectory == "inside-spread"
        if not ok:
            sys.exit(f"contradiction: {row}")
    if n != 44:
        sys.exit(f"{n} trials have labels at the end of the window")
    exposures = {r[0] for r in c.query("one", "select exposure from outcome")}
    if not {"none", "not-read", "kept", "spread-to-all"} <= exposures:
        sys.exit(f"the small campaign shows only {exposures}")


def a_trial_again():
    before = c.contents("one")
    c.expect(c.run("-o", "one", "--trial", "c001-0001"), 0, "the same labels", "exposure", "quality")
    names = os.listdir("one/replay/c001-0001")
    for wanted in ("altered.h5", "altered.h5.sdc.jsonl", "events.jsonl", "run.json"):
        if wanted not in names:
            sys.exit(f"--trial left {names}")
    c.fresh("again")
    c.expect(c.run("-o", "one", "--trial", "g0-lsb-0", "--into", "again"), 0, "the same labels", "inside-spread")
    c.expect(c.run("-o", "one", "--trial", "g0-lsb-0", "--into", "again"), 4, "exists already")
    c.expect(c.run("-o", "one", "--trial", "c999-0000"), 2, "c999-0000")
    c.expect(c.run("-o", "nothing-here", "--trial", "c001-0001"), 4, "nothing-here")
    if c.contents("one") != before:
        sys.exit("--trial changed the store")


def usage():
    c.expect(c.run(), 2, "SPEC or -o DIR")
    c.expect(c.run("-o", "one", "--into", "x"), 2, "--into", "--trial")
    c.expect(c.run("-o", "never-made", "--dry-run"), 4, "never-made")
    c.expect(c.run("small.yaml", "-o", "never-made", "--dry-run"), 0, "cells", "0 of 44 trials and controls")
    if os.path.exists("never-made"):
        sys.exit("--dry-run made a folder")
    c.expect(c.run("small.yaml", "-o", "one", "--dry-run"), 0, "44 of 44 trials and controls")
    other = c.write_spec("other.yaml", seed=6)
    c.expect(c.run(other, "-o", "one"), 3, "seed")
    bad = c.write_spec("bad.yaml", change=lambda t: t.replace("batch:", "bacth:"))
    c.expect(c.run(bad, "-o", c.fresh("bad")), 3, "bad.yaml:7:1", "batch")


def missing_things():
    alone = c.program_with("alone")
    c.expect(c.run("small.yaml", "-o", c.fresh("m1"), program=alone), 4, "sdclab-train")
    dead = os.path.abspath("dead-trainer")
    with open(dead, "w") as f:
        f.write("#!/bin/sh\necho the kernels library is missing >&2\nexit 3\n")
    c.expect(c.run("small.yaml", "-o", c.fresh("m2"), program=c.program_with("with-dead", dead)), 4,
             "ended with exit code 3", "the kernels library is missing")
    spec = c.write_spec("nodata.yaml", change=lambda t: t.replace("{name: synthetic}", "{name: fashion-mnist, path: no/such}"))
    c.expect(c.run(spec, "-o", c.fresh("m3")), 4, "no/such", "without any fault")
    if c.trainers_left("."):
        sys.exit(f"left behind: {c.trainers_left('.')}")


def nothing_to_hit():
    """A choice that matches nothing must not end as "faults have no effect"."""
    for i, extra in enumerate(("tensors: [model/nothing*]", "not_tensors: ['*']", "dtype: F16")):
        spec = c.write_spec("nothing.yaml", name=f"nothing{i}", change=lambda t: t + extra + "\n")
        c.expect(c.run(spec, "-o", c.fresh("nothing")), 3, "cell c000", "match nothing in the checkpoint",
                 "such as model/")
        if c.query("nothing", "select count(*) from trial") != [(0,)]:
            sys.exit("trials ran that could hit nothing")
    spec = c.write_spec("many.yaml", name="many", change=lambda t: t.replace("[1, 20]", "[1, 400]") + "tensors: ['*bias']\nbits: sign\n")
    c.expect(c.run(spec, "-o", c.fresh("many")), 3, "flips: 400 distinct sites, expected at most")


def refused_at_load():
    """The trainer refuses altered counters; that is an outcome at once, and what no rank said is not known."""
    spec = c.write_spec("loop.yaml", name="loop", change=lambda t: t.replace("[model, optimizer]", "[loop]").replace(
        "[recipe, part]", "[recipe]").replace("[H1a, H3]", "[H1a]"))
    result = c.expect(c.run(spec, "-o", c.fresh("loop")), 0, "rejected-at-load")
    if "tried again" in result.stdout + result.stderr:
        sys.exit(f"a refused file was tried again:\n{result.stderr}")
    odd = c.query("loop", "select trial, count(distinct exposure) from outcome o where exists (select 1 from outcome p where"
                          " p.trial = o.trial and p.numeric = 'rejected-at-load') group by trial having count(distinct exposure) > 1")
    if odd:
        sys.exit(f"exposure is not the same at all steps: {odd}")
    trial = c.query("loop", "select trial from outcome where numeric = 'rejected-at-load'")[0][0]
    shown = subprocess.run([c.SDCLAB, "campaign", "show", "loop", trial], capture_output=True, text=True, check=True).stdout
    if "rank 0          yes   -           -  (planned)" not in shown and "rank 1          yes   -           -  (planned)" not in shown:
        sys.exit(f"show claims a state that no rank reported:\n{shown}")


def busy_and_interrupted():
    spec = c.write_spec("long.yaml", name="long", trials=8, steps=30)
    first = subprocess.Popen([c.SDCLAB, "campaign", "run", spec, "-o", c.fresh("long"), "--workers", "2"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while c.stored("long") <= 16 and first.poll() is None:  # ends with the run, or by the test's limit
        time.sleep(0.02)
    c.expect(c.run(spec, "-o", "long"), 4, "long")
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=60)
    if first.returncode != 130 or "the same command goes on" not in said:
        sys.exit(f"Ctrl-C: exit {first.returncode}\n{said}")
    done = c.query("long", "select count(*) from trial")[0][0]
    if not 16 < done < 140 or c.trainers_left("."):
        sys.exit(f"Ctrl-C left {done} trials and {c.trainers_left('.')}")
    second = subprocess.Popen([c.SDCLAB, "campaign", "run", "-o", "long", "--workers", "2"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for _ in range(600):  # its workers run: so does its handling of signals
        if c.trainers_left("."):
            break
        time.sleep(0.05)
    second.send_signal(signal.SIGINT)
    time.sleep(0.02)
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=30)
    if second.returncode != 130 or c.trainers_left("."):
        sys.exit(f"Ctrl-C twice: exit {second.returncode}, left {c.trainers_left('.')}")
    c.expect(c.run(spec, "-o", "long", "--workers", "2"), 0, "128 of 128 trials")
    c.expect(c.run(spec, "-o", c.fresh("whole"), "--workers", "2"), 0)
    c.same_stores("long", "whole")


if __name__ == "__main__":
    for f in (workers_do_not_matter, arms_share_their_faults, labels_make_sense, a_trial_again, usage, missing_things,
              nothing_to_hit, refused_at_load,
              busy_and_interrupted):
        case(f)
