# SPDX-License-Identifier: Apache-2.0
"""A real, headless Chromium for tests of pages: driven over the DevTools protocol from file://.

Importing it skips the test, with the reason, where Chromium or the websocket module is not installed."""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

try:
    import websocket
except ImportError:
    print("skipped: no Python module websocket (Debian package python3-websocket)")
    sys.exit(77)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if not CHROMIUM:
    print("skipped: no chromium")
    sys.exit(77)


class Browser:
    """One headless Chromium with one page; collects console messages, exceptions and requests."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        self.log = open(os.path.join(self.profile, "stderr"), "w+")
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-port=0", "--remote-allow-origins=*", "--no-first-run",
             "--disable-background-networking", "--disable-component-update",
             "--user-data-dir=" + self.profile, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log)
        port = self.port()
        pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=20))
        page = next(p for p in pages if p["type"] == "page")
        self.socket = websocket.create_connection(page["webSocketDebuggerUrl"], timeout=60)
        self.number, self.complaints, self.requests, self.loaded = 0, [], [], False
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def port(self):
        path = os.path.join(self.profile, "DevToolsActivePort")
        for _ in range(300):
            if self.process.poll() is not None:
                self.log.seek(0)
                sys.exit("chromium ended: " + self.log.read()[-2000:])
            if os.path.exists(path):
                text = open(path).read().split("\n")
                if text[0].isdigit():
                    return int(text[0])
            time.sleep(0.1)
        sys.exit("chromium opened no debugging port within 30 s")

    def event(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(params["args"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def call(self, method, **params):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]
            self.event(message)

    def open(self, path):
        self.loaded, self.complaints, self.requests = False, [], []
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not self.loaded:
            self.event(json.loads(self.socket.recv()))

    def run(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def view(self, width, height, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def shot(self, name, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole,
                         **({"clip": self.page_box()} if whole else {}))["data"]
        Path(name).write_bytes(base64.b64decode(data))

    def page_box(self):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12000),
                "scale": 1}

    def close(self):
        try:
            self.call("Browser.close")
        except Exception:
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.socket.close()
        self.log.close()
        shutil.rmtree(self.profile, ignore_errors=True)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def figures_are_drawn(browser, names, where):
    got = json.loads(browser.run("""JSON.stringify(Array.from(document.querySelectorAll("figure"), f => {
        const s = Array.from(f.querySelectorAll("svg.figure")).filter(x => x.getBoundingClientRect().width > 0);
        const inside = s.length === 1 ? Array.from(s[0].querySelectorAll("path,use,text")) : [];
        return {id: f.id, shown: s.length, box: s.length ? [s[0].getBoundingClientRect().width, s[0].getBoundingClientRect().height] : [0, 0],
                paths: inside.filter(x => x.tagName === "path").length, marks: inside.filter(x => x.tagName === "use").length,
                texts: inside.filter(x => x.tagName === "text").length,
                caption: f.querySelector("figcaption").textContent.length,
                undefinedMarks: inside.filter(x => x.tagName === "use" && !document.querySelector(x.getAttribute("xlink:href"))).length,
                right: Math.max(...Array.from(f.querySelectorAll("svg.figure"), x => x.getBoundingClientRect().right))};
    }))"""))
    check([f["id"] for f in got] == ["figure-" + n for n in names], f"figures: {got}")
    for f in got:
        check(f["shown"] == 1, f"{where}: one drawing shown: {f}")
        check(f["box"][0] > 250 and f["box"][1] > 80, f"{where}: size: {f}")
        check(f["paths"] > 3 and f["marks"] > 0 and f["texts"] > 3, f"{where}: contents: {f}")
        check(f["undefinedMarks"] == 0, f"{where}: marks that refer to nothing: {f}")
        check(f["caption"] > 80, f"{where}: caption: {f}")
    wide = browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    check(wide == 0, f"{where}: page is {wide} pixels wider than the window")
    ids = browser.run("""(() => { const all = Array.from(document.querySelectorAll("[id]"), x => x.id);
        return all.filter((x, i) => all.indexOf(x) !== i).join(" "); })()""")
    check(ids == "", f"{where}: ids used twice: {ids}")
