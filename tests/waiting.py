"""Waiting for other threads and processes: for a condition, not for a time."""

import threading
import time
import weakref

# Seconds after which a wait is given up. Only what never happens takes as long, also on a busy machine: a test that
# waits must not depend on this number.
PATIENCE = 600.0


def until(reached):
    """Wait until a function returns something true."""
    ends = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < ends, f"not reached in {PATIENCE:g} seconds"
        time.sleep(0.02)


def read_until(process, *lines):
    """Read the standard output of a process up to one of these lines, and return it; it must not end before."""
    for line in process.stdout:
        if line.rstrip("\n") in lines:
            return line.rstrip("\n")
    raise AssertionError(f"the process ended: {process.communicate(timeout=PATIENCE)}")


_gates = weakref.WeakValueDictionary()


class Gate:
    """Lets the first callers pass and holds others until it is opened; pickled in this process, it stays the same."""

    def __init__(self, n_first):
        self.n_first, self.n_came = n_first, 0
        self._lock, self._opened = threading.Lock(), threading.Event()
        _gates[id(self)] = self

    def __call__(self):
        with self._lock:
            self.n_came += 1
            held = self.n_came > self.n_first
        if held:
            assert self._opened.wait(PATIENCE)

    def open(self):
        self._opened.set()

    def __reduce__(self):
        return _gate, (id(self),)


def _gate(number):
    return _gates[number]
