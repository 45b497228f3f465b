"""The handle on one session: append, change views, fork, compare and export.

An append begins here: a message is a dict, `event.codec` encodes it as a `NewEvent`, and the backend's log
stores it. A handle is cheap and safe to share between threads. It sees what other processes append.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from os import PathLike, urandom
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hansard import observe
from hansard.backend.contract import AppendRequest, Backend, LogReader
from hansard.errors import InvalidEvent, SeqConflict, SessionNotFound
from hansard.event import codec, kinds
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import CONTROL, MESSAGE_ADDED
from hansard.session_reader import At, SessionReader, check_seq, last_seq
from hansard.state import fold, lineage, view
from hansard.state.view import View
from hansard.stream import GATHER, Stream

if TYPE_CHECKING:
    from hansard.maintenance.redact import DropReport, ScrubReport
    from hansard.state.compare import Comparison, Side
    from hansard.transfer.export_file import Format
    from hansard.transfer.transcript import TranscriptPage

#: The counts of a model call.
_COUNTS: Final = frozenset(fold.Usage.__struct_fields__) - {"cost"}


class Session(SessionReader):
    """A handle on one session of a store.

    The session exists from its first event on; before that it reads as empty. Use `store.session(id)`.

    Attributes:
        id: the session's id.
    """

    __slots__ = ()

    # -- appending ------------------------------------------------------------------------------

    def add_message(
        self, message: Mapping[str, Any], *, key: str | None = None, expected_seq: int | None = None
    ) -> Event:
        """Append one message and return its event.

        Args:
            message: any JSON object. It is stored unchanged: a value that would not decode to an equal one
                raises `InvalidEvent`, except a tuple, which comes back as a list.
            key: the idempotency key. A second append with the same key adds nothing and returns the event
                of the first, with `repeated` set. Contents are not compared. Another kind or number of
                events raises `InvalidEvent`.
            expected_seq: raise `SeqConflict` unless the session's last seq is this; 0 for an empty session.
        """
        draft = _message(message)
        if key is None and expected_seq is None:
            return self._log.append(AppendRequest((draft,)))[0]
        return self._append((draft,), key=key, expected_seq=expected_seq)[0]

    def add_messages(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> list[Event]:
        """Append several messages, all or none, and return their events. Options as for `add_message`."""
        drafts = [_message(message) for message in messages]
        return self._append(drafts, key=key, expected_seq=expected_seq)

    def append(
        self,
        kind: str,
        data: Mapping[str, Any],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> Event:
        """Append an application event, of a kind that begins with `x.`; options as for `add_message`."""
        return self._append([_application(kind, data)], key=key, expected_seq=expected_seq)[0]

    def append_all(
        self,
        events: Iterable[tuple[str, Mapping[str, Any]]],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> list[Event]:
        """Append messages, application events and usage together, all or none, and return their events.

        Args:
            events: kinds and data, in order: `("message.added", {"message": {...}})`, `("x.todo", {...})`, or
                `("usage.recorded", {"model": …})` with the arguments of `record_usage`.
            key: the idempotency key of the batch: a second append with it adds nothing and returns the
                events of the first.
            expected_seq: raise `SeqConflict` unless the session's last seq is this.
        """
        drafts = [
            self._usage(data) if kind == kinds.USAGE_RECORDED else _event(kind, data)
            for kind, data in events
        ]
        return self._append(drafts, key=key, expected_seq=expected_seq)

    def stream(
        self,
        /,
        *,
        role: str = "assistant",
        gather: float = GATHER,
        resume: str | None = None,
        **fields: Any,
    ) -> Stream:
        """Begin a message that is written in parts.

        If the process is killed, views show the parts that were written, marked as partial.

        Args:
            role: the role of the message.
            gather: seconds, at most 1, for which texts are gathered before they are written as one part. A
                kibibyte is written immediately, and so is a text that comes later than this after the last
                part. With 0, every `write` is a part.
            resume: the id of an unfinished stream, from `state().streams`, to continue: its parts, role and
                fields stay. The process that wrote it must have ended.
            fields: other members of the message, except its content.
        """
        if resume is None:
            return Stream(self._log, urandom(6).hex(), {"role": role, **fields}, gather)
        reader = self._reader()
        parts = view.unfinished_parts(reader, resume)
        if not parts or resume in self._known(reader).redactions.streams:
            raise InvalidEvent(
                f"session {self.id!r} has no unfinished stream {resume!r:.40}; `state().streams` lists them"
            )
        return Stream(self._log, resume, parts[0].message or {}, gather, parts)

    def set_metadata(self, /, **changes: Any) -> Event | None:
        """Merge keys into the metadata; None removes a key, and nested dicts are merged.

        Returns None and appends nothing if the metadata would not change. Raises `SecretRefused` for what
        looks like a credential.
        """
        return self.patch_metadata(changes)

    def patch_metadata(self, changes: Mapping[str, Any]) -> Event | None:
        """Merge keys into the metadata like `set_metadata`, for keys that are not Python identifiers."""
        return self._set_metadata(changes, automatic=False)

    def set_workspace(self, path: str | PathLike[str] = ".") -> Event | None:
        """Set the directory that the session belongs to, so that `store.latest(workspace=…)` finds it.

        In a git repository, this writes a small file into the git directory. It identifies the workspace
        after the directory was moved or renamed.
        """
        from hansard.workspace import find

        return self._set_metadata(find(path, mark=True).metadata(), automatic=False)

    def set_title(self, title: str, *, automatic: bool = False) -> Event | None:
        """Set the session's title. This is not activity.

        Args:
            title: the title, stored as `title` in the metadata.
            automatic: a program generated the title. It never overwrites a title that a person set, even
                concurrently. A credential in it is redacted; in a person's title it raises `SecretRefused`.
        """
        if not isinstance(title, str):
            raise InvalidEvent(f"title must be a string, got {type(title).__name__}")
        if automatic:
            from hansard.event import secrets

            title, _ = secrets.redact(title)
        return self._set_metadata({"title": title}, automatic=automatic)

    def _set_metadata(self, changes: Mapping[str, Any], *, automatic: bool) -> Event | None:
        shape = b'{"metadata":%b,"automatic":true}' if automatic else b'{"metadata":%b}'
        raw = shape % _metadata(changes)
        draft = _new(kinds.METADATA_SET, raw)
        before = self._known(self._reader()).state
        after = fold.apply_all(before, [Event(0, "", draft.kind, draft.data)])
        # If a person sets the title that a program generated, it becomes the person's.
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
        cached_tokens: int = 0,
        cache_write_tokens: int = 0,
        reasoning_tokens: int = 0,
        cost: Decimal | float | str | None = None,
        key: str | None = None,
        **more: Any,
    ) -> Event:
        """Record the usage of one model call.

        Args:
            model: the model's name.
            input_tokens: all input tokens, including cached ones.
            output_tokens: all output tokens, including reasoning.
            cached_tokens: number of the input tokens that were read from a cache.
            cache_write_tokens: number of the input tokens that were written to a cache.
            reasoning_tokens: number of the output tokens that are reasoning.
            cost: the cost of the call, stored as a decimal string and summed exactly, to 18 decimal places.
                Pass a `Decimal` or a string if a float would not be exact.
            key: the idempotency key, as for `add_message`.
            more: JSON that is stored with it, such as `response_id`; `calls=0` adds to the call before.
        """
        data = {"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens}
        rare = {
            "cached_tokens": cached_tokens,
            "cache_write_tokens": cache_write_tokens,
            "reasoning_tokens": reasoning_tokens,
        }
        data |= {name: count for name, count in rare.items() if count != 0}
        return self._append([self._usage({**data, "cost": cost, **more})], key=key)[0]

    def _usage(self, data: Mapping[str, Any]) -> NewEvent:
        """Return the event of a model call; its cost as a decimal string."""
        if not isinstance(data, Mapping):
            raise InvalidEvent(f"usage must be a dict, got {data!r:.60}")
        for name, count in data.items():
            if name in _COUNTS and (type(count) is not int or not 0 <= count <= kinds.MOST):
                raise InvalidEvent(f"{name} must be a number from 0 to 10¹², got {count!r:.60}")
        cost = data.get("cost")
        given = {name: value for name, value in data.items() if name != "cost"}
        if cost is not None:
            try:
                given["cost"] = format(kinds.exact_cost(Decimal(str(cost))), "f")
            except (ArithmeticError, ValueError):
                limits = "from -10¹² to 10¹²"
                raise InvalidEvent(f"cost must be a number {limits}, got {cost!r:.60}") from None
        raw = codec.encode(given)
        read = kinds.read(kinds.USAGE_RECORDED, raw)
        if cost is None and read is not None and self._backend.unscoped.prices:
            from hansard.prices import price_of

            if (price := price_of(read)) is not None:
                given["cost"] = format(kinds.exact_cost(price), "f")
                raw = codec.encode(given)
        if read is None:
            raise InvalidEvent(f"usage: model and response_id must be strings, got {data!r:.200}")
        known = kinds.UsageRecorded.__struct_fields__
        _refuse_secrets({name: one for name, one in given.items() if name not in known}, "usage")
        return _new(kinds.USAGE_RECORDED, raw)

    # -- changing views -------------------------------------------------------------------------

    def snapshot(self, label: str) -> Event:
        """Name the session's current seq, to revert to or fork from later."""
        return self._record(kinds.SESSION_SNAPSHOTTED, {"label": label, "seq": self.seq})

    def revert(
        self,
        to: int | str,
        *,
        messages: Iterable[Mapping[str, Any]] = (),
        expected_seq: int | None = None,
        keep_summary: bool = False,
    ) -> Event:
        """Revert the model view to a seq or a snapshot.

        Nothing is erased: the history view still shows everything. A later revert to a higher seq, such as
        the one before this event, shows the later messages again. Metadata and usage are not reverted.

        Args:
            to: a seq, 0 for the beginning, or the name of a snapshot.
            messages: messages to append there, in the same batch.
            expected_seq: raise `SeqConflict` unless the session's last seq is this.
            keep_summary: keep the summary at the beginning of the model view, even if it was added after
                `to`: the same batch adds it again.
        """
        added = [*map(_message, messages)]
        while True:
            reader = self._reader() if keep_summary or isinstance(to, str) else self._log.reader()
            seq = self._seq_at(reader, to) if isinstance(to, str) else to
            self._check_place(reader, "revert to", seq)
            drafts = [_new(kinds.SESSION_REVERTED, codec.encode({"seq": seq}))]
            summary = view.ranges_of(reader, upto=expected_seq).summary if keep_summary else None
            if summary is None:
                return self._append([*drafts, *added], expected_seq=expected_seq)[0]
            drafts.append(_new(kinds.SUMMARY_ADDED, summary.raw))
            at = last_seq(reader) if expected_seq is None else expected_seq
            try:
                return self._append([*drafts, *added], expected_seq=at)[0]
            except SeqConflict:
                # The summary may have been redacted since it was read.
                if expected_seq is not None:
                    raise

    def summarize(self, *, upto: int, message: Mapping[str, Any]) -> Event:
        """Replace everything up to a seq by one message in the model view; the history view shows all."""
        self._check_place(self._log.reader(), "summarize up to", upto)
        return self._record(kinds.SUMMARY_ADDED, {"upto": upto, "message": message})

    def redact(self, seq: int, *, reason: str = "") -> Event:
        """Remove the message at a seq permanently from every view, including views of earlier times.

        This also applies to forks of the session. Compaction erases the bytes.
        """
        reader = self._reader()
        self._check_place(reader, "redact", seq)
        event = self._event_at(reader, seq)
        redactable = {MESSAGE_ADDED, kinds.SUMMARY_ADDED, kinds.MESSAGE_PART}
        if event is None or event.kind not in redactable:
            raise InvalidEvent(f"session {self.id!r} has no message at seq {seq}")
        from hansard.maintenance import redact

        if event.kind == kinds.MESSAGE_PART:
            # If the message was finished, redact the message, and its parts with it.
            stream = event.data.get("stream", "")
            later = (one for one in self.events(after=seq) if one.kind == MESSAGE_ADDED)
            event = next((one for one in later if one.data.get("stream") == stream), event)
        redacted = [event]
        if event.kind == kinds.SUMMARY_ADDED and not event.data.get("redacted"):
            # `revert(keep_summary=True)` adds a summary again: redact all of its copies.
            mask = self._known(reader).redactions.mask
            redacted += [
                one
                for one in reader.controls()
                if one.kind == kinds.SUMMARY_ADDED and one.seq != seq and mask(one).raw == event.raw
            ]
        done = self._remove(reader, [redact.redaction(one, reason) for one in redacted], seq)[0]
        observe.report("redact", observe.INFO, "session %r: redacted seq %d", self.id, seq)
        return done

    def scrub(self, *texts: str, reason: str = "scrubbed") -> "ScrubReport":
        """Remove secrets from all stored events permanently; return how many were found.

        What looks like a credential is replaced by `[redacted]` in messages, summaries, metadata and
        application events, in all views, including those of earlier times. **This cannot be undone**:
        compaction erases the bytes. Everything else stays unchanged.

        Args:
            texts: more strings to remove. They are found in strings, even escaped in JSON inside a string, as
                in a tool's arguments; a number that contains one is replaced. The report has the number of
                places for each; 0 means that it is not stored in this form.
            reason: stored with the redactions.
        """
        if not all(isinstance(text, str) and text for text in texts):  # type: ignore[redundant-expr]
            raise InvalidEvent("texts must be non-empty strings")
        from hansard.maintenance.redact import Scrubber, ScrubReport

        scrubber = Scrubber(texts)
        reader = self._reader()
        drafts = list(scrubber.redactions(self.events(), reason))
        first = min((msgspec.json.decode(draft.data)["seq"] for draft in drafts), default=0)
        events = self._remove(reader, drafts, first)
        if events:
            text = "session %r: scrubbed; redactions: %d"
            observe.report("redact", observe.INFO, text, self.id, len(events))
        return ScrubReport(self.id, events, scrubber.credentials, tuple(scrubber.places))

    def _remove(self, reader: LogReader, drafts: list[NewEvent], first: int) -> list[Event]:
        """Append redactions, the first of which is of the seq `first`, unless what they hide is held."""
        from hansard.maintenance import hold

        if not drafts:
            return []
        codec.check_batch(len(draft.data) for draft in drafts)
        hold.check_inherited(reader, first)
        check = partial(hold.check, self._backend, self.id)
        return self._log.append(AppendRequest(drafts, check=check))

    def hold(self, reason: str = "") -> Event:
        """Put the session under a legal hold: nothing of it is removed until `release`.

        `delete`, `purge`, `redact`, `scrub` and `drop_history` raise `Held`, `prune` keeps the session, and
        compaction erases nothing. Reading and appending continue. A fork's ancestors are held with it.
        A held session keeps its reason unless another is passed; if nothing changes, nothing is appended, and
        the event of the earlier hold is returned.

        Args:
            reason: stored with the event, and shown by the refusals.
        """
        if not isinstance(reason, str):
            raise InvalidEvent(f"reason must be a string, got {type(reason).__name__}")
        from hansard.maintenance.hold import hold

        return hold(self._backend, self.id, reason)

    def release(self) -> Event | None:
        """End the legal hold of the session, and that of its ancestors for it; None if it was not held."""
        from hansard.maintenance.hold import release

        return release(self._backend, self.id)

    def drop_history(self, before: int, *, reason: str = "", dry_run: bool = False) -> "DropReport":
        """Remove the content before a seq permanently from every view; return what was removed.

        Messages, summaries and application events lose their data. Their seqs and idempotency keys stay, and
        so does the state: metadata, usage, snapshot names. **This cannot be undone**: compaction erases the
        bytes. The bound may move back, so that no tool call loses its result. Raises `InUse` if a fork of
        this session shows some of it. A fork drops inherited events for itself only.

        Args:
            before: the first seq to keep, at most the last seq plus one.
            reason: stored with the event.
            dry_run: append nothing; report what would be dropped.
        """
        from hansard.maintenance.redact import drop_history

        return drop_history(self._backend, self._log, before, reason=reason, dry_run=dry_run)

    def clear(self) -> Event:
        """Empty the model view; the history view still shows everything."""
        return self._record(kinds.SESSION_CLEARED, {})

    def archive(self) -> Event:
        """Mark the session as archived; it can still be read and appended to."""
        return self._record(kinds.SESSION_ARCHIVED, {})

    def unarchive(self) -> Event:
        """Undo `archive`."""
        return self._record(kinds.SESSION_ARCHIVED, {"archived": False})

    def close(self) -> Event:
        """Mark the session as closed. This is information only: it can still be appended to."""
        return self._record(kinds.SESSION_CLOSED, {})

    def reopen(self) -> Event:
        """Undo `close`."""
        return self._record(kinds.SESSION_CLOSED, {"closed": False})

    def fork(self, id: str | None = None, *, at: At | None = None) -> "Session":
        """Create a session that continues from this one, or from an earlier point of it, without copying.

        The child shows all events up to that point, under the same seqs. Later changes of one session do not
        affect the other, except redactions of events that the child inherits.

        Args:
            id: the child's id; default: a generated one. Raises `SessionExists` if it exists, and
                `InvalidEvent` if this session has 10,000 ancestors.
            at: a seq, the name of a snapshot, or a time (a datetime with a time zone); default: the end.
        """
        reader = self._log.reader() if at is None or isinstance(at, int) else self._reader()
        head = reader.head()
        if head is None:
            raise SessionNotFound(f"no session {self.id!r} in this store, so none to fork from")
        seq = head.seq if at is None else self._seq_at(reader, at)
        assert seq is not None  # only for no point at all
        self._check_place(reader, "fork at", seq)
        child = handle(self._backend, id)
        # First the parent: after a power cut it must have all events that the child inherits.
        self._log.sync()
        depth = lineage.next_depth(reader)
        label = at if isinstance(at, str) else ""
        forked = kinds.SessionForked(self.id, seq, head.created, depth, label)
        draft = _new(kinds.SESSION_FORKED, msgspec.json.encode(forked))
        with self._backend.stage(child.id, before=seq, forked=forked) as stage:
            stage.append([draft])
            stage.publish()
        return child

    def compare(
        self, other: "Session", *, at: At | None = None, other_at: At | None = None
    ) -> "Comparison":
        """Compare this session with another one, or with itself at another point.

        The comparison covers the model views, their tool calls, metadata, usage and snapshots. For two
        sessions of one store, it also names the last event that both inherit.

        Args:
            other: a session of this store or of another one.
            at: compare this session as of this seq, snapshot or time; default: now.
            other_at: compare the other session as of this seq, snapshot or time; default: now.
        """
        from hansard.state.compare import compare

        return compare(self._side(at), other._side(other_at))  # noqa: SLF001 - the same class

    def _side(self, at: At | None) -> "Side":
        from hansard.state.compare import Side

        reader = self._reader()
        return Side(reader, self._state_at(reader, at), self._backend.unscoped)

    def share(
        self,
        *,
        redact: bool = True,
        hook: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the session as JSON objects for others: a header, then every event.

        Args:
            redact: replace what looks like a credential. Redacted messages are never included.
            hook: called with each object; returns the object to yield, or None to leave it out.
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
    ) -> Iterator[bytes]:
        """Yield the session as the bytes of a file, in pieces, with the events that a fork inherits.

        Args:
            format: "jsonl", which `store.import_session` reads: a header, one line per event, and a last line
                with their number and a checksum. Or a transcript for people, as "markdown" or "html"; the
                HTML page is one file that loads nothing else.
            redacted: replace what looks like a credential, and mark the file as redacted. Redacted messages
                are never included.
            view: the messages of a transcript: "history" for all, or "model".
            events: include other events in a transcript.
        """
        from hansard.transfer.export_file import export

        return export(
            self._reader(),
            self.id,
            format=format,
            redacted=redacted,
            view=view,
            events=events,
        )

    def transcript(
        self,
        count: int = 50,
        *,
        before: int | None = None,
        after: int | None = None,
        at: At | None = None,
        view: View = "history",
        events: bool = True,
        redacted: bool = True,
    ) -> "TranscriptPage":
        """Return a page of the session for people: messages, and one line for each other event.

        Costs the page, not the session. `export` writes the complete transcript as a file.

        Args:
            count: maximum number of entries. Messages that were streamed and never finished are not counted.
            before: the last entries before this seq; default: the last of the session.
            after: the first entries after this seq, instead.
            at: as of this seq, snapshot name or time.
            view: the messages to show: "history" for all, or "model".
            events: include other events than messages.
            redacted: replace what looks like a credential. Redacted messages are never included.
        """
        check_seq("before", before or 0)
        check_seq("after", after or 0)
        if before is not None and after is not None:
            raise ValueError("before and after exclude each other; pass one of them")
        if count < 1:
            raise ValueError(f"count must be >= 1, got {count!r}")
        from hansard.transfer.transcript import Transcript

        reader = self._reader()
        upto = last_seq(reader) if at is None else self._seq_at(reader, at)
        assert upto is not None  # only for no point at all
        shown = Transcript(reader, self.id, upto, redact=redacted, view=view, events=events)
        return shown.page(count, before=before, after=after)

    def _record(self, kind: str, data: dict[str, Any]) -> Event:
        """Append an event of a built-in kind, after a check of its data."""
        raw = codec.encode(data)
        if kinds.read(kind, raw) is None:
            raise InvalidEvent(f"{kind}: invalid data: {data!r:.200}")
        return self._append([_new(kind, raw)])[0]

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
            codec.check_key(key)
        if expected_seq is not None and (type(expected_seq) is not int or expected_seq < 0):
            raise InvalidEvent(f"expected_seq must be a seq >= 0, got {expected_seq!r}")
        if not drafts:
            return []
        if len(drafts) > 1:
            codec.check_batch(len(draft.data) for draft in drafts)
        return self._log.append(AppendRequest(drafts, key, expected_seq))


def handle(backend: Backend, session_id: str | None) -> Session:
    """Return a handle on a session; without an id, one that no session has."""
    if session_id is None:
        from hansard.log.names import new_id

        session_id = backend.prefix + new_id()
    return Session(backend, session_id)


def create(backend: Backend, session_id: str, metadata: Mapping[str, Any]) -> Session:
    """Append the first event of a session that must not exist, and return a handle on it."""
    raw = _metadata(metadata)
    draft = _new(kinds.SESSION_CREATED, b'{"metadata":%b}' % raw if metadata else raw)
    session = Session(backend, session_id)
    backend.log(session_id).append(AppendRequest([draft], new_only=True))
    return session


def _metadata(changes: Mapping[str, Any]) -> bytes:
    """Return metadata as JSON; raise if they contain a credential."""
    raw = codec.encode(changes, "metadata", wrapped=True)
    _refuse_secrets(changes, "metadata")
    return raw


def _new(kind: str, raw: bytes) -> NewEvent:
    return NewEvent(kind, raw, kind in CONTROL)


def _message(message: Mapping[str, Any]) -> NewEvent:
    raw = codec.encode(message, "message", wrapped=True)
    return NewEvent(MESSAGE_ADDED, b"".join((b'{"message":', raw, b"}")), control=False)


def _event(kind: str, data: Mapping[str, Any]) -> NewEvent:
    if kind != MESSAGE_ADDED:
        return _application(kind, data)
    if not isinstance(data, Mapping) or data.keys() != {"message"}:  # type: ignore[redundant-expr]
        raise InvalidEvent(
            f"{MESSAGE_ADDED}: data must have the member 'message' and no other, got {data!r:.60}"
        )
    return _message(data["message"])


def _application(kind: str, data: Mapping[str, Any]) -> NewEvent:
    if not kinds.check_kind(kind).startswith(kinds.APPLICATION) or kind == kinds.APPLICATION:
        known = "is not an application event" if kind in kinds.KINDS else "is unknown"
        raise InvalidEvent(
            f"kind {kind!r} {known}; kinds of application events begin with {kinds.APPLICATION!r}, "
            f"such as {kinds.APPLICATION + 'todo'!r}"
        )
    return NewEvent(kind, codec.encode(data), control=False)


def _refuse_secrets(data: Mapping[str, Any], what: str) -> None:
    if data:
        # Imported here: compiling its patterns takes milliseconds, and most sessions set no metadata.
        from hansard.event import secrets

        secrets.refuse(dict(data), what)
