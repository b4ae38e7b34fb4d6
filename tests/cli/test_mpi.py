# SPDX-License-Identifier: Apache-2.0
"""sdclab-train with ranks as MPI processes: the bits of threads, restarts, failures that are everyone's, and
processes that are lost."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import mpirun

PROGRAM = os.path.abspath(os.path.join(os.environ["SDC_BINARY_DIR"], "sdclab-train"))
SMALL = ["--model", "mlp", "--data", "synthetic", "--kernels", "ref", "--batch", "8", "--eval-samples", "100"]


def threads(*args, code=0):
    p = subprocess.run([PROGRAM, *SMALL, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       timeout=60, env=mpirun.environment())
    assert p.returncode == code, (args, p.returncode, p.stderr)
    return p


def processes(ranks, *args, code=0, small=SMALL):
    p = mpirun.run(ranks, [PROGRAM, *small, *args])
    assert p.returncode == code, (args, p.returncode, p.stdout, p.stderr)
    return p


def events(folder, drop=("elapsed", "environment", "paths")):
    with open(os.path.join(folder, "events.jsonl")) as f:
        return [{k: v for k, v in json.loads(line).items() if k not in drop} for line in f]


class Bits(unittest.TestCase):
    def test_equal_to_threads(self):
        for ranks, recipe in ((1, "single"), (2, "ddp/after-wrap-all"), (3, "ddp/after-wrap-all"),
                              (3, "horovod/rank0-broadcast"), (4, "horovod/rank0-broadcast")):
            args = ["--recipe", recipe, "--steps", "8", "--digest-every", "1", "--snapshot", "4"]
            threads(*args, "--ranks", str(ranks), "-o", "t", "--save", "t.h5")
            comm = ["--comm", "mpi"] if ranks == 1 else []
            p = processes(ranks, *args, *comm, "-o", "m", "--save", "m.h5")
            self.assertEqual(p.stdout.count("completed at step 8"), 1)
            self.assertEqual(events("t"), events("m"), (ranks, recipe))
            with open("t.h5", "rb") as a, open("m.h5", "rb") as b:
                self.assertEqual(a.read(), b.read())
            for r in range(ranks):
                with open(f"t/snapshot-4-rank-{r}.safetensors", "rb") as a, \
                        open(f"m/snapshot-4-rank-{r}.safetensors", "rb") as b:
                    self.assertEqual(a.read(), b.read())

    def test_restart(self):
        base = ["--recipe", "ddp/after-wrap-all", "--digest-every", "1"]
        processes(2, *base, "--steps", "8", "-o", "whole")
        processes(2, *base, "--steps", "4", "-o", "half", "--save", "half.h5")
        for out in ("rest1", "rest2"):
            processes(2, *base, "--steps", "4", "-o", out, "--load", "half.h5")
        steps = [[e for e in events(o) if e["type"] == "step" and e["step"] > 4] for o in ("whole", "rest1", "rest2")]
        self.assertEqual(len(steps[0]), 4)
        self.assertEqual(steps[0], steps[1])
        self.assertEqual(steps[1], steps[2])

    def test_a_file_for_one_rank(self):
        threads("--steps", "2", "-o", "a", "--save", "a.h5", "--ranks", "2")
        threads("--steps", "2", "-o", "b", "--save", "b.h5", "--ranks", "2", "--seed", "5")
        args = ["--load", "a.h5", "--load-rank", "1=b.h5", "--steps", "3", "--digest-every", "1"]
        threads(*args, "--ranks", "2", "--recipe", "ddp/after-wrap-all", "-o", "t")
        processes(2, *args, "--recipe", "ddp/after-wrap-all", "-o", "m")
        self.assertEqual(events("t"), events("m"))

    def test_description_of_rank_0(self):
        p = processes(2, "--steps", "3", "--dry-run", "-o", "d")
        with open("run.json", "w") as f:
            f.write(p.stdout)
        self.assertEqual(json.loads(p.stdout)["ranks"], 2)
        p = processes(2, "--run", "run.json", "--json", small=[])
        self.assertEqual(json.loads(p.stdout)["step"], 3)


class Failures(unittest.TestCase):
    def test_said_once(self):
        p = processes(2, "--ranks", "3", "--steps", "1", code=2)
        self.assertEqual(p.stderr.count("--ranks: found 3, the launcher started 2 processes"), 1)
        p = processes(2, "--load", "nothere.h5", "--steps", "1", code=4)
        self.assertEqual(p.stderr.count("nothere.h5"), 1)
        p = processes(2, "--steps", "1", "--save", "no/such/x.h5", "-o", "u", code=4)
        self.assertEqual(p.stderr.count("sdclab train:"), 1)
        p = processes(2, "--help")
        self.assertEqual(p.stdout.count("usage: sdclab train"), 1)

    def test_one_rank_s_file_is_refused(self):
        threads("--steps", "2", "-o", "a", "--save", "good.h5", "--ranks", "2")
        with open("good.h5", "rb") as f, open("bad.h5", "wb") as g:
            g.write(f.read()[:1000])
        p = processes(2, "--load", "good.h5", "--load-rank", "1=bad.h5", "--recipe", "ddp/after-wrap-all",
                      "--steps", "1", "-o", "r", code=3)
        self.assertEqual(p.stderr.count("rank 1: bad.h5"), 1)
        self.assertEqual(events("r")[-1]["reason"], "rejected")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Lost(unittest.TestCase):
    """A signal to one rank in the middle of a long run."""

    def lose(self, rank, number, options=(), ranks=3, timeout=3):
        tell = 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"'
        out = f"lost-{rank}-{number}-{len(options)}"
        shutil.rmtree(out, ignore_errors=True)
        argv = ["bash", "-c", tell, "sh", PROGRAM, *SMALL, "--steps", "1000000", "--quiet",
                "--timeout", str(timeout), "-o", out]
        job = subprocess.Popen(mpirun.command(ranks, argv, options), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, env=mpirun.environment())
        try:
            path = os.path.join(out, "events.jsonl")
            until = time.monotonic() + 60
            while not (os.path.exists(path) and '"step"' in open(path).read()):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.1)
            pids = [int(open(f"pid.{r}").read()) for r in range(ranks)]
            before = time.monotonic()
            os.kill(pids[rank], number)
            _, text = job.communicate(timeout=60)
            took = time.monotonic() - before
        finally:
            if job.poll() is None:
                job.kill()
                job.wait()
        while any(map(alive, pids)) and time.monotonic() - before < 30:
            time.sleep(0.1)
        self.assertFalse(any(map(alive, pids)))
        self.assertLess(took, timeout + 20)
        last = events(out)[-1] if rank != 0 or number == signal.SIGSTOP else None
        return job.returncode, text, last

    def test_killed(self):
        code, text, last = self.lose(1, signal.SIGKILL)
        self.assertEqual(code, 128 + 9, text)
        self.assertEqual(last["reason"], "failed")
        self.assertIn("waiting for rank", last["message"])

    def test_killed_unseen_by_the_launcher(self):
        code, text, last = self.lose(1, signal.SIGKILL, ["--mca", "orte_enable_recovery", "1"])
        del code  # such a launcher's own is 0
        self.assertIn("rank 1 did not come within 3000 ms", text)
        self.assertEqual(last["reason"], "failed")

    def test_rank_0_killed(self):
        code, text, _ = self.lose(0, signal.SIGKILL)
        self.assertEqual(code, 128 + 9, text)
        self.assertIn("rank 0", text)

    def test_stopped(self):
        code, text, last = self.lose(1, signal.SIGSTOP)
        self.assertEqual(code, 4, text)
        self.assertEqual(last["reason"], "failed")
        self.assertIn("rank 1 did not come within 3000 ms", last["message"])
        self.assertIn("rank 1 did not come within 3000 ms", text)


if __name__ == "__main__":
    if mpirun.missing():
        print(mpirun.missing())
        sys.exit(77)
    unittest.main()
