"""Raise KeyboardInterrupt at every point where Python can deliver one.

Python delivers a signal where a function starts, where a loop jumps back, and where a function written in
C has returned. A trace function counts these points, instruction by instruction, and raises at the nth.
This is finer than every line, and has no points at which no interrupt can come, such as between a
`finally` and the first call in it.
"""

import dis
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tools.crash.struck import BY_NAME, Hung, Stage, Wrong, run

#: A pending signal is delivered after these instructions.
_AFTER = {
    number
    for name, number in dis.opmap.items()
    if name in {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "PRECALL"} or "BACKWARD" in name
}
_CALL = dis.opmap["CALL"]


class Interrupter:
    """Counts the points, and raises at one of them; `at` 0: only counts.

    `within`: only the points in the function of this name count, such as `GroupCommit.free`.
    """

    def __init__(self, at: int, *, within: str = "") -> None:
        self._at = at
        self._within = within
        self.seen = 0
        self.fired = False
        #: Where it was raised, for the report.
        self.place = ""
        self._in_log = False
        #: The last frame that returned: no signal is delivered after a Python function has returned.
        self._from: FrameType | None = None

    def __call__(self, call: Callable[[], object]) -> BaseException | None:
        """Make a call with the trace function set, and return what it raised."""
        if self.fired:
            call()
            return None
        sys.settrace(self._begin)
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - which one it is, is what is checked
            return error
        finally:
            sys.settrace(None)
            self._from = None
        return None

    def _begin(self, frame: FrameType, _event: str, _: Any) -> Any:
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return _Frame(self, frame)

    def may_lose(self) -> int:
        """Return the number of descriptors that no code could close.

        One, if the interrupt came in the log, where their owner changes: when the system had given it out and
        nothing held it yet, or when what held it was going, and Python drops what a finaliser raises.
        """
        return int(self._in_log)

    def ended(self, frame: FrameType) -> None:
        """Record that a Python function returns to its caller."""
        self._from = frame.f_back

    def point(self, frame: FrameType, before: int, now: int) -> None:
        """Count what lies between two instructions, if it is a point."""
        came_back = self._from is frame
        self._from = None
        if before not in _AFTER or came_back or now == _CALL:
            return
        if self._within not in {"", frame.f_code.co_qualname}:
            return
        self.seen += 1
        if self.seen == self._at and not self.fired:
            self.fired = True
            code = frame.f_code
            directory, _, file = code.co_filename.rpartition("/")
            self._in_log = directory.endswith("hansard/log")
            self.place = f"{file}:{frame.f_lineno} {code.co_qualname}"
            raise KeyboardInterrupt


class _Frame:
    """Follows one frame, instruction by instruction."""

    __slots__ = ("_before", "_code", "_of")

    def __init__(self, of: Interrupter, frame: FrameType) -> None:
        self._of = of
        self._code = frame.f_code.co_code
        # A function starts, or a generator continues.
        self._before = dis.opmap["RESUME"]

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            now = self._code[frame.f_lasti]
            before, self._before = self._before, now
            if now != dis.opmap["RESUME"]:
                self._of.point(frame, before, now)
        elif event == "exception":
            # The instruction failed: no signal is delivered before the handler runs.
            self._before = -1
        elif event == "return":
            self._of.ended(frame)
        return self


def points(stage: Stage, name: str) -> int:
    """Return at how many points an operation can be interrupted."""
    counting = Interrupter(0)
    run(stage, BY_NAME[name], counting, ())
    return counting.seen


def interrupt(stage: Stage, name: str, at: int, *, within: str = "") -> Interrupter:
    """Interrupt an operation at a point, and check all that must hold; raises `Wrong`."""
    interrupter = Interrupter(at, within=within)
    hook = sys.unraisablehook
    # What is interrupted in a finaliser is shown by Python, and dropped; a hook may keep all that it holds.
    sys.unraisablehook = lambda _: None
    try:
        run(stage, BY_NAME[name], interrupter, (KeyboardInterrupt,), interrupter.may_lose)
    except (Wrong, Hung) as wrong:
        raise Wrong(f"{name} {at}, interrupted at {interrupter.place}: {wrong!r}") from wrong
    finally:
        sys.unraisablehook = hook
    return interrupter
