# SPDX-License-Identifier: Apache-2.0
"""Opens a written report in headless Chromium, over the DevTools protocol, from file://.

Usage: test_report_page.py MAKE_REPORT. Screenshots go to the scratch folder (shot-*.png)."""
import csv
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from browser import Browser, check, figures_are_drawn


def contrast(browser):
    """Lowest ratio of text to ground over the page's plain text and the drawings' text."""
    return browser.run("""(() => {
        const parse = c => (c.match(/[\\d.]+/g) || [0, 0, 0]).slice(0, 3).map(Number);
        const lum = c => { const v = parse(c).map(x => { x /= 255; return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
        const ratio = (a, b) => (Math.max(lum(a), lum(b)) + 0.05) / (Math.min(lum(a), lum(b)) + 0.05);
        const bg = getComputedStyle(document.body).backgroundColor;
        let low = 99;
        document.querySelectorAll("svg.figure use, svg.figure path").forEach(e => { // marks and lines: 3 is enough
            const s = getComputedStyle(e);
            if (e.classList.contains("halo") || e.closest("defs") || e.getAttribute("stroke-dasharray")) return;
            low = Math.min(low, 1.5 * ratio(e.tagName === "use" ? s.color : s.stroke, bg)); });
        document.querySelectorAll("p, figcaption, td, h2, .verdict, a, svg.figure text").forEach(e => {
            const s = getComputedStyle(e);
            low = Math.min(low, ratio(e.namespaceURI.endsWith("svg") ? s.fill : s.color, bg)); });
        return low; })()""")


def filter_works(browser):
    shown = """Array.from(document.querySelectorAll("table.trials tbody tr"))
        .filter(r => r.getBoundingClientRect().height > 0).length"""
    total = browser.run(shown)
    check(total == 288, f"rows at first: {total}")
    type_in = """(() => { const f = document.getElementById("trial-filter"); f.value = %s;
        f.dispatchEvent(new Event("input")); })()"""
    browser.run(type_in % json.dumps("horovod optimizer spread-to-all"))
    some = browser.run(shown)
    check(0 < some < total, f"rows after a text filter: {some}")
    check(f"{some} of {total} trials" in browser.run("document.getElementById('trial-count').textContent"),
          "count of shown trials")
    browser.run(type_in % json.dumps("no such text"))
    check(browser.run(shown) == 0, "rows for a text that is nowhere")
    browser.run(type_in % json.dumps(""))
    check(browser.run(shown) == total, "rows after clearing")
    choice = browser.run("""(() => { const s = Array.from(document.querySelectorAll(".filters select"));
        const one = s.find(x => Array.from(x.options).some(o => o.value === "placebo"));
        one.value = "placebo"; one.dispatchEvent(new Event("change")); return s.length; })()""")
    check(choice >= 10, f"{choice} column filters")
    check(browser.run(shown) == 1, "rows of the placebo control")
    browser.run("document.querySelector('.filters button').click()")
    check(browser.run(shown) == total, "rows after the clear button")


def sort_works(browser):
    column = browser.run("""Array.from(document.querySelectorAll("table.trials thead th"))
        .findIndex(h => h.textContent.trim() === "Accuracy")""")
    values = f"""Array.from(document.querySelectorAll("table.trials tbody tr"), r => r.cells[{column}].dataset.v)"""
    click = f"document.querySelectorAll('table.trials thead th button')[{column}].click()"
    for down in (False, True):
        browser.run(click)
        got = json.loads(browser.run(f"JSON.stringify({values})"))
        numbers = [float(v) for v in got if v != ""]
        check(numbers == sorted(numbers, reverse=down), "order after a click on a heading")
        check(all(v == "" for v in got[len(numbers):]), "trials without a number stand last")


def tabs_work(browser):
    shown = """Array.from(document.querySelectorAll("table.cells .ax"))
        .filter(x => x.getBoundingClientRect().height > 0).map(x => x.className).filter((x, i, a) => a.indexOf(x) === i).join()"""
    check(browser.run(shown) == "bar ax ax-numeric", "axis at first: " + browser.run(shown))
    browser.run("document.querySelector('label[for=ax-replicas]').click()")
    check(browser.run(shown) == "bar ax ax-replicas", "axis after a click")
    browser.run("document.querySelector('label[for=ax-numeric]').click()")


def nothing_is_interpreted(browser):
    check(browser.run("document.querySelectorAll('main b:not(.legend b), main i, main script').length") == 0,
          "a name became an element")
    check("<b>fc3</b>.bias 'x' `y` \"z\" & \\n" in browser.run("document.querySelector('#propagation').textContent"),
          "the awkward layer name is shown as it is")
    check(browser.run("document.querySelector('pre').textContent.includes('<script>alert(1)</script>')"),
          "the spec is shown as it is")


def files_agree(folder):
    results = json.loads((folder / "results.json").read_text())
    check(results["schema"] == "sdclab.results/1" and results["seed"] == 2022, "results.json head")
    check([c["id"] for c in results["claims"]] == ["H1a", "H3"], "claims")
    check(results["claims"][0]["verdict"] == "undecided" and "20" in results["claims"][0]["sentence"],
          "verdict and its sentence")
    check(len(results["trials"]) == 288 and len(results["cells"]) == 48, "lists of results.json")
    trials = list(csv.DictReader((folder / "data/table-trials.csv").open(newline="")))
    check(len(trials) == 288 and all(t["replay"].startswith("sdclab campaign run -o ") for t in trials),
          "trials as CSV")
    lost = [t for t in trials if t["result"] == "harness-error"]
    check(len(lost) == 1 and lost[0]["message"].startswith("worker ended by signal 9 <killed> &")
          and lost[0]["numeric"] == "", "the harness error has no outcome")
    cells = list(csv.DictReader((folder / "data/table-cells.csv").open(newline="")))
    collapsed = sum(int(c["trials"]) for c in cells if c["axis"] == "collapse")
    check(collapsed == sum(t["numeric"].startswith("non-finite") for t in trials if t["kind"] == "trial"),
          "collapses of cells and trials")
    points = list(csv.DictReader((folder / "data/figure-collapse.csv").open(newline="")))
    for p in points:
        want = 1 - (31 / 32) ** float(p["n_delivered"])
        check(abs(float(p["null_curve_q_1_32"]) - want) < 1e-12, "null curve")
        check(float(p["low"]) <= int(p["collapsed"]) / int(p["trials"]) <= float(p["high"]), "interval")
    layers = list(csv.DictReader((folder / "data/figure-propagation-model-1.csv").open(newline="")))
    check(any(x["layer"].startswith("<b>fc3</b>") and x["q75"] == "inf" for x in layers), "layers as CSV")
    for svg in sorted((folder / "figures").iterdir()):
        root = ET.parse(svg).getroot()
        check(root.tag.endswith("}svg") and root.get("viewBox"), f"{svg} is an SVG file")
        check("black" not in svg.read_text().replace("near black", ""), f"{svg} has fixed black")
    check(not [p for p in folder.rglob("*") if p.name.startswith(".")], "temporary files left")


def fails_clearly(make_report):
    """Without gnuplot, with one that fails, complains or hangs, and with no room to write."""
    cases = [("no-such-gnuplot-anywhere", 4, "gnuplot-nox"),
             ("/bin/false", 4, "exited with 1")]
    for program, code, text in cases:
        done = subprocess.run([make_report, "broken"], env={**os.environ, "SDC_GNUPLOT": program},
                              capture_output=True, text=True, timeout=60)
        check(done.returncode == code and text in done.stderr, f"{program}: {done}")
    noisy = Path("noisy-gnuplot")
    noisy.write_text("#!/bin/sh\ncat > /dev/null\necho '<svg></svg>'\necho 'undefined function: f' >&2\n")
    noisy.chmod(0o755)
    done = subprocess.run([make_report, "broken"], env={**os.environ, "SDC_GNUPLOT": str(noisy.resolve())},
                          capture_output=True, text=True, timeout=60)
    check(done.returncode == 4 and "undefined function: f" in done.stderr, f"complaining gnuplot: {done}")
    check(not Path("broken/report.html").exists(), "no page after a failure")
    done = subprocess.run([make_report, "/dev/null/x"], capture_output=True, text=True, timeout=60)
    check(done.returncode == 4 and "/dev/null" in done.stderr, f"folder that cannot be: {done}")


def main():
    make_report = os.path.abspath(sys.argv[1])
    shutil.rmtree("report", ignore_errors=True)
    shutil.rmtree("empty", ignore_errors=True)
    shutil.rmtree("broken", ignore_errors=True)
    subprocess.run([make_report, "report"], check=True, timeout=120)
    subprocess.run([make_report, "report"], check=True, timeout=120)  # over an existing one
    subprocess.run([make_report, "empty", "empty"], check=True, timeout=120)
    files_agree(Path("report"))
    fails_clearly(make_report)
    figures = ["claims", "collapse", "propagation-model-1", "propagation-optimizer-2"]
    browser = Browser()
    try:
        browser.view(1200, 900, dark=False)
        browser.open("report/report.html")
        figures_are_drawn(browser, figures, "1200 light")
        nothing_is_interpreted(browser)
        tabs_work(browser)
        low = contrast(browser)
        check(low >= 4.5, f"contrast {low:.2f} in light")
        browser.shot("shot-light.png")
        filter_works(browser)
        sort_works(browser)
        browser.view(1200, 900, dark=True)
        low = contrast(browser)
        check(low >= 4.5, f"contrast {low:.2f} in dark")
        browser.shot("shot-dark.png")
        browser.view(400, 800, dark=False)
        figures_are_drawn(browser, figures, "400 light")
        browser.shot("shot-narrow.png")
        check(not browser.complaints, f"console: {browser.complaints}")
        outside = [u for u in browser.requests if not u.startswith(("file:", "data:"))]
        check(not outside, f"requests: {outside}")
        browser.view(1200, 900, dark=False)
        browser.open("empty/report.html")
        text = browser.run("document.body.textContent")
        for part in ("<i>empty</i>", "lists no claims", "No control has run", "no cells", "No trial"):
            check(part in text, f"empty report lacks '{part}'")
        check(not browser.complaints, f"console of the empty page: {browser.complaints}")
    finally:
        browser.close()
    print("report page: figures, filter, sorting, escaping and files as expected")


if __name__ == "__main__":
    main()
