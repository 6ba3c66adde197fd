"""Ctrl-C, SIGTERM and ``os._exit``: the recording ends first, then the program does what it would have done."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any, Final

__all__ = ["EndsFirst", "run_and_wait"]

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)

_PR_SET_PDEATHSIG: Final = 1
_prctl: Final = getattr(ctypes.CDLL(None), "prctl", None)
"""Looked up here: between fork and exec little may be done."""


class EndsFirst:
    """Ends a recording when the program is asked to end, or leaves at once. It sees and sets its own handlers as before.

    On another thread than the main one it does nothing: signals are not told there.

    Args:
        end: Ends the recording because of the named signal or function, between two instructions of the main thread; whether
            that was possible there, or None while the recording is being written already.
    """

    def __init__(self, end: Callable[[str], bool | None]) -> None:
        self._end = end
        self._theirs: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        self._theirs = {number: signal.getsignal(number) for number in _ENDING}
        self._set, self._get = signal.signal, signal.getsignal
        for number in _ENDING:
            if self._theirs[number] not in (signal.SIG_IGN, None):
                self._set(number, self._received)
        vars(signal).update(signal=self._signal, getsignal=self._getsignal)
        self._leave_now = os._exit
        vars(os).update(_exit=self._leaving)
        os.register_at_fork(after_in_child=self.give_back)

    def _signal(self, number: int, handler: Any) -> Any:
        if number not in self._theirs:
            return self._set(number, handler)
        self._set(number, handler if handler is signal.SIG_IGN else self._received)
        before, self._theirs[number] = self._theirs[number], handler
        return before

    def _getsignal(self, number: int) -> Any:
        return self._theirs[number] if number in self._theirs else self._get(number)

    def _received(self, number: int, frame: Any) -> None:
        ended = self._end(signal.Signals(number).name)
        if ended is None:
            return  # asked twice, as by an impatient person: the program ends once the recording is written
        handler = self._theirs[number]
        if callable(handler):
            handler(number, frame)
        elif not ended:
            raise SystemExit(128 + number)  # the recording ends on the way out
        else:
            self.give_back()
            os.kill(os.getpid(), number)

    def _leaving(self, status: int) -> None:
        if threading.current_thread() is threading.main_thread():
            self._end("os._exit")
        self._leave_now(status)

    def give_back(self) -> None:
        """Let the program's own handlers stand; a forked child has nothing to end."""
        if self._theirs:
            vars(signal).update(signal=self._set, getsignal=self._get)
            vars(os).update(_exit=self._leave_now)
        for number, handler in self._theirs.items():
            if handler is not None:
                self._set(number, handler)
        self._theirs = {}


def run_and_wait(command: list[str], stderr: int | None = None) -> int:
    """Run a program until it ends, and pass on the signals that it would not get by itself.

    At a terminal it stays in this process' group, which gets Ctrl-C whole. Elsewhere it has a group of its own: what
    is sent to this one's would reach it twice, and a second Ctrl-C takes Nsight Systems down before it writes.

    Args:
        command: The program and its arguments.
        stderr: The file descriptor that is its standard error; None for this process' own.

    Returns:
        The exit code, 128 and the signal's number if it was killed.

    Raises:
        OSError: There is no such program.
    """
    watched = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    together = os.isatty(0)
    try:
        prepare = functools.partial(_in_child, before)
        group = None if together else 0
        with subprocess.Popen(command, stderr=stderr, preexec_fn=prepare, process_group=group) as process:
            while process.poll() is None:
                received = signal.sigtimedwait(watched, 1.0)
                by_terminal = together and received is not None and received.si_code > 0
                if received is not None and received.si_signo != signal.SIGCHLD and not by_terminal:
                    process.send_signal(received.si_signo)
        code = process.returncode
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code if code >= 0 else 128 - code


def _in_child(mask: set[Any]) -> None:
    """Unblock signals; and where this process is killed, ask the program to end: nobody would pass anything on."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
