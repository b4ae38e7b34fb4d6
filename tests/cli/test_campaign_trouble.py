#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Campaigns whose trainer misbehaves: failed controls, gates that do not pass, crashes, unsound
workers, another platform in the middle."""
import os
import shutil
import sqlite3
import subprocess
import sys

import campaigns as c

program, env = c.proxy_program("proxy")
spec = c.write_spec("trouble.yaml", name="trouble", trials=2)


def go(folder, rules, *more, workers="2"):
    for mark in os.listdir("proxy/marks"):
        os.remove(os.path.join("proxy/marks", mark))
    return c.run(spec, "-o", folder, "--workers", workers, *more, program=program, env={**env, "SDC_PROXY_RULES": rules})


def outcome(folder, trial):
    return c.query(folder, "select o.result, o.numeric, t.attempts, t.message from trial t join outcome o on o.trial ="
                           f" t.id where t.id = '{trial}' and o.after = -1")[0]


c.expect(go(c.fresh("calm"), ""), 0, "32 of 32 trials")

# controls: breaking any of them fails the campaign before a trial is run
for rule, name, text in (("g1-placebo-0 flip-loss", "g1-placebo-0", "loss of rank 0 at step 7"),
                         ("g0-nan-0 no-nan", "g0-nan-0", "did not collapse"),
                         ("g2-lsb-0 nan-loss", "g2-lsb-0", "left the clean spread")):
    c.expect(go(c.fresh("broken"), rule), 1, "INVALID", name, text, "0 of 32 trials")
    if name not in c.query("broken", "select value from meta where key = 'invalid'")[0][0]:
        sys.exit("the store does not say that it is invalid")
    c.expect(go("broken", ""), 1, "INVALID", name)  # and it stays so
    if c.query("broken", "select count(*) from trial where kind = 'trial'")[0][0]:
        sys.exit("trials were run after a failed control")
print("failed controls: passed")

# the gate: only the trials of that clean twin are left out
c.expect(go(c.fresh("gate"), "g1-golden-1 flip-loss"), 1, "REFUSED", "g1", "two clean restarts differ",
         "loss of rank 0 at step 7", "24 of 32 trials")
golden = c.query("gate", 'select passed, message from golden where "group" = \'g1\'')[0]
if golden[0] != 0 or "differ" not in golden[1]:
    sys.exit(f"the store knows the gate as {golden}")
c.expect(go("gate", ""), 0, "32 of 32 trials")  # once it passes, the rest is run
print("gate: passed")

# a trial that always crashes; one that crashes once; one that the trainer cannot run
c.expect(go(c.fresh("crash"), "c000-0000 crash\nc003-0001 crash-once\nc001-0000 fail"), 0, "32 of 32 trials")
if outcome("crash", "c000-0000") != ("done", "crash", 2, "killed by signal 11 (Segmentation fault)"):
    sys.exit(f"a crash is {outcome('crash', 'c000-0000')}")
if outcome("crash", "c003-0001")[:3] != (*outcome("calm", "c003-0001")[:2], 2):
    sys.exit(f"a single crash is {outcome('crash', 'c003-0001')}")
if outcome("crash", "c001-0000")[:2] != ("harness-error", "finite") or "told to fail" not in outcome("crash", "c001-0000")[3]:
    sys.exit(f"a failure is {outcome('crash', 'c001-0000')}")
ours, theirs = c.contents("crash"), c.contents("calm")
changed = {row[0].strip("'") for row in set(ours["trial"]) ^ set(theirs["trial"])}
if changed != {"c000-0000", "c001-0000"}:
    sys.exit(f"other trials changed too: {changed}")
# many crash at once: each needs a fresh worker of its own, and must not take the others' away
for workers in ("1", "3"):
    c.expect(go(c.fresh("crashes"), "c00[0-9]-0000 crash", workers=workers), 0, "10 crash", "32 of 32 trials")
    tries = c.query("crashes", "select max(attempts) from trial")[0][0]
    if tries != 2:
        sys.exit(f"with {workers} workers a trial was tried {tries} times, expected 2")
# the clean twin does not pass either: the laboratory's failure
c.expect(go(c.fresh("both"), "c000-0000 crash\ng0-again crash"), 0, "1 harness-error")
print("crashes: passed")

# a clean run that crashes once is tried again, twice is an error
c.expect(go(c.fresh("clean"), "t0 crash-once\ng1-e0-1 crash-once"), 0)
c.same_stores("clean", "calm")
c.expect(go(c.fresh("clean2"), "g1-e0-1 crash"), 4, "g1-e0-1", "signal 11")
c.expect(go("clean2", ""), 0)
c.same_stores("clean2", "calm")
print("clean runs: passed")

# golden repeated in a worker differs: its trials are run again in another. g3's golden is repeated
# after the controls, and for the second time after the trials, all of which were wrong until then
r = c.expect(go(c.fresh("unsound"), "g3-again flip-loss-second\nc.* flip-loss-once", workers="1"), 0)
if "run again" not in r.stderr:
    sys.exit(f"nothing was said of an unsound worker\n{r.stderr}")
c.same_stores("unsound", "calm")
print("unsound worker: passed")

# another platform in the middle: own goldens, no pair across
half = c.fresh("half")
shutil.copytree("calm", half)
db = sqlite3.connect(f"{half}/store.sqlite")
gone = [t for (t,) in db.execute("select id from trial where kind = 'trial' and (id like 'c0%-0001' or id = 'c002-0000')")]
for table, column in (("trial", "id"), ("outcome", "trial"), ("fault", "trial"), ("exposure", "trial"), ("propagation", "trial"),
                      ("series", "owner")):
    db.executemany(f'delete from "{table}" where "{column}" = ?', [(t,) for t in gone])
db.commit()
db.close()
c.expect(go(half, "platform another machine"), 0, "32 of 32 trials")
goldens = c.query(half, 'select platform, count(*) from golden group by platform')
if sorted(goldens) != [(1, 4), (2, 4)]:
    sys.exit(f"goldens by platform: {goldens}")
platforms = dict(c.query(half, "select id, platform from trial where kind = 'trial'"))
for trial, platform in platforms.items():
    cell, index = int(trial[1:4]), trial[5:]
    block = [t for t in platforms if int(t[1:4]) // 4 == cell // 4 and t[5:] == index]
    if len({platforms[t] for t in block}) != 1:
        sys.exit(f"pair {sorted(block)} crosses platforms: {[platforms[t] for t in block]}")
if set(platforms.values()) != {1, 2}:
    sys.exit("nothing was kept, or nothing was run, on the second platform")
print("another platform: passed")

# a full disk: nothing is lost, and the same command goes on once there is room
script = """
mkdir -p full && mount -t tmpfs -o size=6m none full || exit 77
"$SDCLAB" campaign run trouble.yaml -o full/run --workers 2; echo "exit $?"
mount -o remount,size=300m full || exit 77
"$SDCLAB" campaign run trouble.yaml -o full/run --workers 2; echo "exit $?"
cp -r full/run filled; umount full
"""
c.fresh("filled")
r = subprocess.run(["unshare", "-rm", "bash", "-c", script], capture_output=True, text=True, timeout=300)
if r.returncode == 77 or "unshare" in r.stderr:
    print("full disk: not tested, no mounts are allowed here")
else:
    said = r.stdout + r.stderr
    if "exit 4" not in said or "exit 0" not in said or "No space left on device" not in said:
        sys.exit(f"a full disk: {said}")
    c.same_stores("filled", "calm")
    print("full disk: passed")
