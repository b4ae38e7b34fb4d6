# SPDX-License-Identifier: Apache-2.0
"""Limits for programs under test."""
import resource


def memory_limit(program, size):
    """For preexec_fn: an address space of this size; None for a program built with a sanitizer, whose
    shadow memory alone is larger."""
    with open(program, "rb") as f:
        if b"__asan_init" in f.read():
            return None
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))


def child_seconds():
    """Processor time of all children so far: what a parser cost, however busy the machine is."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime
