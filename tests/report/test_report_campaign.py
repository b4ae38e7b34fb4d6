# SPDX-License-Identifier: Apache-2.0
"""A real campaign from spec to page: small, on synthetic data, then its report in headless Chromium.

Also what the page says is what the store holds, and the replay command of a trial on the page gives
the stored labels again."""
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import jsonschema

from browser import Browser, check, figures_are_drawn

SDCLAB = os.environ["SDCLAB"]
SPEC = """campaign: page
seed: 3
model: mlp
kernels: ref
data: {name: synthetic}
batch: 16
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
baseline: {seeds: 2, checkpoints: [20]}
window: {steps: 6, eval_samples: 200}
clean: {e0: 2, e1: 2}
factors:
  recipe: [ddp/after-wrap-all, horovod/rank0-broadcast]
  part: [model, optimizer]
  flips: [10, 300]
ranks: 2
altered_ranks: one
pair_over: [recipe, part]
trials: 4
claims: [H1a, H3]
margin: 0.02
"""


def run(*words, code=0):
    done = subprocess.run([SDCLAB, *words], capture_output=True, text=True, timeout=300)
    check(done.returncode == code, f"{words}: {done.returncode}: {done.stderr}")
    return done.stdout


def files_follow_their_schemas(folder):
    """What the campaign and its trainer wrote to each other, and the record of the alteration."""
    found = {}
    for path in sorted(folder.rglob("*.json*")):
        kind = "record" if path.name.endswith(".sdc.jsonl") else path.name.split(".")[0].split("-")[0]
        schema = Path(os.environ["SDC_SOURCE_DIR"], "schemas", f"{kind}-1.json")
        check(schema.exists(), f"{path} has no schema")
        validator = jsonschema.Draft202012Validator(json.loads(schema.read_text()))
        for line in path.read_text().splitlines():
            validator.validate(json.loads(line))
            found[kind] = found.get(kind, 0) + 1
    check({"run", "events", "record"} <= set(found), f"files of the trial: {found}")


def main():
    shutil.rmtree("page.sdcrun", ignore_errors=True)
    shutil.rmtree("again", ignore_errors=True)
    Path("page.yaml").write_text(SPEC)
    run("campaign", "run", "page.yaml", "-o", "page.sdcrun", "--quiet")
    said = run("report", "page.sdcrun")
    check("undecided: too few clusters" in said and "report.html" in said, said)
    stored = list(csv.DictReader(run("campaign", "export", "page.sdcrun", "--csv").splitlines()))
    results = json.loads(Path("page.sdcrun/report/results.json").read_text())
    check(len(stored) == 32 + 12 and len(results["trials"]) == len(stored), "number of trials")
    check(sum(t["numeric"].startswith("non-finite") for t in stored if t["kind"] == "trial") > 0, "some collapse")

    browser = Browser()
    try:
        browser.view(1200, 900, dark=False)
        browser.open("page.sdcrun/report/report.html")
        names = browser.run("Array.from(document.querySelectorAll('figure'), f => f.id.slice(7)).join(' ')").split()
        check(names[:2] == ["claims", "collapse"] and len(names) >= 3, f"figures: {names}")
        figures_are_drawn(browser, names, "campaign")
        shown = "Array.from(document.querySelectorAll('#trials tbody tr')).filter(r => r.offsetParent).length"
        check(browser.run(shown) == len(stored), "all trials are listed")
        browser.run("""(() => { const i = document.querySelector('#trials input'); i.value = 'placebo';
            i.dispatchEvent(new Event('input', {bubbles: true})); })()""")
        check(browser.run(shown) == sum(t["kind"] == "placebo" for t in stored), "filter by text")
        text = browser.run("document.body.textContent")
        for part in ("horovod/rank0-broadcast minus ddp/after-wrap-all", "lr: 0.05", "undecided"):
            check(part in text, f"the page lacks '{part}'")
        browser.shot("shot-campaign.png")
        check(not browser.complaints, f"console: {browser.complaints}")
        outside = [u for u in browser.requests if not u.startswith(("file:", "data:"))]
        check(not outside, f"requests: {outside}")
    finally:
        browser.close()

    # the command on the page, as it stands there
    row = next(t for t in results["trials"] if t["kind"] == "trial" and t["numeric"].startswith("non-finite"))
    words = shlex.split(row["replay"])
    check(words[0] == "sdclab" and re.search(r"campaign run -o \S+ --trial \S+", row["replay"]), row["replay"])
    again = run(*words[1:], "--into", "again")
    for label in (row["exposure"], row["numeric"], row["trajectory"], row["replicas"]):
        check(label in again, f"{row['replay']} lacks '{label}':\n{again}")
    files_follow_their_schemas(Path("again"))
    print("campaign, report and page as expected")


if __name__ == "__main__":
    main()
