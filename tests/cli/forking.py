"""Call the command many times, each in a process of its own, without starting Python for each of them.

Run as a script by `tests.cli.batch`, with a list of calls on stdin; prints what came of them. Everything that
the command may import is imported once, and each call is a fork of this process: real streams and signals, a
real exit, a user and limits of its own.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import tempfile
from typing import Any

NOBODY = 65534


def preload() -> None:
    """Import what the calls will need: somebody else may not be allowed to read the files of it."""
    import hansard

    for package in ("hansard.cli.commands", "hansard.cli"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if module.name != "__main__":
                importlib.import_module(f"{package}.{module.name}")
    with contextlib.suppress(ImportError):
        importlib.import_module("hansard.backend.postgres.backend")
    with (
        tempfile.TemporaryDirectory() as folder,
        hansard.open(f"{folder}/s", durability="os") as store,
    ):
        # The rooms that are entered late.
        session = store.session("a")
        session.add_message({"role": "user", "content": "hello"})
        store.search("hello")
        store.stats()
        store.verify()
        store.diagnose()
        session.compare(session)
        list(session.export("html"))
        list(session.export("markdown"))
        session.compact()
        store.delete("a")


def become(call: dict[str, Any]) -> None:
    """Make this process the one that was asked for; its output goes where the call says."""
    if call.get("cwd"):
        os.chdir(call["cwd"])
    os.environ.update(call.get("env", {}))
    if call.get("stdin") == "closed":
        os.close(0)
        sys.stdin = None
    else:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if call.get("stdout") == "closed":
        os.close(1)
        sys.stdout = None
    elif call.get("stdout") == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    if call.get("largest") is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (call["largest"], resource.RLIM_INFINITY))
    if call.get("nobody"):
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if call.get("interrupted_at"):
        interrupt_at(call["interrupted_at"])


def interrupt_at(number: int) -> None:
    """Press Ctrl-C, as it were, when the disk is read for the n-th time."""
    from hansard.log import disk

    signal.signal(signal.SIGINT, signal.default_int_handler)
    read, reads = disk.read_at, 0

    def read_at(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads == number:
            os.kill(os.getpid(), signal.SIGINT)
        return read(descriptor, length, offset)

    disk.read_at = read_at


def read_pipe(pipe: int, *, lines: int | None = None) -> bytes:
    """Read a pipe to its end, or so many lines of it, as `head` does."""
    data = b""
    while lines is None or data.count(b"\n") < lines:
        more = os.read(pipe, 65536)
        if not more:
            break
        data += more
    return data


def answers(calls: list[dict[str, Any]]) -> list[tuple[int, str, str]] | dict[str, Any]:
    """Make each call, and return what came of it; in a process that is one of the calls, return that call."""
    done = []
    for call in calls:
        # Pipes: a limit on the size of files is for those of the store. What goes to stderr fits into one.
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(out_end, 1)
            os.dup2(err_end, 2)
            for descriptor in (out, out_end, err, err_end):
                os.close(descriptor)
            return call
        os.close(out_end)
        os.close(err_end)
        printed = read_pipe(out, lines=1 if call.get("stdout") == "closed early" else None)
        os.close(out)
        said = read_pipe(err)
        os.close(err)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        done.append((code, printed.decode(errors="backslashreplace"), said.decode()))
    return done


if __name__ == "__main__":
    asked = json.loads(sys.stdin.read())
    preload()
    # A child whose files may not grow must not leave half a compiled module for others.
    sys.dont_write_bytecode = True
    gc.freeze()  # what is there now is nobody's garbage, and need not be copied for each call
    found = answers(asked)
    if isinstance(found, dict):
        become(found)
        from hansard.cli.__main__ import main

        sys.argv = ["hansard", *found["words"]]
        sys.exit(main())
    json.dump(found, sys.stdout)
