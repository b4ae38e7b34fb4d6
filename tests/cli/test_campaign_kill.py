#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a running campaign, ten times at random moments, then to its end: every planned trial
is there once, and the store equals that of an undisturbed run."""
import os
import random
import subprocess
import sys
import time

import campaigns as c

spec = c.write_spec("kill.yaml", name="kill", seed=9, trials=6, steps=20)
start = time.time()
c.expect(c.run(spec, "-o", c.fresh("calm"), "--workers", "2"), 0)
whole = time.time() - start

random.seed(int(os.environ.get("SDC_SEED", "1")))
c.fresh("killed")
at, kills = [], 0
while kills < 10:
    p = subprocess.Popen([c.SDCLAB, "campaign", "run", spec, "-o", "killed", "--workers", "2"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # later and later into the run, since each call goes on where the last one stopped
    try:
        p.wait(timeout=random.uniform(0.02, 0.25 * whole))
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
        kills += 1
        at.append(c.stored("killed"))
        time.sleep(0.3)
        if c.trainers_left("."):
            sys.exit(f"workers outlive their pool: {c.trainers_left('.')}")
        continue
    # it came to its end before the kill: begin again
    c.same_stores("killed", "calm")
    c.fresh("killed")
print(f"killed ten times, after {at} trials; a whole run takes {whole:.1f} s")
c.expect(c.run(spec, "-o", "killed", "--workers", "2"), 0, "96 of 96 trials and 12 of 12 controls")
twice = c.query("killed", "select id, count(*) from trial group by id having count(*) > 1")
if twice:
    sys.exit(f"trials are there twice: {twice}")
c.same_stores("killed", "calm")
if os.path.exists("killed/workers.json") or c.trainers_left("."):
    sys.exit("leftovers of killed pools stay")
