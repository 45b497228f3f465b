"""The small commands that change sessions: fork, snapshot, revert, redact, hold, rm, restore, prune."""

from datetime import timedelta
from difflib import get_close_matches
from typing import Any

import click

import hansard
from hansard.cli import arguments
from hansard.cli.command import FAILED, PATH, Call, define, remember, session_of
from hansard.cli.render import MESSAGES
from hansard.cli.screen import cell, many

#: The options of `prune` of which one is needed.
_REQUESTS = {"older_than", "max_size", "archive_after", "purge_trash"}

#: Details of one reason that `prune` shows, such as times.
_DETAILS = 3


@define(
    "fork",
    "fork support/42  # with a generated id",
    "fork support/42 support/42-b --at 10",
    "fork support/42 support/42-c --at 'before tools'",
)
@arguments.session_argument
@click.argument("child", metavar="[NEW_ID]", required=False)
@click.option("--at", type=arguments.PLACE, help="Seq, time or snapshot name [default: the end]")
def fork(call: Call, session_id: str, child: str | None, at: arguments.Place | None) -> None:
    """Create a session from a point in another.

    Copies nothing: a fork is one event. With --json: one document.
    """
    with call.writing() as store:
        session = session_of(store, session_id)
        made = session.fork(child, at=at)
        remember(store, made.id)
        begin = made.state().forked_at
    call.screen.document({"session": made.id, "parent": session.id, "forked_at": begin})
    call.screen.line(f"{made.id}: forked from {session.id} at seq {begin}")


@define(
    "snapshot",
    'snapshot support/42 "before tools"',
    "snapshot support/42  # list the names",
    'revert support/42 "before tools"  # come back to it',
)
@arguments.session_argument
@click.argument("label", metavar="[NAME]", required=False)
def snapshot(call: Call, session_id: str, label: str | None) -> None:
    """Name the current point, or list names.

    With --json: one document with the names and their seqs.
    """
    if label == "":
        raise click.UsageError("the name must not be empty")
    with call.reading() if label is None else call.writing() as store:
        session = session_of(store, session_id)
        if label is not None:
            session.snapshot(label)
        known = session.snapshots
    call.screen.document({"session": session.id, "snapshots": known})
    if label is None:
        call.screen.table(["name", "seq"], known.items(), numbers="seq")
    else:
        call.screen.line(f"{session.id}: seq {known[label]} is {label!r}")


@define(
    "revert",
    "revert support/42 'before tools'",
    "revert support/42 12",
    "revert support/42 20  # undo: 20 was the seq before the revert",
)
@arguments.session_argument
@click.argument("place", metavar="SEQ|TIME|NAME", type=arguments.PLACE)
def revert(call: Call, session_id: str, place: arguments.Place) -> None:
    """Revert the model view to a point.

    Erases nothing: the history view still shows everything, and a revert to a later seq undoes it.
    With --json: one document.
    """
    with call.writing() as store:
        session = session_of(store, session_id)
        before = session.seq
        to = arguments.seq_at(session, place)
        event = session.revert(to)
        left = len(session.messages())
    call.screen.document(
        {"session": session.id, "reverted_to": to, "seq": event.seq, "messages": left}
    )
    call.screen.line(
        f"{session.id}: reverted to seq {to}, {many(left, 'message')}; "
        f"`{call.again('revert', session.id, before)}` undoes it"
    )


@define(
    "redact",
    "redact support/42 12 --reason 'sent by mistake'",
    "redact support/42 12 13 --yes",
    "compact support/42  # erase the bytes",
)
@arguments.session_argument
@click.argument("seqs", metavar="SEQ...", nargs=-1, required=True, type=click.IntRange(min=1))
@click.option("--reason", default="", help="Stored with the redaction")
@arguments.yes_option
def redact(
    call: Call, session_id: str, seqs: tuple[int, ...], reason: str, *, yes: bool
) -> int | None:
    """Permanently hide messages.

    Also in views of earlier times, and in forks. The next `hansard compact` erases the bytes. This cannot be
    undone. With --json: one document.
    """
    with call.writing() as store:
        session = session_of(store, session_id, complete=True)
        question = f"Permanently hide {many(len(seqs), 'message')} of {session_id}?"
        if not yes and not call.screen.confirm(question):
            call.screen.line("nothing was written")
            return FAILED
        for seq in seqs:
            # All are checked first: a mistyped seq hides nothing.
            event = next(session.events(after=seq - 1), None)
            if event is None or event.kind not in MESSAGES:
                raise hansard.InvalidEvent(f"session {session_id!r} has no message at seq {seq}")
        done = [session.redact(seq, reason=reason).seq for seq in seqs]
    call.screen.document({"session": session_id, "redacted": list(seqs), "events": done})
    call.screen.line(
        f"{session_id}: {many(len(seqs), 'message')} redacted; `{call.again('compact', session_id)}` "
        "erases the bytes"
    )
    return None


@define(
    "hold",
    "hold support/42 --reason 'case 7'",
    "ls --held",
    "hold --release support/42",
)
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True, type=arguments.SESSION)
@click.option("--reason", default="", help="Stored with the hold")
@click.option("--release", is_flag=True, help="End the hold")
def hold(call: Call, session_ids: tuple[str, ...], reason: str, *, release: bool) -> None:
    """Put sessions under a legal hold.

    Held sessions cannot be deleted, pruned, redacted or dropped, and compaction erases nothing of them. The
    ancestors of a fork are held with it. With --json: one document.
    """
    if release and reason:
        raise click.UsageError("--release and --reason exclude each other")
    with call.writing() as store:
        # All are checked first: a mistyped id holds nothing.
        sessions = [session_of(store, session_id) for session_id in session_ids]
        changed: list[str] = []
        same: list[str] = []
        for session in sessions:
            before = session.seq
            event = session.release() if release else session.hold(reason)
            (changed if event is not None and event.seq > before else same).append(session.id)
    call.screen.document({"sessions": list(session_ids), "held": not release, "reason": reason})
    if changed:
        undo = call.again("hold", "--release", *changed)
        what = "released" if release else f"held; `{undo}` ends it"
        call.screen.line(f"{many(len(changed), 'session')} {what}")
    if same:
        what = "not held, so not released" if release else "held already; nothing was written"
        call.screen.line(f"{', '.join(same)}: {what}")


@define(
    "rm",
    "rm support/42",
    "restore support/42  # undo",
    "rm --purge support/42  # permanently; asks",
)
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True, type=arguments.SESSION)
@click.option("--purge", is_flag=True, help="Delete permanently, also from the trash")
@click.option("-y", "--yes", is_flag=True, help="Skip the confirmation of --purge")
def rm(call: Call, session_ids: tuple[str, ...], *, purge: bool, yes: bool) -> int | None:
    """Move sessions to the trash.

    `hansard restore` restores them. With --json: one document.
    """
    with call.writing() as store:
        trash = set(store.trash())
        for session_id in session_ids:
            # All are checked first: a mistyped id removes nothing.
            if not (purge and session_id in trash):
                session_of(store, session_id, complete=True)
        question = f"Permanently delete {many(len(session_ids), 'session')}?"
        if purge and not yes and not call.screen.confirm(question):
            call.screen.line("nothing was removed")
            return FAILED
        # Of several, held ones first: they refuse before another is removed.
        several = len(session_ids) > 1
        held = {info.id for info in store.sessions(held=True).items} if several else ()
        for session_id in sorted(dict.fromkeys(session_ids), key=lambda one: one not in held):
            if store.exists(session_id):
                store.delete(session_id)
            if purge:
                store.purge(session_id)
    call.screen.document({"deleted": list(session_ids), "purged": purge})
    what = "permanently deleted" if purge else "moved to the trash"
    call.screen.line(f"{many(len(session_ids), 'session')} {what}")
    return None


@define("restore", "restore support/42", "restore  # list the trash")
@click.argument("session_ids", metavar="[ID]...", nargs=-1, type=arguments.TRASHED)
def restore(call: Call, session_ids: tuple[str, ...]) -> None:
    """Restore sessions from the trash.

    Without an id, list the trash. With --json: one document.
    """
    if not session_ids:
        with call.reading() as store:
            trash = store.trash()
        call.screen.document({"trash": trash})
        for session_id in trash:
            call.screen.line(cell(session_id))
        if not trash and call.screen.terminal:
            call.screen.line(("the trash is empty", "dim"))
        return
    with call.writing() as store:
        trash = store.trash()
        missing = next((id for id in session_ids if id not in trash), None)
        if missing is not None:
            close = get_close_matches(missing, trash, 1)
            hint = f"did you mean {close[0]!r}?" if close else "`hansard restore` lists the trash"
            raise hansard.SessionNotFound(f"no session {missing!r} in the trash; {hint}")
        for session_id in session_ids:
            store.restore(session_id)
    call.screen.document({"restored": list(session_ids)})
    call.screen.line(f"{many(len(session_ids), 'session')} restored")


def _check_prune(
    options: dict[str, Any], workspace: str | None, *, policy: bool, set_policy: bool, dry_run: bool
) -> None:
    """Raise for options of `prune` that exclude each other, or that request nothing."""
    problem = None
    # 0 may be meant as "no limit": it is not worth the risk.
    nothing = [name for name, value in options.items() if not value]
    if nothing:
        problem = f"--{nothing[0].replace('_', '-')} must be greater than 0"
    elif policy and (options or set_policy or workspace is not None):
        problem = "--policy excludes all other options but --dry-run"
    elif set_policy and (dry_run or workspace is not None):
        problem = "--set-policy excludes --dry-run and --workspace"
    elif not policy and not options.keys() & _REQUESTS:
        problem = "pass --older-than, --max-size, --archive-after, --purge-trash or --policy"
    elif workspace is not None and options.keys() & {"all_workspaces", "purge_trash"}:
        other = "--all-workspaces" if "all_workspaces" in options else "--purge-trash"
        problem = f"--workspace and {other} exclude each other"
    if problem:
        raise click.UsageError(problem)


@define(
    "prune",
    "prune --older-than 30d --dry-run  # only show",
    "prune --older-than 30d",
    "prune --older-than 2w --workspace . --keep-last 5",
    "prune --max-size 10GB --archive-after 30d --purge-trash 7d --set-policy",
    "prune --policy  # from cron",
)
@click.option("--older-than", type=arguments.AGE, help="Inactive for AGE, such as 30d or 12h")
@click.option(
    "--max-size",
    type=arguments.SIZE,
    help="Also move the longest inactive, until SIZE is left, such as 10GB",
)
@click.option("--policy", is_flag=True, help="Apply the stored policy")
@click.option(
    "--set-policy", is_flag=True, help="Store the other options as the policy; prune nothing"
)
@click.option("--archived", is_flag=True, help="Move only archived sessions")
@click.option("--finished-parent", is_flag=True, help="Move only forks of archived or closed ones")
@click.option("--archive-after", type=arguments.AGE, help="Archive what is inactive for AGE")
@click.option("--purge-trash", type=arguments.AGE, help="Delete what is in the trash for AGE")
@arguments.count_option("--keep-last", default=0, help="Keep the N newest of each workspace")
@click.option("--workspace", metavar="PATH", type=PATH, help="Only sessions of this directory")
@click.option("--all-workspaces", is_flag=True, help="Sessions of every workspace")
@arguments.prefix_option
@click.option("--dry-run", is_flag=True, help="Write nothing; show what would be done")
def prune(
    call: Call,
    workspace: str | None,
    *,
    policy: bool,
    set_policy: bool,
    dry_run: bool,
    **given: Any,
) -> None:
    """Move inactive sessions to the trash.

    Keeps sessions that are pinned, held, being written to, needed by forks, or damaged. Without a
    workspace, only sessions that belong to none. With --json: one document.
    """
    options = {
        name: value
        for name, value in given.items()
        if value or value == timedelta(0) or (name == "max_size" and value == 0)
    }
    _check_prune(options, workspace, policy=policy, set_policy=set_policy, dry_run=dry_run)
    with call.reading() if dry_run else call.writing() as store:
        if policy and not store.retention():
            raise click.ClickException("the store has no policy; set one with --set-policy")
        if set_policy:
            report = store.set_retention(**options)
        else:
            report = store.prune(policy=policy, workspace=workspace, dry_run=dry_run, **options)
    assert report is not None  # an option is given
    dry_run = report.dry_run
    call.screen.document(report)
    for session_id in report.pruned:
        call.screen.line(cell(session_id))
    what = "would be moved to the trash" if dry_run else "moved to the trash"
    call.screen.line(
        (f"{many(len(report.pruned), 'session')} {what}, {len(report.kept):,} kept", "bold")
    )
    for done, sessions in (("archived", report.archived), ("purged", report.purged)):
        if sessions:
            verb = f"would be {done}" if dry_run else done
            call.screen.line(f"{many(len(sessions), 'session')} {verb}: {', '.join(sessions)}")
    if set_policy:
        call.screen.line(f"stored as the policy; `{call.again('prune', '--policy')}` applies it")
    reasons: dict[str, list[str]] = {}
    for said in report.kept.values():
        reason, _, detail = said.partition(": ")
        reasons.setdefault(reason, []).append(detail)
    for reason, details in reasons.items():
        shown = ", ".join(list(dict.fromkeys(filter(None, details)))[:_DETAILS])
        more = ", …" if shown and len(details) > _DETAILS else ""
        text = f"{len(details):,} kept: {reason}{' ' * bool(shown)}{shown}{more}"
        call.screen.line((text, "dim"), indent=2)
