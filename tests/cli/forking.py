"""Call the command many times, each in a separate process, without starting Python for each of them.

Run as a script by `tests.cli.batch`, with a list of calls on stdin; prints what came of them. Everything that
the command may import is imported once, and each call is a fork of this process: real streams and signals, a
real exit, its user and its limits.
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

OTHER_USER = 65534


def preload() -> None:
    """Import all modules that the calls need: another user may not be allowed to read their files."""
    import hansard

    for package in ("hansard.cli.commands", "hansard.cli"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if module.name != "__main__":
                importlib.import_module(f"{package}.{module.name}")
    with contextlib.suppress(ImportError):
        importlib.import_module("hansard.backend.postgres.backend")
    with (
        tempfile.TemporaryDirectory() as directory,
        hansard.open(f"{directory}/s", durability="os") as store,
    ):
        # The modules that are imported late.
        session = store.session("a")
        session.add_message({"role": "user", "content": "hello"})
        store.search("hello")
        store.stats()
        store.verify()
        store.diagnose()
        store.prune(older_than=1, dry_run=True)
        session.compare(session)
        list(session.export("html"))
        list(session.export("markdown"))
        session.compact()
        store.delete("a")


def become(call: dict[str, Any]) -> None:
    """Set up this process as the call requests."""
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
    if call.get("other_user"):
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
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
    """Read a pipe to its end, or a number of lines of it, as `head` does."""
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
    gc.freeze()  # existing objects need not be copied for each call
    found = answers(asked)
    if isinstance(found, dict):
        become(found)
        from hansard.cli.__main__ import main

        sys.argv = ["hansard", *found["words"]]
        sys.exit(main())
    json.dump(found, sys.stdout)
