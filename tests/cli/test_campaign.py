# SPDX-License-Identifier: Apache-2.0
"""Commands that plan campaigns and look at their stores: messages, exit codes, contents."""
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import jsonschema

SDCLAB = os.environ["SDCLAB"]
SOURCE = pathlib.Path(os.environ["SDC_SOURCE_DIR"])
PLANT = pathlib.Path(os.environ["SDC_BINARY_DIR"]) / "tests/cli/plant_store"

SPEC = """campaign: small
seed: 2022
baseline: {seeds: 2}
pair_over: [recipe, part]
claims: [H1a, H3]
trials: 4
factors:
  recipe: [ddp/after-wrap-all, horovod/rank0-broadcast]
  part: [model, optimizer]
  flips: [1, 10]
"""


def sdclab(*words, cwd=None):
    return subprocess.run([SDCLAB, *map(str, words)], capture_output=True, text=True, timeout=60, cwd=cwd)


def plant(name, *how):
    shutil.rmtree(name, ignore_errors=True)
    pathlib.Path("small.yaml").write_text(SPEC)
    subprocess.run([PLANT, "small.yaml", name, *how], check=True, timeout=60)
    return name


# built with -DSDC_GSL=OFF: everything but claims, which say what they need
GSL = "GSL left out" not in subprocess.run([SDCLAB, "version", "--full"], capture_output=True, text=True).stdout


class Specs(unittest.TestCase):
    def plan(self, text):
        pathlib.Path("s.yaml").write_text(text)
        return sdclab("campaign", "plan", "s.yaml")

    def test_misspelt_key(self):
        r = self.plan("campaign: x\ntrails: 3\n")
        self.assertEqual(r.returncode, 3)
        self.assertEqual(r.stderr, "sdclab campaign plan: s.yaml:2:1: unknown key 'trails' "
                                   "(did you mean 'trials'?)\n")
        self.assertEqual(r.stdout, "")

    def test_wrong_type(self):
        r = self.plan("campaign: x\nbatch: many\n")
        self.assertEqual(r.returncode, 3)
        self.assertIn("s.yaml:2:8: batch: expected a whole number from 1 to 65536, found the text 'many'",
                      r.stderr)

    def test_missing_file(self):
        r = sdclab("campaign", "plan", "no-such.yaml")
        self.assertEqual(r.returncode, 4)
        self.assertIn("no-such.yaml", r.stderr)

    def test_usage(self):
        self.assertEqual(sdclab("campaign", "plan").returncode, 2)
        self.assertEqual(sdclab("campaign", "plan", "a", "b").returncode, 2)
        r = sdclab("campaign", "paln")
        self.assertEqual(r.returncode, 2)
        self.assertIn("did you mean 'plan'?", r.stderr)

    def test_plan_of_the_example(self):
        r = sdclab("campaign", "plan", SOURCE / "examples/paper-small.yaml", "--rate", "108")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("trainings", r.stdout)
        self.assertIn("minutes at 108.0 trials a minute", r.stdout)
        self.assertIn("undecided: too few clusters", r.stdout)
        j = json.loads(sdclab("campaign", "plan", SOURCE / "examples/paper-small.yaml", "--json").stdout)
        self.assertEqual(j["schema"], "sdclab.plan/1")
        self.assertEqual(j["trials"], sum(c["trials"] for c in j["cells"]))
        # cells that differ in paired factors alone share a block
        keys = {}
        for c in j["cells"]:
            unpaired = tuple(sorted((k, v) for k, v in c["levels"].items() if k not in ("recipe", "part")))
            keys.setdefault(unpaired, set()).add(c["block"])
        self.assertTrue(all(len(v) == 1 for v in keys.values()))
        self.assertEqual(len({b for v in keys.values() for b in v}), len(keys))

    def test_init(self):
        path = pathlib.Path("my-first.yaml")
        path.unlink(missing_ok=True)
        r = sdclab("campaign", "init", path)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("campaign: my-first\n", path.read_text())
        self.assertEqual(sdclab("campaign", "plan", path).returncode, 0)
        r = sdclab("campaign", "init", path)
        self.assertEqual(r.returncode, 4)
        self.assertIn("exists already", r.stderr)
        self.assertEqual(sdclab("campaign", "init", path, "--force").returncode, 0)
        self.assertEqual(sdclab("campaign", "init", "-").stdout.replace("campaign: campaign", "campaign: my-first"),
                         path.read_text())


class Stores(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.whole = plant("whole")
        cls.part = plant("part", "part")
        cls.bad = plant("bad", "bad-control")

    def test_no_store(self):
        for words in (["status", "nowhere"], ["show", "nowhere", "c000-0000"], ["export", "nowhere", "--csv"]):
            r = sdclab("campaign", *words)
            self.assertEqual(r.returncode, 4, words)
            self.assertIn("no campaign here", r.stderr)
        self.assertEqual(sdclab("report", "nowhere").returncode, 4)

    def test_status(self):
        r = sdclab("campaign", "status", self.whole)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("state      finished", r.stdout)
        self.assertIn("trials     32 of 32, controls 12 of 12", r.stdout)
        self.assertIn("too few clusters" if GSL else "needs GSL", r.stdout)
        r = sdclab("campaign", "status", self.part)
        self.assertIn("state      unfinished", r.stdout)
        self.assertIn("rate       120.0 trials a minute", r.stdout)
        j = json.loads(sdclab("campaign", "status", self.whole, "--json").stdout)
        self.assertEqual(j["trials"], 32)
        self.assertEqual([c["verdict"] for c in j["claims"]], ["undecided", "undecided"] if GSL else [])
        self.assertEqual(sum(c["stored"] for c in j["cells"]), 32)

    def test_failed_control(self):
        r = sdclab("campaign", "status", self.bad)
        self.assertEqual(r.returncode, 1)
        self.assertIn("1 FAILED: planted: the loss of the first step differs", r.stdout)

    def test_show(self):
        r = sdclab("campaign", "show", self.whole, "c003-0002")
        self.assertEqual(r.returncode, 0, r.stderr)
        for text in ("model/fc3.weight[1,2]@lsb:30 0.05 -> 1.7", "exposure", "conv1",
                     f"sdclab campaign run -o {self.whole} --trial c003-0002", "cluster 0"):
            self.assertIn(text, r.stdout)
        r = sdclab("campaign", "show", self.whole, "c999-0000")
        self.assertEqual(r.returncode, 4)
        self.assertIn("no trial is called 'c999-0000', expected such as c000-0000", r.stderr)
        r = sdclab("campaign", "show", self.part, "c000-0000")
        self.assertEqual(r.returncode, 0)
        self.assertIn("not run yet", r.stdout)
        j = json.loads(sdclab("campaign", "show", self.whole, "c003-0002", "--json").stdout)
        self.assertEqual(j["faults"][0]["old_raw"], 0x3d4ccccd)
        self.assertEqual(len(j["series"]), 3)

    def test_export(self):
        r = sdclab("campaign", "export", self.whole, "--csv")
        rows = list(csv.DictReader(io.StringIO(r.stdout)))
        self.assertEqual(len(rows), 44)
        self.assertEqual(len({row["trial"] for row in rows}), 44)
        j = json.loads(sdclab("campaign", "export", self.whole, "--json").stdout)
        self.assertEqual(j["schema"], "sdclab.export/1")
        schema = json.loads((SOURCE / "schemas/export-1.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(j)
        # CSV has the same columns in the same order
        self.assertEqual(list(schema["properties"]["trials"]["items"]["properties"])[:-1], list(rows[0])[:-3])
        for row, trial in zip(rows, j["trials"]):
            self.assertEqual(row["trial"], trial["trial"])
            self.assertEqual(row["factor.recipe"], trial["factors"]["recipe"] or "")
            self.assertEqual(set(row) - {"factor.recipe", "factor.part", "factor.flips"},
                             set(trial) - {"factors"})
        self.assertEqual(sdclab("campaign", "export", self.whole).returncode, 2)
        self.assertEqual(sdclab("campaign", "export", self.whole, "--csv", "--json").returncode, 2)
        sdclab("campaign", "export", self.whole, "--csv", "-o", "out.csv")
        self.assertEqual(pathlib.Path("out.csv").read_text(), r.stdout)
        # every column is explained in the help
        help_text = sdclab("help", "campaign", "export").stdout
        for name in rows[0]:
            if not name.startswith("factor."):
                self.assertIn(name, help_text)

    def test_newer_store(self):
        shutil.rmtree("newer", ignore_errors=True)
        shutil.copytree(self.whole, "newer")
        with open("newer/store.sqlite", "r+b") as f:
            f.seek(60)
            f.write((99).to_bytes(4, "big"))
        r = sdclab("campaign", "status", "newer")
        self.assertEqual(r.returncode, 3)
        self.assertIn("made by a newer version", r.stderr)

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_report(self):
        r = sdclab("report", self.whole)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("report     whole/report/report.html", r.stdout)
        self.assertIn("H1a" if GSL else "needs GSL", r.stdout)
        page = pathlib.Path("whole/report/report.html").read_text()
        self.assertIn("c003-0002", page)
        results = json.loads(pathlib.Path("whole/report/results.json").read_text())
        self.assertEqual(results["campaign"], "small")
        self.assertEqual(len(results["trials"]), 44)
        self.assertEqual(results["facts"]["platform"], "planted")
        self.assertIn("4 of 4 clean restarts", results["facts"]["gate"])
        r = sdclab("report", self.bad, "-o", "elsewhere")
        self.assertEqual(r.returncode, 1)
        self.assertTrue(pathlib.Path("elsewhere/report.html").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
