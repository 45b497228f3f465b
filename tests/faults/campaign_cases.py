"""Cases with which the campaign itself is tried: each goes wrong in its own way."""

import os
import signal
import threading
import time
from dataclasses import dataclass

from tools.crash.row import Outcome

_KEPT: list[int] = []


@dataclass
class Trial:
    """A case that does what its label says."""

    label: str

    def run(self) -> Outcome:
        """Do it."""
        match self.label.split()[0]:
            case "fails":
                return Outcome(ok=False, label=self.label, detail="a promise was broken")
            case "raises":
                raise ZeroDivisionError
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hangs":
                threading.Event().wait()
            case "leaks":
                _KEPT.append(os.open(os.devnull, os.O_RDONLY))
            case "threads":
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            case "skips":
                return Outcome(ok=True, label=self.label, skipped="not on this machine")
        return Outcome(ok=True, label=self.label)
