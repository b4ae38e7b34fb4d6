# SPDX-License-Identifier: Apache-2.0
"""The suite of comm/comm.h (test_comm.c) with ranks as MPI processes, at each number of ranks named."""
import os
import sys
import time

import mpirun


def main(program, *sizes):
    if mpirun.missing():
        print(mpirun.missing())
        sys.exit(77)
    for size in sizes:
        before = time.monotonic()
        p = mpirun.run(int(size), [program, "mpi"], timeout=400)
        text = p.stdout + p.stderr
        if "comm mpi is not in this build" in text:
            print("built without MPI")
            sys.exit(77)
        passed = text.count("[  PASSED  ] 13 test(s).")
        if p.returncode != 0 or passed != int(size):
            print(text)
            sys.exit(f"{size} processes: exit code {p.returncode}, {passed} of them passed")
        print(f"{size} processes: {time.monotonic() - before:.1f} s")
        if os.path.exists("arrived"):
            os.unlink("arrived")


if __name__ == "__main__":
    main(*sys.argv[1:])
