"""The small commands that change sessions: fork, snapshot, revert, redact, rm, restore."""

import click

from hansard.cli import arguments, stores
from hansard.cli.command import Call, define
from hansard.cli.screen import many


@define(
    "fork",
    examples=[
        "fork support/42  # under a fresh id",
        "fork support/42 support/42-b --at 10",
        "fork support/42 support/42-c --at 'before tools'",
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.argument("child", metavar="[NEW_ID]", required=False)
@click.option(
    "--at", type=arguments.PLACE, help="Where: a seq, a time, or the label of a snapshot."
)
def fork(call: Call, session_id: str, child: str | None, at: arguments.Place | None) -> None:
    """Begin another session where one is, or was.

    Nothing is copied: it costs one event, whatever the length. With --json: one document.
    """
    with stores.writing(call) as store:
        made = stores.session_of(store, session_id).fork(child, at=at)
        begin = made.state().forked_at
    call.screen.document({"session": made.id, "parent": session_id, "forked_at": begin})
    call.screen.line(f"{made.id} begins at seq {begin} of {session_id}")


@define(
    "snapshot",
    examples=[
        'snapshot support/42 "before tools"',
        "snapshot support/42  # list the labels",
        'revert support/42 "before tools"  # come back to it',
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.argument("label", required=False)
def snapshot(call: Call, session_id: str, label: str | None) -> None:
    """Give the place where a session is a label, to come back to.

    Without a label, list those that there are. With --json: one document, with the labels and their seqs.
    """
    with stores.reading(call) if label is None else stores.writing(call) as store:
        session = stores.session_of(store, session_id)
        if label is not None:
            session.snapshot(label)
        known = session.snapshots
    call.screen.document({"session": session_id, "snapshots": known})
    if label is None:
        call.screen.table(["label", "seq"], known.items(), numbers="seq")
    else:
        call.screen.line(f"seq {known[label]} of {session_id} is {label!r}")


@define(
    "revert",
    examples=[
        "revert support/42 'before tools'",
        "revert support/42 12",
        "revert support/42 20  # undo: 20 was the seq before the revert",
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.argument("place", metavar="SEQ|TIME|LABEL", type=arguments.PLACE)
def revert(call: Call, session_id: str, place: arguments.Place) -> None:
    """Let the model view go back to a seq or a snapshot.

    Nothing is erased: the history view still shows all, and a revert to a later seq brings it back.
    With --json: one document.
    """
    with stores.writing(call) as store:
        session = stores.session_of(store, session_id)
        before = session.seq
        to = arguments.seq_at(session, place)
        event = session.revert(to)
        left = len(session.messages())
    call.screen.document(
        {"session": session_id, "reverted_to": to, "seq": event.seq, "messages": left}
    )
    call.screen.line(
        f"{session_id} is back at seq {to}, with {many(left, 'message')}; "
        f"`hansard revert {session_id} {before}` undoes it"
    )


@define(
    "redact",
    examples=[
        "redact support/42 12 --reason 'said by mistake'",
        "redact support/42 12 13 --yes",
        "compact support/42  # after that the bytes are gone from the disk, too",
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.argument("seqs", metavar="SEQ...", nargs=-1, required=True, type=click.IntRange(min=1))
@click.option("--reason", default="", help="Kept with the redaction.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def redact(
    call: Call, session_id: str, seqs: tuple[int, ...], reason: str, *, yes: bool
) -> int | None:
    """Take messages out of every view, for good.

    Also from views of earlier times, and from forks. The bytes go with the next `hansard compact`. This
    cannot be undone. With --json: one document.
    """
    with stores.writing(call) as store:
        session = stores.session_of(store, session_id)
        question = f"Take {many(len(seqs), 'message')} out of {session_id}, for good?"
        if not yes and not call.screen.confirm(question, instead="--yes"):
            call.screen.line("nothing was written")
            return 1
        done = [session.redact(seq, reason=reason).seq for seq in seqs]
    call.screen.document({"session": session_id, "redacted": list(seqs), "events": done})
    call.screen.line(
        f"{session_id}: {many(len(seqs), 'message')} redacted; `hansard compact {session_id}` "
        "removes the bytes"
    )
    return None


@define(
    "rm",
    examples=[
        "rm support/42",
        "restore support/42  # it was only in the trash",
        "rm --purge support/42  # for good; asks",
    ],
)
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True, type=stores.SESSION)
@click.option("--purge", is_flag=True, help="Remove them for good, also from the trash.")
@click.option("-y", "--yes", is_flag=True, help="With --purge, do not ask.")
def rm(call: Call, session_ids: tuple[str, ...], *, purge: bool, yes: bool) -> int | None:
    """Move sessions to the trash.

    `hansard restore` brings them back. With --json: one document.
    """
    with stores.writing(call) as store:
        trash = set(store.trash())
        for session_id in session_ids:
            # All are looked at before one is touched: a mistyped id removes nothing.
            if not (purge and session_id in trash):
                stores.session_of(store, session_id)
        question = f"Remove {many(len(session_ids), 'session')} for good?"
        if purge and not yes and not call.screen.confirm(question, instead="--yes"):
            call.screen.line("nothing was removed")
            return 1
        for session_id in session_ids:
            if store.exists(session_id):
                store.delete(session_id)
            if purge:
                store.purge(session_id)
    call.screen.document({"deleted": list(session_ids), "purged": purge})
    what = "removed for good" if purge else "moved to the trash"
    call.screen.line(f"{many(len(session_ids), 'session')} {what}")
    return None


@define(
    "restore",
    examples=["restore support/42", "restore  # list what is in the trash"],
)
@click.argument("session_ids", metavar="[ID]...", nargs=-1)
def restore(call: Call, session_ids: tuple[str, ...]) -> None:
    """Bring sessions back from the trash.

    Without an id, list what is there. With --json: one document.
    """
    if not session_ids:
        with stores.reading(call) as store:
            trash = store.trash()
        call.screen.document({"trash": trash})
        for session_id in trash:
            call.screen.line(session_id)
        return
    with stores.writing(call) as store:
        for session_id in session_ids:
            stores.deleted(store, session_id)
        for session_id in session_ids:
            store.restore(session_id)
    call.screen.document({"restored": list(session_ids)})
    call.screen.line(f"{many(len(session_ids), 'session')} restored")
