#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker between the pool and the real trainer that does wrong what a test asks for.

It starts the trainer named by SDC_PROXY_TRAINER, hands every message on, and applies rules from
SDC_PROXY_RULES, one a line, "TRIAL-PATTERN ACTION": the first whose pattern (a regular expression
for the whole id) matches counts.

  crash       ends by a signal instead of running the trial
  hang        never answers
  flip-loss   one bit of the first loss in the trial's events is wrong
  ...-once    and ...-second: any of these, the first or the second time only
  no-nan      losses and evaluations that are not finite are 1.0 in the events, the end is usual
  nan-loss    every loss is NaN
  fail        answers with status INTERNAL

A line "platform TEXT" replaces the platform of the hello.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

rules = [line.split(None, 1) for line in os.environ.get("SDC_PROXY_RULES", "").splitlines() if line.strip()]
marks = os.environ.get("SDC_PROXY_MARKS", tempfile.gettempdir())


def once(trial, action):
    """True the first time over all processes."""
    try:
        os.close(os.open(os.path.join(marks, f"{trial}.{action}"), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def action_of(trial):
    for pattern, action in rules:
        if pattern != "platform" and re.fullmatch(pattern, trial):
            action = action.strip()
            if action.endswith("-second"):
                if not once(trial, "first") and once(trial, action):
                    return action[: -len("-second")]
            elif not action.endswith("-once"):
                return action
            elif once(trial, action):
                return action[: -len("-once")]
    return ""


def lines(sock):
    data = b""
    while True:
        part = sock.recv(65536)
        if not part:
            return
        data += part
        while b"\n" in data:
            line, data = data.split(b"\n", 1)
            yield json.loads(line)


def send(sock, message):
    sock.sendall((json.dumps(message) + "\n").encode())


def finite_hex(bits):
    width = len(bits) * 4
    exponent = 0x7f800000 if width == 32 else 0x7ff0000000000000
    return int(bits, 16) & exponent != exponent


def tamper(path, action):
    events = os.path.join(os.path.dirname(path), "events.jsonl")
    out, first = [], True
    for text in open(events):
        e = json.loads(text)
        if e["type"] == "step" and action == "flip-loss" and first:
            e["loss_bits"][0] = f"{int(e['loss_bits'][0], 16) ^ 1:08x}"
            first = False
        if action == "no-nan":
            for key, one in (("loss", "3f800000"), ("eval_loss", "3ff0000000000000")):
                for i, bits in enumerate(e.get(key + "_bits", [])):
                    if not finite_hex(bits):
                        e[key][i], e[key + "_bits"][i] = 1.0, one
            if e["type"] == "end":
                e["reason"] = "completed"
        if e["type"] == "step" and action == "nan-loss":
            e["loss"] = ["nan"] * len(e["loss"])
            e["loss_bits"] = ["7fc00000"] * len(e["loss"])
        out.append(json.dumps(e) + "\n")
    with open(events, "w") as f:
        f.writelines(out)


def main():
    pool = socket.socket(socket.AF_UNIX)
    pool.connect(os.environ["SDCLAB_WORKER"].split(":", 1)[1])
    with tempfile.TemporaryDirectory(prefix="proxy-") as folder:
        door = socket.socket(socket.AF_UNIX)
        door.bind(os.path.join(folder, "s"))
        door.listen(1)
        trainer = subprocess.Popen([os.environ["SDC_PROXY_TRAINER"]],
                                   env={**os.environ, "SDCLAB_WORKER": f"unix:{folder}/s"})
        inner, _ = door.accept()
        answers = lines(inner)
        hello = next(answers)
        for pattern, text in rules:
            if pattern == "platform":
                hello["platform"] = text
        send(pool, hello)
        for message in lines(pool):
            if message["type"] == "quit":
                break
            action = action_of(message["trial"])
            if action == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if action == "hang":
                time.sleep(3600)
            if action == "fail":
                send(pool, {"type": "done", "trial": message["trial"], "status": "INTERNAL", "message": "told to fail"})
                continue
            send(inner, message)
            done = next(answers)
            if action and done["status"] == "OK":
                tamper(message["path"], action)
            send(pool, done)
        trainer.terminate()
        trainer.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main()
