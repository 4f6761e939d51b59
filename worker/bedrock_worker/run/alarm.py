"""A timerfd that one process arms and another one polls, so that arming it wakes nobody.

Imports only the standard library and ``kernel``. Linux only.
"""

from __future__ import annotations

import ctypes
import os

from bedrock_worker.run.kernel import NEVER

CLOCK_MONOTONIC, TFD_NONBLOCK, TFD_CLOEXEC, TFD_TIMER_ABSTIME = 1, 0o4000, 0o2000000, 1
"""Constants of ``timerfd_create(2)``."""

_libc = ctypes.PyDLL(None, use_errno=True)  # does not release the GIL: both calls are short
_Spec = ctypes.c_long * 4  # interval and first moment, each in seconds and nanoseconds


class Alarm:
    """One timer; its handle is readable once it has expired."""

    def __init__(self) -> None:
        """Create a disarmed timer; raises OSError."""
        self.handle = int(_libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC))
        if self.handle < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd_create")
        self._set = NEVER

    def set(self, moment: float) -> None:
        """Arm the timer for a monotonic time, at once if that has passed, or disarm it."""
        if moment == self._set:
            return
        seconds, part = (0, 0) if moment == NEVER else divmod(max(moment, 1e-9), 1)
        spec = _Spec(0, 0, int(seconds), int(part * 1e9))
        if _libc.timerfd_settime(self.handle, TFD_TIMER_ABSTIME, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd_settime")
        self._set = moment

    def close(self) -> None:
        """Close the handle."""
        os.close(self.handle)
