"""Loaded by a supervised worker beside its job types: the worker ends when the main process that forked it has gone.

Dramatiq's main process stops its workers before it ends. Killed with -9 it can't, and they would run on unwatched.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tether() -> None:
    """Have the kernel kill this process with its parent; does nothing in a process that nobody forked."""
    parent = multiprocessing.parent_process()
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent.pid:
        os.kill(os.getpid(), signal.SIGKILL)  # it went before the kernel was told to care


tether()
