"""One conversation: what a caller holds.

The first room on an event's way: a message comes in as a dict here, becomes a draft (`event.codec`), and
goes to the backend. A handle is cheap, safe to share between threads, and sees at once what others append.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from hansard.backend.contract import AppendRequest, Backend, LogReader
from hansard.errors import InvalidEvent, SessionDeleted, SessionNotFound
from hansard.event import codec
from hansard.event.envelope import Event, NewEvent
from hansard.event.kinds import (
    APPLICATION,
    CONTROL,
    KINDS,
    MESSAGE_ADDED,
    MESSAGE_PART,
    METADATA_SET,
    SESSION_ARCHIVED,
    SESSION_CLEARED,
    SESSION_CLOSED,
    SESSION_CREATED,
    SESSION_FORKED,
    SESSION_REVERTED,
    SESSION_SNAPSHOTTED,
    SUMMARY_ADDED,
    USAGE_RECORDED,
    check_key,
    check_kind,
    read,
)
from hansard.session_reader import At, SessionReader, last_seq
from hansard.state import fold, lineage, view
from hansard.state.view import View
from hansard.stream import Stream

if TYPE_CHECKING:
    from hansard.maintenance.redact import DropReport, ScrubReport
    from hansard.state.compare import Comparison, Side
    from hansard.transfer.export_file import Format

#: The last characters of a fresh id are random; so many tell the streams of a session apart.
_STREAM_ID = 12


class Session(SessionReader):
    """A handle on one session of a store.

    The session exists from its first event on; until then it reads as empty. Made by `store.session(id)`.

    Attributes:
        id: the session's id.
    """

    __slots__ = ()

    # -- saying something -----------------------------------------------------------------------

    def add_message(
        self, message: dict[str, Any], *, key: str | None = None, expected_seq: int | None = None
    ) -> Event:
        """Append one message and return its event.

        Args:
            message: any JSON object. Stored as it is; what cannot come back equal is refused.
            key: the idempotency key. A second append with the same key adds nothing and returns the event
                of the first.
            expected_seq: append only if the session's last seq is this (0: only if it is empty), or raise
                `SeqConflict`.
        """
        draft = _message(message)
        if key is None and expected_seq is None:
            return self._log.append(AppendRequest((draft,)))[0]
        return self._append((draft,), key=key, expected_seq=expected_seq)[0]

    def add_messages(
        self,
        messages: Iterable[dict[str, Any]],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> list[Event]:
        """Append several messages, all or none, and return their events. Options as above."""
        drafts = [_message(message) for message in messages]
        return self._append(drafts, key=key, expected_seq=expected_seq)

    def append(
        self,
        kind: str,
        data: dict[str, Any],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> Event:
        """Append an event of the application's own, of a kind that begins with `x.`."""
        return self._append([_own(kind, data)], key=key, expected_seq=expected_seq)[0]

    def append_all(
        self,
        events: Iterable[tuple[str, dict[str, Any]]],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> list[Event]:
        """Append messages and the application's own events together, all or none, and return them.

        Args:
            events: kinds and data, in order: `("message.added", {"message": {...}})`, or `("x.todo", {...})`.
            key: the idempotency key of the whole: a second append with it adds nothing, and returns the
                events of the first.
            expected_seq: append only if the session's last seq is this, or raise `SeqConflict`.
        """
        drafts = [
            _said(data) if kind == MESSAGE_ADDED else _own(kind, data) for kind, data in events
        ]
        return self._append(drafts, key=key, expected_seq=expected_seq)

    def stream(self, /, *, role: str = "assistant", **fields: Any) -> Stream:
        """Begin a message that is said bit by bit.

        A killed process leaves what was written, and views show it, marked as partial.

        Args:
            role: whose message it is.
            fields: whatever else the message has, but for its content.
        """
        from hansard.log.names import new_id

        stream_id = new_id().replace("-", "")[-_STREAM_ID:]
        return Stream(self._log, stream_id, {"role": role, **fields})

    def set_metadata(self, /, **changes: Any) -> Event | None:
        """Merge keys into the metadata; None removes one, and dicts are merged in turn.

        Returns None, and appends nothing, if the metadata say so already. What looks like a credential is
        refused with `SecretRefused`.
        """
        return self.patch_metadata(changes)

    def patch_metadata(self, changes: dict[str, Any]) -> Event | None:
        """Do as `set_metadata` does, for keys that are no Python names."""
        return self._set_metadata(changes, automatic=False)

    def set_workspace(self, path: str | PathLike[str] = ".") -> Event | None:
        """Say which folder the session belongs to, so that `store.latest(workspace=…)` finds it.

        If the folder is in a git repository, a small file in its git directory lets it be known again after
        it was moved or renamed.
        """
        from hansard.workspace import mark

        return self._set_metadata(mark(path).metadata(), automatic=False)

    def set_title(self, title: str, *, automatic: bool = False) -> Event | None:
        """Give the session a title. It counts as no activity.

        Args:
            title: the title, kept as `title` among the metadata.
            automatic: a program made it up. A title that a person gave is not overwritten by it, also if
                the person was faster by a moment; and a credential that got into it is redacted, where a
                person's title would be refused.
        """
        if not isinstance(title, str):
            raise InvalidEvent(f"a title must be text, not {type(title).__name__}")
        if automatic:
            from hansard.event import secrets

            title, _ = secrets.redact_text(title)
        return self._set_metadata({"title": title}, automatic=automatic)

    def _set_metadata(self, changes: dict[str, Any], *, automatic: bool) -> Event | None:
        codec.encode(changes, "metadata", wrapped=True)
        _refuse_secrets(changes, "metadata")
        changes = _with_workspace(changes)
        encoded = codec.encode(changes, "metadata", wrapped=True)
        raw = (b'{"metadata":%b,"automatic":true}' if automatic else b'{"metadata":%b}') % encoded
        draft = NewEvent(METADATA_SET, raw, METADATA_SET in CONTROL)
        before = self._known(self._reader()).state
        after = fold.apply(before, Event(0, "", draft.kind, draft.data))
        # The same title from a person as from a program is news: from now on it is the person's.
        taken_over = after.named and not before.named
        if codec.equal(before.metadata, after.metadata) and not taken_over:
            return None
        return self._append([draft])[0]

    def record_usage(
        self,
        /,
        *,
        model: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: float | None = None,
        **more: Any,
    ) -> Event:
        """Record what one call of a model took; `more` is kept with it, such as cached tokens."""
        data = {"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens}
        if cost is not None:
            more["cost"] = cost
        _refuse_secrets(more, "usage")
        return self._record(USAGE_RECORDED, {**data, **more})

    # -- changing what is shown -----------------------------------------------------------------

    def snapshot(self, label: str) -> Event:
        """Give the session's present seq a label, to come back to."""
        return self._record(SESSION_SNAPSHOTTED, {"label": label, "seq": self.seq})

    def revert(
        self,
        to: int | str,
        *,
        messages: Iterable[dict[str, Any]] = (),
        expected_seq: int | None = None,
        keep_summary: bool = False,
    ) -> Event:
        """Let the model view go back to a seq or a snapshot.

        Nothing is erased: the history view still shows all, and a revert to a later seq, such as the one
        before this event, brings the later turns back. Metadata and usage are not reverted.

        Args:
            to: a seq, 0 for the beginning, or the label of a snapshot.
            messages: what is said there instead, in the same append: all or none.
            expected_seq: go back only if the session's last seq is this, or raise `SeqConflict`.
            keep_summary: keep the summary that the model view begins with, even if it was added after `to`:
                the same append adds it again.
        """
        reader = self._reader() if keep_summary or isinstance(to, str) else self._log.reader()
        if isinstance(to, str):
            to = self._labelled(reader, to)
        self._check_place(reader, "revert to", to)
        raw = codec.encode({"seq": to})
        drafts = [NewEvent(SESSION_REVERTED, raw, SESSION_REVERTED in CONTROL)]
        summary = view.summary_of(reader, expected_seq) if keep_summary else None
        if summary is not None:
            drafts.append(NewEvent(SUMMARY_ADDED, summary.raw, SUMMARY_ADDED in CONTROL))
        drafts += map(_message, messages)
        return self._append(drafts, expected_seq=expected_seq)[0]

    def summarize(self, *, upto: int, message: dict[str, Any]) -> Event:
        """Let a message stand for all up to a seq in the model view; the history view still shows all."""
        self._check_place(self._log.reader(), "summarize up to", upto)
        return self._record(SUMMARY_ADDED, {"upto": upto, "message": message})

    def redact(self, seq: int, *, reason: str = "") -> Event:
        """Remove the message at a seq from every view, for good, also from views of earlier times.

        A redaction holds for the sessions that were forked from this one too. The bytes stay in the log until
        it is compacted.
        """
        reader = self._reader()
        self._check_place(reader, "redact", seq)
        event = self._event_at(reader, seq)
        if event is None or event.kind not in {MESSAGE_ADDED, SUMMARY_ADDED, MESSAGE_PART}:
            raise InvalidEvent(f"session {self.id!r} has no message at seq {seq}")
        from hansard.maintenance import redact

        if event.kind == MESSAGE_PART:
            # If the message was finished, it is the message that goes, and its parts with it.
            event = next(filter(partial(redact.finishes, event), self.events(after=seq)), event)
        gone = [event]
        if event.kind == SUMMARY_ADDED and not event.data.get("redacted"):
            # `revert(keep_summary=True)` adds a summary again: all copies go that are not redacted yet.
            mask = self._known(reader).redactions.mask
            gone += [
                one
                for one in reader.controls()
                if one.kind == SUMMARY_ADDED and one.seq != seq and mask(one).raw == event.raw
            ]
        return self._append([redact.redaction(one, reason) for one in gone])[0]

    def scrub(self, *texts: str, reason: str = "scrubbed") -> "ScrubReport":
        """Remove secrets from everything that is stored, permanently; return how many were found.

        What looks like a credential is replaced by a mark in messages, summaries, metadata and the
        application's own events, in all views and at all times. **This cannot be undone**: compaction
        removes the bytes. Everything else stays as it is.

        Args:
            texts: further texts to remove. They are found in strings, also escaped in JSON inside a string,
                as in a tool's arguments; a number that contains one is replaced as a whole. The report says
                for each in how many places it was found; 0 means that it is stored nowhere in this form.
            reason: kept with the redactions.
        """
        if not all(isinstance(text, str) and text for text in texts):  # type: ignore[redundant-expr]
            raise InvalidEvent("texts to scrub must be strings that are not empty")
        from hansard.maintenance.redact import Scrubber, ScrubReport

        scrubber = Scrubber(texts)
        events = self._append(list(scrubber.redactions(self.events(), reason)))
        return ScrubReport(self.id, events, scrubber.credentials, tuple(scrubber.places))

    def drop_history(self, before: int, *, reason: str = "", dry_run: bool = False) -> "DropReport":
        """Take everything that was said before a seq out of every view, for good; return what that is.

        Messages, summaries and the application's own events go; their seqs and keys stay, and so does what
        adds up to the state: metadata, usage, labels. **This cannot be undone**: when the session is
        compacted, the bytes go too. The bound may move back, so that no tool call is cut from its result.
        `InUse` if a session was forked from this one and has some of it. A fork drops what it inherits for
        itself only.

        Args:
            before: the first seq that is to stay, at most one more than the last.
            reason: kept in the log with the event that says so.
            dry_run: do nothing, and report what would be dropped.
        """
        from hansard.maintenance.redact import drop_history

        return drop_history(self._backend, self._log, before, reason=reason, dry_run=dry_run)

    def clear(self) -> Event:
        """Let the model view start anew; the history view still shows all."""
        return self._record(SESSION_CLEARED, {})

    def archive(self) -> Event:
        """Put the session out of the way; it can be read and appended to as before."""
        return self._record(SESSION_ARCHIVED, {})

    def unarchive(self) -> Event:
        """Undo `archive`."""
        return self._record(SESSION_ARCHIVED, {"archived": False})

    def close(self) -> Event:
        """Say that the conversation is over. A mark for people: it can be appended to as before."""
        return self._record(SESSION_CLOSED, {})

    def reopen(self) -> Event:
        """Undo `close`."""
        return self._record(SESSION_CLOSED, {"closed": False})

    def fork(self, id: str | None = None, *, at: At | None = None) -> "Session":
        """Begin another session where this one is, or was; nothing is copied.

        The child has all events up to there, under the same seqs, and goes on from them. What happens in
        one of the two from now on does not reach the other, but for redactions of what the child inherited.

        Args:
            id: the child's id; a fresh one if it is not given. `SessionExists` if there is such a session,
                `InvalidEvent` if this one comes from 10,000 forks of forks.
            at: a seq, the label of a snapshot, or a time (a datetime with a time zone).
        """
        reader = self._log.reader() if at is None or isinstance(at, int) else self._reader()
        head = reader.head()
        if head is None:
            raise SessionNotFound(f"no session {self.id!r} in this store, so none to fork from")
        seq = self._seq_at(reader, at)
        if seq is None:
            seq = head.seq
        self._check_place(reader, "fork at", seq)
        if id is None:
            from hansard.log.names import new_id

            id = self._backend.prefix + new_id()
        child = Session(self._backend, id)
        # First what the child stands on: after a power cut the parent must not have less than it.
        self._log.sync()
        depth = lineage.next_depth(reader)
        data = {"parent": self.id, "seq": seq, "created": head.created}
        if depth > 1:
            data["depth"] = depth
        draft = NewEvent(SESSION_FORKED, codec.encode(data), SESSION_FORKED in CONTROL)
        child._log.append(AppendRequest([draft], new_only=True, before=seq))
        try:
            # Whoever purges a session has looked for its children after it was deleted, so a child that came
            # too late to be seen finds its parent deleted here.
            gone = self._log.reader().head() is None
        except SessionDeleted:
            gone = True
        if gone:
            self._backend.delete(child.id, expected_seq=seq + 1)
            self._backend.purge(child.id)
            raise SessionDeleted(f"session {self.id!r} was deleted while it was being forked")
        return child

    def compare(
        self, other: "Session", *, at: At | None = None, other_at: At | None = None
    ) -> "Comparison":
        """Say what this session and another share, and where they differ; the two may be one at two points.

        Compared are the model views, the tool calls in them, metadata, usage and snapshots. Of two sessions
        of one store, the result also names the last event that they share by descent.

        Args:
            other: a session of this store, or of another.
            at: take this one as it was at this seq, snapshot or time.
            other_at: take the other one as it was then.
        """
        from hansard.state.compare import compare

        return compare(self._side(at), other._side(other_at))  # noqa: SLF001 - a session's, too

    def _side(self, at: At | None) -> "Side":
        from hansard.state.compare import Side

        reader = self._reader()
        return Side(reader, self._state_at(reader, at), self._backend.whole)

    def share(
        self,
        *,
        redact: bool = True,
        hook: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the session as JSON objects that can be given away, a head and then every event.

        Args:
            redact: replace what looks like a credential. What was redacted from the views is never in it.
            hook: called with each object at last; returns what to yield instead, or None to leave it out.
        """
        from hansard.transfer.share import share

        return share(self._reader(), self.id, redact=redact, hook=hook)

    def export(
        self,
        format: "Format" = "jsonl",
        *,
        redacted: bool = True,
        view: View = "history",
        events: bool = True,
        parts: bool = False,
        own_only: bool = False,
    ) -> Iterator[bytes]:
        """Yield the session as a file, piece by piece.

        Args:
            format: "jsonl", which `store.import_session` takes in again: a first line that says what it is,
                one line for each event, and a last one with their number and a checksum. Or "markdown" or
                "html", for people: a transcript; the page is one file that loads nothing.
            redacted: replace what looks like a credential; the file says that it is so. What was redacted
                from the views is in no export.
            view: whose messages a transcript shows: "history", all that was said, or "model".
            events: let a transcript say what else happened, too.
            parts: have in "jsonl" what was streamed of messages that are there whole.
            own_only: of a fork, only its own events in "jsonl". Otherwise what it inherits is in it, and it
                can be imported where its parent is not.
        """
        from hansard.transfer.export_file import export

        return export(
            self._reader(),
            self.id,
            format=format,
            redacted=redacted,
            view=view,
            events=events,
            parts=parts,
            own_only=own_only,
        )

    def _record(self, kind: str, data: dict[str, Any]) -> Event:
        """Append an event of hansard's own, whose data must have the shape of its kind."""
        raw = codec.encode(data)
        if read(kind, raw) is None:
            raise InvalidEvent(f"{kind}: {data!r:.200} does not have the shape of such an event")
        return self._append([NewEvent(kind, raw, kind in CONTROL)])[0]

    def _check_place(self, reader: LogReader, action: str, seq: object) -> None:
        last = last_seq(reader)
        if type(seq) is not int or not 0 <= seq <= last:
            raise InvalidEvent(
                f"cannot {action} seq {seq!r}: last seq of session {self.id!r} is {last}"
            )

    def _append(
        self,
        drafts: Sequence[NewEvent],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> list[Event]:
        if key is not None:
            check_key(key)
        if expected_seq is not None and (type(expected_seq) is not int or expected_seq < 0):
            raise InvalidEvent(f"expected_seq must be a seq >= 0, got {expected_seq!r}")
        if not drafts:
            return []
        if len(drafts) > 1:
            codec.check_batch(len(draft.data) for draft in drafts)
        return self._log.append(AppendRequest(drafts, key, expected_seq))


def create(backend: Backend, session_id: str, metadata: dict[str, Any]) -> Session:
    """Append the first event of a session that must not exist, and return a handle on it."""
    codec.encode(metadata, "metadata", wrapped=True)
    _refuse_secrets(metadata, "metadata")
    metadata = _with_workspace(metadata)
    raw = codec.encode(metadata, "metadata", wrapped=True)
    data = b'{"metadata":%b}' % raw if metadata else raw
    draft = NewEvent(SESSION_CREATED, data, SESSION_CREATED in CONTROL)
    session = Session(backend, session_id)
    backend.log(session_id).append(AppendRequest([draft], new_only=True))
    return session


def _with_workspace(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata so that a workspace named in them is known again when its folder was moved."""
    if "workspace" not in metadata:
        return metadata
    from hansard.workspace import completed

    return completed(metadata)


def _message(message: dict[str, Any]) -> NewEvent:
    raw = codec.encode(message, "message", wrapped=True)
    return NewEvent(MESSAGE_ADDED, b"".join((b'{"message":', raw, b"}")), control=False)


def _said(data: dict[str, Any]) -> NewEvent:
    if type(data) is not dict or data.keys() != {"message"}:
        raise InvalidEvent(
            f"{MESSAGE_ADDED}: {data!r:.60}: must have the member 'message', and no other"
        )
    return _message(data["message"])


def _own(kind: str, data: dict[str, Any]) -> NewEvent:
    if not check_kind(kind).startswith(APPLICATION) or kind == APPLICATION:
        known = "has a method of its own" if kind in KINDS else "is not known"
        raise InvalidEvent(
            f"kind {kind!r} {known}; the application's own kinds begin with {APPLICATION!r}, "
            f"such as {APPLICATION + 'todo'!r}"
        )
    return NewEvent(kind, codec.encode(data), control=False)


def _refuse_secrets(data: dict[str, Any], what: str) -> None:
    if data:
        # Here, because its patterns take milliseconds, and most sessions set no metadata.
        from hansard.event import secrets

        secrets.refuse(data, what)
