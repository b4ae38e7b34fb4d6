# SPDX-License-Identifier: Apache-2.0
"""sdclab-train under srun: a Slurm of one node, with its own munge, in a scratch folder."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import mpirun

PROGRAM = os.path.abspath(os.path.join(os.environ["SDC_BINARY_DIR"], "sdclab-train"))
ARGS = ["--model", "mlp", "--data", "synthetic", "--kernels", "ref", "--batch", "8", "--digest-every", "1"]
CONF = """ClusterName=sdclab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


def skip(why):
    print(why)
    sys.exit(77)


def ports():
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        return a.getsockname()[1], b.getsockname()[1]


def start(folder):
    """Returns srun's environment."""
    with open(f"{folder}/munge.key", "wb") as f:
        f.write(os.urandom(1024))
    os.chmod(f"{folder}/munge.key", 0o600)
    for name in ("state", "spool"):
        os.mkdir(f"{folder}/{name}")
    with open(f"{folder}/slurm.conf", "w") as f:
        f.write(CONF.format(host=socket.gethostname().split(".")[0], dir=folder, ports=ports(), cpus=os.cpu_count()))
    env = mpirun.environment(SLURM_CONF=f"{folder}/slurm.conf")
    munged = ["munged", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket",
              f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"]
    for command in (munged, ["slurmctld"], ["slurmd"]):
        p = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
        if p.returncode != 0:
            skip(f"{command[0]} did not start here")
    until = time.monotonic() + 30
    while "idle" not in subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, stdout=subprocess.PIPE, text=True,
                                       timeout=30).stdout:
        if time.monotonic() > until:
            skip("Slurm's node did not get idle here")
        time.sleep(0.3)
    return env


def stop(folder):
    for name in ("slurmd", "slurmctld", "munged"):
        if os.path.exists(f"{folder}/{name}.pid"):
            with open(f"{folder}/{name}.pid") as f:
                os.kill(int(f.read()), signal.SIGTERM)
            time.sleep(0.5)


def srun(env, folder, *args, kind="pmix", code=0):
    p = subprocess.run(["srun", "-n", "2", "--overcommit", f"--mpi={kind}", PROGRAM, *ARGS, *args], env=env,
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
    assert code is None or p.returncode == code, (args, p.returncode, p.stdout, p.stderr)
    return p


def events(folder):
    with open(f"{folder}/events.jsonl") as f:
        return [{k: v for k, v in json.loads(line).items() if k not in ("elapsed", "environment", "paths")}
                for line in f]


def check(env, folder):
    if "pmix" not in subprocess.run(["srun", "--mpi=list"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True, timeout=30).stdout:
        skip("srun has no pmix")
    out = srun(env, folder, "--steps", "8", "-o", f"{folder}/s").stdout
    assert out.count("completed at step 8") == 1, out
    subprocess.run([PROGRAM, *ARGS, "--ranks", "2", "--steps", "8", "-o", f"{folder}/t"], check=True,
                   env=mpirun.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    assert events(f"{folder}/s") == events(f"{folder}/t")
    p = srun(env, folder, "--load", f"{folder}/nothere.h5", "--steps", "1", code=4)
    assert p.stderr.count("nothere.h5") == 1, p.stderr
    srun(env, folder, "--ranks", "3", "--steps", "1", code=2)
    p = srun(env, folder, "--steps", "1", "-o", f"{folder}/n", kind="none", code=None)
    assert p.returncode != 0, p.stdout  # never two runs that each take themselves for the only one


def main():
    for program in ("munged", "slurmctld", "slurmd", "srun"):
        if not shutil.which(program):
            skip(f"{program} is not installed")
    if os.getuid() != 0:
        skip("Slurm's daemons are started by root alone")
    folder = tempfile.mkdtemp(prefix="sdc-slurm-", dir="/tmp")
    os.chmod(folder, 0o755)
    try:
        check(start(folder), folder)
    finally:
        stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
