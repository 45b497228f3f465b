"""`hansard doctor`: diagnose the store."""

import os

import click
import msgspec

import hansard
from hansard.cli import VERSION
from hansard.cli.command import DEFAULT_STORE, FAILED, Call, define
from hansard.cli.screen import many
from hansard.message.parse import size


@define(
    "doctor", "doctor", "doctor --json | jq '.diagnostics[] | select(.severity == \"problem\")'"
)
@click.option("--migrate", is_flag=True, help="Upgrade the PostgreSQL tables first")
def command(call: Call, *, migrate: bool) -> int | None:
    """Diagnose the store.

    Checks files, owners, locks, leftovers of crashes and repairs, the index, the disk and the clock, and
    changes nothing. `hansard verify` checks the bytes of sessions.

    For PostgreSQL: the server, the tables, the index, and settings with which the server could lose
    acknowledged data. After an upgrade of hansard, run --migrate once, when all writers are upgraded.

    With --json: one document; each diagnostic has a code. Exit 1 if there is a problem.
    """
    if migrate:
        versions = hansard.migrate(call.store)
        done = f"upgraded to version {versions[-1]}" if versions else "up to date"
        call.screen.labeled([(f"{'tables':<13}", "dim")], done)
    with call.reading() as store:
        found = store.diagnose()
    fields = msgspec.structs.asdict(found)
    call.screen.document({"ok": found.ok, **fields, "settings": _settings(call)})
    _show(call, found)
    return None if found.ok else FAILED


def _settings(call: Call) -> dict[str, str]:
    """Return versions, and where the store's name comes from."""
    import platform
    import sqlite3

    named = "-s" if call.named else "HANSARD_STORE" if os.environ.get("HANSARD_STORE") else ""
    return {
        "store from": named or f"{DEFAULT_STORE} in this directory",
        "hansard": VERSION,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()}",
    }


def _show(call: Call, found: "hansard.Diagnosis") -> None:
    screen = call.screen
    settings = ", ".join(f"{name} {value}" for name, value in _settings(call).items())
    for name, fact in [*_facts(found), ("settings", settings)]:
        screen.labeled([(f"{name:<13}", "dim")], fact)
    for lock in found.locks:
        screen.line(f"{lock.where}: process {lock.pid} {lock.command}", indent=13)
    screen.line()
    for one in found.diagnostics:
        style = "bold red" if one.severity == "problem" else "yellow"
        others = f" (and {one.count - 1:,} more)" if one.count > 1 else ""
        advice = f"; {one.advice}" if one.advice else ""
        screen.labeled(
            [(f"{one.severity:<9}", style)], f"{one.where}{others}: {one.reason}{advice}"
        )
    problems = sum(one.severity == "problem" for one in found.diagnostics)
    if problems:
        screen.line((many(problems, "problem"), "bold red"))
    else:
        screen.line(("no problems", "bold green"))


def _facts(found: "hansard.Diagnosis") -> list[tuple[str, str]]:
    home, index, server = found.home, found.index, found.server
    sessions = ("sessions", f"{found.sessions:,}, and {found.trash:,} in the trash")
    if server is not None:
        role = "a standby" if server.standby else "writable"
        standbys = ", ".join(f"{name} ({state})" for name, state in server.followers.items())
        tables = f"version {server.tables} in schema {server.schema}, {size(server.bytes)}"
        return [
            ("store", found.where),
            sessions,
            ("server", f"PostgreSQL {server.version}, {role}"),
            ("tables", tables),
            ("standbys", standbys or "none that this role can see"),
        ]
    free = "no limit" if home.free_bytes is None else f"{size(home.free_bytes)} free"
    kind = f"{home.file_system} at {home.mounted}" if home.file_system else "of unknown kind"
    return [
        ("store", f"{found.where}, format {found.version}"),
        sessions,
        ("file system", f"{kind}, {free}"),
        ("locks", f"{len(found.locks):,} held"),
        ("leftovers", f"{len(found.leftovers):,}"),
        ("index", size(index.bytes) if index.there else "none; the first listing creates it"),
    ]
