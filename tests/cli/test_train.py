# SPDX-License-Identifier: Apache-2.0
"""The program sdclab-train as its users meet it: options, results, exit codes, files, worker mode."""
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import jsonschema
import numpy as np
from safetensors.numpy import load_file

PROGRAM = os.path.abspath(os.path.join(os.environ["SDC_BINARY_DIR"], "sdclab-train"))
SCHEMAS = os.path.join(os.environ["SDC_SOURCE_DIR"], "schemas")
SMALL = ["--model", "mlp", "--data", "synthetic", "--kernels", "ref", "--batch", "8"]


def run(*args, code=0, timeout=60):
    p = subprocess.run([PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       timeout=timeout)
    assert p.returncode == code, (args, p.returncode, p.stdout, p.stderr)
    return p


def schema(name):
    with open(os.path.join(SCHEMAS, name)) as f:
        return jsonschema.Draft202012Validator(json.load(f))


def events(folder):
    with open(os.path.join(folder, "events.jsonl")) as f:
        return [json.loads(line) for line in f]


class Options(unittest.TestCase):
    def test_help(self):
        p = run("--help")
        for word in ("--recipe", "horovod/rank0-broadcast", "--load-rank", "--run FILE"):
            self.assertIn(word, p.stdout)
        self.assertEqual(p.stderr, "")

    def test_usage_errors(self):
        cases = [
            (["--rank", "2"], "did you mean '--ranks'"),
            (["--ranks", "65"], "expected 1 to 64"),
            (["--kernels", "fast"], "onednn, ref"),
            (["--recipe", "ddp/sideways"], "ddp/sideways"),
            (["extra"], "'extra' is not an option"),
            (["--steps", "1", "--epochs", "1"], "exclude each other"),
            (["--steps", "1", "--load-rank", "1=x"], "--load-rank: found '1=x'"),
            (["--steps", "1", "--snapshot", "soon"], "--snapshot: found 'soon'"),
            (["--run", "x.json", "--lr", "0.1"], "--lr has no effect beside --run"),
            (["--ranks", "2", "--recipe", "single", "--steps", "1"], "single"),
            (["--ranks", "2", "--steps", "1", "--fusion", "timed"], "averaging.fusion: belongs to strategy horovod"),
            (["--steps", "1", "--compression", "fp16"], "strategy single averages nothing"),
        ]
        for args, text in cases:
            p = run(*SMALL[:2] if "--run" not in args else [], *args, code=2)
            self.assertIn(text, p.stderr, args)
            self.assertEqual(p.stdout, "")

    def test_other_exit_codes(self):
        self.assertIn("nothere.h5", run(*SMALL, "--load", "nothere.h5", code=4).stderr)
        self.assertIn("lenet6", run("--model", "lenet6", "--data", "synthetic", "--steps", "1",
                                    code=3).stderr)
        p = run("--data", "fashion-mnist", "--data-path", "nowhere", "--steps", "1", code=4)
        self.assertIn("nowhere", p.stderr)
        with open("bad.json", "w") as f:
            f.write('{"schema": "sdclab.run/1", "modle": "mlp"}')
        self.assertIn("modle", run("--run", "bad.json", code=3).stderr)
        p = run(*SMALL, "--steps", "2", "--save", "no/such/x.h5", "-o", "unsaved", code=4)
        self.assertIn("no/such/", p.stderr)

    def test_version(self):
        p = run("--version")
        self.assertEqual(p.stderr, "")
        lines = dict(line.split(None, 1) for line in p.stdout.splitlines())
        self.assertEqual(lines["sdclab-train"], lines["sdclab"])
        for key in ("compiler", "kernels.onednn", "kernels.ref", "threads", "float.environment"):
            self.assertIn(key, lines)
        self.assertIn("oneDNN", lines["kernels.onednn"])

    def test_no_steps_are_no_steps(self):
        for option in ("--steps", "--epochs"):
            p = run(*SMALL, option, "0", "--quiet", "--json", "-o", "none")
            self.assertEqual(json.loads(p.stdout)["step"], 0)
            self.assertEqual([e["type"] for e in events("none")], ["start", "eval", "end"])

    def test_steps_beyond_the_counter(self):
        # a checkpoint's counter is an i64
        for option in ("--steps", "--epochs"):
            p = run(*SMALL, option, str(2**64 - 1), "--dry-run", code=2)
            self.assertIn(option + ": ", p.stderr)
        p = run(*SMALL, "--epochs", str(2**63 // 256 + 1), "--dry-run", code=2)
        self.assertIn("--epochs: ", p.stderr)

    def test_a_save_that_cannot_work_is_said_before_training(self):
        os.makedirs("a-folder", exist_ok=True)
        for path in ("no/such/x.h5", "a-folder"):
            p = run(*SMALL, "--steps", "100000000", "--save", path, "-o", "unsaved", code=4)
            self.assertIn(path, p.stderr)
            self.assertEqual([e["type"] for e in events("unsaved")], ["end"])
        self.assertEqual(os.listdir("a-folder"), [])

    def test_a_failed_save_leaves_the_old_file_alone(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        os.makedirs("small-disk", exist_ok=True)
        for name, form in (("x.h5", "hdf5"), ("x.safetensors", "safetensors")):
            path = os.path.join("small-disk", name)
            args = [*SMALL, "--steps", "2", "--save", path, "--format", form, "-o", "full", "-q"]
            run(*args)
            with open(path, "rb") as f:
                before = f.read()
            p = subprocess.run([PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, timeout=60, preexec_fn=small_files)
            self.assertEqual(p.returncode, 4, p.stderr)
            self.assertIn("File too large", p.stderr)
            with open(path, "rb") as f:
                self.assertEqual(f.read(), before)
        self.assertEqual(sorted(os.listdir("small-disk")), ["x.h5", "x.safetensors"])

    def test_closed_streams(self):
        # the next file that is opened must not get the number of a standard stream
        args = [PROGRAM, *SMALL, "--steps", "3", "--save", "closed.h5", "-o", "closed"]
        p = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *args], stdout=subprocess.PIPE,
                           text=True, timeout=60)
        self.assertEqual(p.returncode, 0)
        self.assertEqual(events("closed")[-1]["reason"], "completed")
        p = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *args], stderr=subprocess.PIPE,
                           text=True, timeout=60)
        self.assertEqual(p.returncode, 4)
        self.assertIn("standard output", p.stderr)
        self.assertEqual(events("closed")[-1]["reason"], "completed")

    def test_full_disk_on_stdout(self):
        with open("/dev/full", "w") as full:
            p = subprocess.run([PROGRAM, *SMALL, "--steps", "1", "--quiet", "-o", "full"],
                               stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(p.returncode, 4)
        self.assertIn("standard output", p.stderr)

    def test_interrupt(self):
        p = subprocess.Popen([PROGRAM, *SMALL, "--steps", "1000000", "-o", "interrupted"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not os.path.exists("interrupted/events.jsonl"):
            time.sleep(0.01)
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=30)
        self.assertEqual(p.returncode, 130)
        self.assertIn("interrupted after step", err)
        self.assertEqual(events("interrupted")[-1]["reason"], "failed")


class Runs(unittest.TestCase):
    def test_description_and_options_are_the_same_run(self):
        args = [*SMALL, "--ranks", "2", "--recipe", "horovod/rank0-broadcast", "--steps", "6",
                "--eval-samples", "100", "--eval-every", "4", "--digest-every", "2", "--snapshot",
                "3", "--snapshot", "6", "--seed", "5", "--seed-data", "18446744073709551615"]
        p = run(*args, "--dry-run", "-o", "described")
        description = json.loads(p.stdout)
        schema("run-1.json").validate(description)
        self.assertFalse(os.path.exists("described"))
        with open("described.json", "w") as f:
            f.write(p.stdout)
        run("--run", "described.json", "--quiet")
        p = run(*args, "-o", "optioned")
        self.assertIn("completed at step 6: loss ", p.stdout)
        self.assertIn("of 100)", p.stdout)
        self.assertIn("step 6 of 6", p.stderr)

        def plain(folder):
            return [{k: v for k, v in e.items() if k not in ("elapsed", "paths")}
                    for e in events(folder)]
        self.assertEqual(plain("described"), plain("optioned"))
        kinds = [e["type"] for e in events("described")]
        self.assertEqual(kinds, ["start", "step", "step", "step", "snapshot", "step", "eval",
                                 "step", "step", "snapshot", "eval", "end"])
        digests = [e["step"] for e in events("described") if e["type"] == "step" and e["digests"]]
        self.assertEqual(digests, [2, 4, 6])

    def test_events_follow_their_schema(self):
        run(*SMALL, "--ranks", "3", "--steps", "4", "--eval-samples", "50", "--eval-who", "all",
            "--save", "schema.h5", "--snapshot", "2", "-o", "schema", "--quiet")
        run(*SMALL, "--ranks", "3", "--load", "schema.h5", "--steps", "1", "--lr", "1e30", "-o",
            "schema-huge", "--quiet")
        run(*SMALL, "--ranks", "3", "--load", "schema.h5", "--momentum", "0", "--steps", "1", "-o",
            "schema-rejected", "--quiet", code=3)
        validator = schema("events-1.json")
        seen = set()
        for folder in ("schema", "schema-huge", "schema-rejected"):
            for e in events(folder):
                validator.validate(e)
                seen.add(e["type"])
        self.assertEqual(seen, {"start", "step", "eval", "checkpoint", "snapshot", "end"})
        self.assertEqual(events("schema-rejected")[-1]["reason"], "rejected")

    def test_checkpoints(self):
        for name, form in (("c.h5", "hdf5"), ("c.safetensors", "safetensors")):
            run(*SMALL, "--ranks", "2", "--steps", "130", "--save", name, "--format", form, "-o",
                "saved", "--quiet")
        tensors = load_file("c.safetensors")
        with h5py.File("c.h5") as f:
            for name, value in tensors.items():
                np.testing.assert_array_equal(f[name][()], value)
            count = []
            f.visititems(lambda n, o: count.append(n) if isinstance(o, h5py.Dataset) else None)
            self.assertEqual(sorted(count), sorted(tensors))
        # 2048 samples, 2 ranks, batches of 8: an epoch has 128 steps
        self.assertEqual([int(tensors["loop/" + n]) for n in ("step", "epoch", "cursor")],
                         [130, 1, 2])
        self.assertEqual(list(tensors["loop/rng"]), [4, 0, 1, 0])
        self.assertEqual(tensors["optimizer/fc1.weight/momentum"].shape, (256, 784))
        p = run(*SMALL, "--ranks", "2", "--load", "c.h5", "--steps", "2", "--json", "-o", "resumed",
                "--quiet")
        result = json.loads(p.stdout)
        self.assertEqual(result["step"], 132)
        start = events("resumed")[0]
        self.assertEqual([r["file"] for r in start["start"]], ["c.h5", "c.h5"])
        self.assertEqual(start["environment"]["float.environment"], "ftz=0 daz=0 rounding=nearest")
        for key in ("cpu.model", "cpu.features", "kernels.ref", "libc", "compiler", "sdclab"):
            self.assertIn(key, start["environment"])

    def test_events_name_what_changes_the_bits(self):
        # oneDNN's own variables choose other instructions, and with them other roundings
        def kernels(**variables):
            args = [PROGRAM, "--data", "synthetic", "--steps", "1", "-q", "-o", "isa"]
            subprocess.run(args, env={**os.environ, **variables}, stdout=subprocess.PIPE,
                           check=True, timeout=60)
            return events("isa")[0]["environment"]["kernels.onednn"]
        self.assertIn(" sse41,", kernels(DNNL_MAX_CPU_ISA="SSE41"))
        self.assertIn(" prefer_ymm,", kernels(DNNL_CPU_ISA_HINTS="PREFER_YMM"))

    def test_load_only(self):
        run(*SMALL, "--steps", "3", "--save", "only.h5", "-o", "only-made", "--quiet")
        run(*SMALL, "--steps", "1", "--load", "only.h5", "--dry-run")
        description = json.loads(run(*SMALL, "--steps", "1", "--load", "only.h5", "--dry-run", "-o",
                                     "only").stdout)
        description["to_step"] = 3
        os.makedirs("only", exist_ok=True)
        with open("only.json", "w") as f:
            json.dump(description, f)
        run("--run", "only.json", "--quiet")
        self.assertEqual([e["type"] for e in events("only")], ["start", "eval", "end"])

    def test_averaging(self):
        """Each option changes the bits where it must, all replicas alike, and repeats."""
        def last(*args, recipe="horovod/rank0-broadcast"):
            with tempfile.TemporaryDirectory() as folder:
                run(*SMALL, "--ranks", "3", "--recipe", recipe, "--steps", "3", "--eval-samples", "0", "-o", folder, *args)
                digests = events(folder)[-2]["digests"]
            self.assertEqual(len({d["state"] for d in digests}), 1)
            return digests[0]["state"]
        plain = last()
        timed = [last("--fusion", "timed", "--fusion-seed", str(seed)) for seed in (1, 1, 2)]
        self.assertEqual(timed[0], timed[1])
        self.assertEqual(len({plain, timed[0], timed[2]}), 3)
        self.assertNotEqual(last("--fusion-bytes", "0"), plain)
        self.assertNotEqual(last("--compression", "fp16"), plain)
        ddp = last(recipe="ddp/after-wrap-all")
        for args in (["--compression", "fp16"], ["--bucket-view"], ["--first-bucket-bytes", "4096"],
                     ["--first-bucket-bytes", "1", "--bucket-bytes", "1"]):
            self.assertNotEqual(last(*args, recipe="ddp/after-wrap-all"), ddp, args)

    def test_one_rank_reads_another_file(self):
        run(*SMALL, "--steps", "3", "--save", "a.safetensors", "--format", "safetensors", "-o",
            "a", "--quiet")
        run(*SMALL, "--steps", "3", "--seed", "2", "--save", "b.safetensors", "--format",
            "safetensors", "-o", "b", "--quiet")
        run(*SMALL, "--ranks", "2", "--load", "a.safetensors", "--load-rank", "1=b.safetensors",
            "--steps", "1", "-o", "mixed", "--quiet")
        start = events("mixed")[0]["start"]
        self.assertNotEqual(start[0]["started"]["parameters"], start[1]["started"]["parameters"])


class Worker(unittest.TestCase):
    def setUp(self):
        self.path = "worker.sock"  # relative: an absolute one may be too long for a socket
        if os.path.exists(self.path):
            os.remove(self.path)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen(1)
        self.server.settimeout(30)
        env = dict(os.environ, SDCLAB_WORKER="unix:" + self.path, SDCLAB_TOKEN="secret-7")
        self.process = subprocess.Popen([PROGRAM], env=env, stdin=subprocess.DEVNULL)
        connection, _ = self.server.accept()
        connection.settimeout(60)
        self.connection = connection
        self.lines = connection.makefile("rw", buffering=1)

    def tearDown(self):
        self.lines.close()
        self.connection.close()
        self.server.close()
        self.process.kill()
        self.process.wait()

    def receive(self):
        message = json.loads(self.lines.readline())
        schema("worker-1.json").validate(message)
        return message

    def send(self, message):
        self.lines.write(json.dumps(message) + "\n")
        self.lines.flush()

    def ask(self, trial, path):
        self.send({"type": "run", "trial": trial, "path": path})
        return self.receive()

    def describe(self, name, *args):
        p = run(*SMALL, "--steps", "3", "--eval-samples", "0", *args, "--dry-run", "-o", name)
        os.makedirs(name, exist_ok=True)
        with open(name + ".json", "w") as f:
            f.write(p.stdout)
        return name + ".json"

    def test_runs_until_quit(self):
        hello = self.receive()
        self.assertEqual(hello["token"], "secret-7")
        self.assertEqual(hello["ranks"], 0)
        self.assertTrue(hello["trainer"].startswith("native "))
        for word in ("cpu.features=", "kernels.onednn=", "float.environment="):
            self.assertIn(word, hello["platform"])
        one = self.describe("w1", "--ranks", "2")
        four = self.describe("w4", "--ranks", "4", "--recipe", "horovod/rank0-broadcast")
        bad = self.describe("wbad", "--save", "no/such/x.h5")
        done = self.ask("first", one)
        self.assertEqual((done["trial"], done["status"], done["message"]), ("first", "OK", None))
        first = [e for e in events("w1") if e["type"] == "step"]
        self.assertEqual(self.ask("second", four)["status"], "OK")
        failed = self.ask("third", bad)
        self.assertEqual(failed["status"], "NOT_FOUND")
        self.assertIn("no/such", failed["message"])
        self.assertEqual(self.ask("fourth", "nothere.json")["status"], "NOT_FOUND")
        self.assertEqual(self.ask("fifth", one)["status"], "OK")
        again = [e for e in events("w1") if e["type"] == "step"]
        for a, b in zip(first, again, strict=True):
            self.assertEqual(a["loss_bits"], b["loss_bits"])
            self.assertEqual(a["digests"], b["digests"])
        self.send({"type": "quit"})
        self.assertEqual(self.process.wait(timeout=30), 0)

    def test_closed_socket_ends_it(self):
        self.receive()
        self.lines.close()
        self.connection.close()
        self.assertEqual(self.process.wait(timeout=30), 0)

    def test_closed_socket_ends_a_long_run(self):
        self.receive()
        path = self.describe("long")
        with open(path) as f:
            description = json.load(f)
        description["to_step"] = 10 ** 9
        with open(path, "w") as f:
            json.dump(description, f)
        self.send({"type": "run", "trial": "long", "path": path})
        while not os.path.exists("long/events.jsonl"):
            time.sleep(0.01)
        self.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(self.process.poll())
        self.lines.close()
        self.connection.close()
        self.assertEqual(self.process.wait(timeout=30), 0)
        self.assertIn("interrupted", events("long")[-1]["message"])

    def test_nonsense_ends_it(self):
        self.receive()
        self.send({"type": "hello"})
        self.assertEqual(self.process.wait(timeout=30), 3)

    @unittest.skipUnless(os.path.isdir("/usr/share/datasets/fashion-mnist"), "no Fashion-MNIST")
    def test_costs_are_paid_once(self):
        self.receive()
        path = self.describe("fast", "--ranks", "2", "--data", "fashion-mnist")
        times = []
        for _ in range(10):
            before = time.monotonic()
            self.assertEqual(self.ask("timed", path)["status"], "OK")
            times.append(time.monotonic() - before)
        # the data set is read and the plans are made in the first run alone
        self.assertLess(min(times[1:]), times[0] / 4)


class Environment(unittest.TestCase):
    def test_worker_addresses(self):
        for where, code, text in (("tcp:localhost:1", 3, "expected unix:PATH"),
                                  ("unix:/nowhere/x", 4, "/nowhere/x")):
            env = dict(os.environ, SDCLAB_WORKER=where, SDCLAB_TOKEN="t")
            p = subprocess.run([PROGRAM], env=env, stderr=subprocess.PIPE, text=True, timeout=30)
            self.assertEqual(p.returncode, code)
            self.assertIn(text, p.stderr)
        env = dict(os.environ, SDCLAB_WORKER="unix:/x")
        env.pop("SDCLAB_TOKEN", None)
        p = subprocess.run([PROGRAM], env=env, stderr=subprocess.PIPE, text=True, timeout=30)
        self.assertEqual(p.returncode, 2)


class Samples(unittest.TestCase):
    ARGS = [*SMALL, "--ranks", "2", "--data-limit", "70", "--seed-data", "5", "--crop-padding", "3", "--flip"]

    def lines(self, *args):
        return [json.loads(line) for line in run(*self.ARGS, "--list-samples", *args).stdout.splitlines()]

    def test_lists_what_the_ranks_see(self):
        lines = self.lines("--epochs", "3")
        check = schema("samples-1.json")
        for step, line in enumerate(lines, 1):
            check.validate(line)
            self.assertEqual(line["step"], step)
            self.assertEqual(line["epochs"], [(step - 1) // 4] * 2)  # 35 // 8 steps
            self.assertEqual(np.shape(line["crops"]), (2, 8, 2))
            self.assertEqual(np.shape(line["flips"]), (2, 8))
        self.assertEqual(len(lines), 12)
        self.assertEqual(set(np.ravel([line["crops"] for line in lines])), set(range(7)))
        for epoch in range(3):
            seen = np.ravel([line["samples"] for line in lines[4 * epoch:4 * epoch + 4]])
            self.assertEqual((len(seen), len(set(seen)), max(seen) < 70), (64, 64, True))
        # a sample is changed alike wherever it is seen in an epoch, and anew in the next
        single = [json.loads(line) for line in run(*SMALL, "--data-limit", "70", "--seed-data", "5", "--crop-padding", "3",
                                                   "--flip", "--epochs", "1", "--list-samples").stdout.splitlines()]
        draws = [dict(zip(np.ravel([line["samples"] for line in part]),
                          map(tuple, np.reshape([line["crops"] for line in part], (-1, 2)))))
                 for part in (lines[:4], single, lines[4:8])]
        both = draws[0].keys() & draws[1].keys() & draws[2].keys()
        self.assertGreater(len(both), 40)
        self.assertTrue(all(draws[0][i] == draws[1][i] for i in both))
        self.assertTrue(any(draws[0][i] != draws[2][i] for i in both))
        plain = json.loads(run(*SMALL, "--steps", "1", "--list-samples").stdout)
        self.assertEqual(sorted(plain), ["epochs", "samples", "schema", "step"])
        ordered = json.loads(run(*SMALL, "--ranks", "2", "--steps", "1", "--no-shuffle", "--list-samples").stdout)
        self.assertEqual(ordered["samples"], [list(range(0, 16, 2)), list(range(1, 16, 2))])

    def test_goes_on_from_a_checkpoint(self):
        whole = self.lines("--steps", "9")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "at6.h5")
            run(*self.ARGS, "--steps", "6", "--eval-samples", "0", "--save", path, "-q", "-o", folder)
            self.assertEqual(self.lines("--steps", "3", "--load", path), whole[6:])
            with h5py.File(path, "r+") as f:
                f["loop/epoch"][()] = 7
                f["loop/rng"][2] = 7
            other = self.lines("--steps", "3", "--load-rank", "0=" + path, "--load-rank", "1=" + path)
            self.assertEqual([line["epochs"] for line in other], [[7, 7], [7, 7], [8, 8]])


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        os.chdir(scratch)
        try:
            unittest.main(verbosity=1)
        finally:
            os.chdir("..")
