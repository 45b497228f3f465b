"""Keep sessions as files below a directory.

Above: `store`.  Below: `contract`, `event`, `log`.
Translates between the two vocabularies beneath it: events, which mean something, and records,
which are bytes in a segment. What a file holds and in which order is in docs/format.md.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

from hansard.backend.contents import LocalContents, Refers
from hansard.backend.contract import (
    AUDIT,
    WRONG_CHECKPOINT,
    Append,
    Backend,
    Chunk,
    Compacted,
    Content,
    Cursor,
    Finding,
    Forget,
    Head,
    Health,
    Known,
    Log,
    Record,
    Repaired,
    Stage,
)
from hansard.backend.cursors import LocalCursors
from hansard.backend.records import LocalChunk, event_of, stream_of
from hansard.errors import (
    Closed,
    Damaged,
    DiskFailed,
    HansardError,
    LockTimeout,
    SessionDeleted,
    SessionNotFound,
    UnsafePath,
)
from hansard.event.envelope import Draft, Event
from hansard.event.kinds import MESSAGE_PART, SESSION_FORKED, is_said
from hansard.event.large import Gaps, take_out_all, whole
from hansard.log import disk, format, inspection, names
from hansard.log.chain import Chain, check_chain
from hansard.log.checkpoint import Checkpoint
from hansard.log.checkpoint import write as write_checkpoint
from hansard.log.dictionary import FEWEST, SAMPLE, SMALL, kept, problems
from hansard.log.draft import Appended, Order
from hansard.log.format import Mark
from hansard.log.handle import DELETED, FAILED, Handle
from hansard.log.latest import Latest
from hansard.log.reader import Reader, Tail
from hansard.log.retirement import MOST
from hansard.log.root import Root, deleted
from hansard.log.sealed import Sealed
from hansard.log.segment import open_segment
from hansard.log.writer import Durability, Writer, last_time

#: So many sessions keep their files open; the least recently used of more let go of theirs.
#: Two descriptors each, below the usual limit of 1,024.
MAX_OPEN: Final = 256

#: An active segment of more bytes is sealed and compressed when somebody gets to it.
SEAL: Final = 8 * 1024 * 1024

#: Less than this, compressed, is read in a moment.
CHECKPOINT: Final = 256 * 1024

#: So many findings are listed for one session: what has more is past reading them.
MAX_FINDINGS: Final = 1_000

#: How long a writer waits for the lock before it names the holder and gives up.
LOCK_TIMEOUT: Final = 10.0

#: `wait` looks for another process's events after this long, then after longer, up to the second.
_FIRST_LOOK: Final = 0.001
_LATEST_LOOK: Final = 0.05


class LocalLog(Log):
    """One session's files, shared by all who use the session in this process."""

    __slots__ = (
        "__weakref__",
        "_backend",
        "_controls",
        "_first",
        "_handle",
        "_renewed",
        "_sealed",
        "_writer",
        "session_id",
    )

    def __init__(
        self,
        backend: "LocalBackend",
        root: Root,
        session_id: str,
        name: str,
        *,
        buried: bool = False,
    ) -> None:
        self.session_id = session_id
        self._backend = backend
        self._handle = Handle(root, session_id, name, buried=buried)
        self._writer = Writer(
            self._handle, durability=backend.durability, lock_timeout=backend.lock_timeout
        )
        #: The control records up to an offset, and that offset.
        self._controls: tuple[Reader | None, int, list[Event]] = (None, 0, [])
        #: The control records of the sealed segments, of which log, up to which seq.
        self._sealed: tuple[tuple[str, int], list[Event]] = (("", 0), [])
        #: The first event, and of which log.
        self._first: tuple[str | None, Event | None] = (None, None)
        #: Which files these are from: see `Handle.renewed`.
        self._renewed = 0

    def append(
        self,
        drafts: Sequence[Draft],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
        new_only: bool = False,
        before: int = 0,
        durable: bool = True,
    ) -> list[Event]:
        self._backend.used(self)
        if self._backend.large_content is not None:
            gapped, contents = take_out_all(drafts, self._backend.large_content)
            if contents:
                order = Order(
                    gapped,
                    key=key,
                    expected_seq=expected_seq,
                    new_only=new_only,
                    before=before,
                    durable=durable,
                )
                with self._backend.large.keeping(contents):
                    done = self._writer.append(order)
                return self._events_of(drafts, key, done)
        if len(drafts) == 1 and key is None and expected_seq is None and not new_only:
            draft = drafts[0]
            if not draft.control and draft.time is None:
                one = self._writer.append_one(draft.kind.encode(), draft.data, durable=durable)
                if one is not None:
                    self._look_after()
                    return [Event(one.first, one.time, draft.kind, draft.data)]
        done = self._writer.append(
            Order(
                drafts,
                key=key,
                expected_seq=expected_seq,
                new_only=new_only,
                before=before,
                durable=durable,
            )
        )
        return self._events_of(drafts, key, done)

    def append_all(self, appends: Sequence[Append]) -> list[list[Event] | Exception]:
        self._backend.used(self)
        most = self._backend.large_content
        if most is not None and any(
            len(draft.data) > most for append in appends for draft in append.drafts
        ):
            return super().append_all(appends)  # large content is kept for each append by itself
        orders = [
            Order(
                append.drafts,
                key=append.key,
                expected_seq=append.expected_seq,
                new_only=append.new_only,
                before=append.before,
                durable=append.durable,
            )
            for append in appends
        ]
        self._writer.append_all(orders)
        return [self._answer(append, order) for append, order in zip(appends, orders, strict=True)]

    def _answer(self, append: Append, order: Order) -> list[Event] | Exception:
        """Return what an order's caller is told."""
        try:
            return self._events_of(append.drafts, append.key, self._writer.outcome(order))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this caller's alone
            return error

    def _look_after(self) -> None:
        """Say so if the active segment has grown enough to be sealed."""
        tail = self._handle.tail
        if tail is not None and tail.mark.offset > SEAL and self._backend.caretaker is not None:
            self._backend.caretaker.want(self.session_id)

    def _events_of(self, drafts: Sequence[Draft], key: str | None, done: Appended) -> list[Event]:
        """Return the events that an append has become."""
        self._look_after()
        if done.duplicate:
            return self._range(done.first, done.length)
        return [
            Event(
                done.first + place,
                draft.time or done.time,
                draft.kind,
                draft.data,
                None if place else key,
            )
            for place, draft in enumerate(drafts)
        ]

    def begin_with(self, staged: str) -> None:
        """Let the session, which must not exist, begin with a log that was staged."""
        self._backend.used(self)
        self._writer.begin_with(staged)
        self._look_after()

    def sync(self) -> None:
        self._backend.used(self)
        self._writer.sync()

    def first(self) -> Event | None:
        found = self._look()
        if found is None:
            return None
        reader, tail = found
        chain = self._handle.chain(reader)
        if chain is None and tail.mark.seq == reader.segment.start.seq:
            return None  # all that was ever appended has been cut off
        # The same log may have been opened anew, to write, or have gone on in another segment.
        log = reader.segment.time
        known, event = self._first
        if known != log:
            event = self._find_first(reader, tail, chain)
            self._first = (log, event)
        return event

    def _find_first(self, reader: Reader, tail: Tail, chain: Chain | None) -> Event:
        if chain is None:
            return event_of(reader.first(tail.mark), self._gaps)
        if not reader.segment.first_record:
            return event_of(chain.first(), self._gaps)
        first = event_of(format.decode_first(reader.segment.first_record), self._gaps)
        # Of a fork the data are needed, and it is a control event; of others, nobody asks for them.
        if first.kind == SESSION_FORKED:
            return next(e for e in self._sealed_controls(reader) if e.seq == first.seq)
        return first

    def head(self) -> Head | None:
        found = self._look()
        if found is None:
            return None
        reader, tail = found
        updated = tail.time or last_time(reader, tail.mark)
        chain = self._handle.chain(reader)
        size = tail.size if chain is None else tail.size + chain.size()
        return Head(tail.mark.seq, reader.segment.time, updated, size)

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        found = self._look()
        if found is None:
            return
        reader, tail = found
        upto = tail.mark.seq if upto is None else min(upto, tail.mark.seq)
        begin = reader.segment.start.seq
        chain = self._handle.chain(reader)
        if chain is not None and after < begin:
            for piece, behind in chain.forwards(after, upto):
                # Not beyond: what was sealed after this reading began may have been joined to it.
                yield LocalChunk(piece, behind, min(upto, begin), self._gaps)
            if upto <= begin:
                return
        start = reader.locate(after, tail.mark) if after > begin else None
        for piece in reader.forwards(start or reader.segment.start, tail.mark):
            if piece.end.seq > after:
                yield LocalChunk(piece, after, upto, self._gaps)
            if piece.end.seq >= upto:
                return

    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        found = self._look()
        if found is None:
            return
        reader, tail = found
        end = tail.mark
        begin = reader.segment.start.seq
        upto = end.seq if upto is None else min(upto, end.seq)
        chain = self._handle.chain(reader)
        if chain is None or upto > begin:
            if upto < end.seq:
                end = reader.mark_behind(upto, end)
            for piece in reader.backwards(end):
                yield LocalChunk(piece, after, upto, self._gaps)
                if piece.start.seq <= after:
                    return
        if chain is not None:
            for piece, last in chain.backwards(min(upto, begin), after):
                yield LocalChunk(piece, after, last, self._gaps)

    def controls(self, upto: int | None = None) -> list[Event]:
        found = self._look()
        if found is None:
            return []
        reader, tail = found
        known_reader, offset, events = self._controls
        if known_reader is not reader:
            offset, events = 0, self._sealed_controls(reader)
            self._controls = (reader, offset, events)
        if tail.ctl > offset:
            new = reader.controls(tail.ctl, offset)
            events = events + [event_of(line, self._gaps) for line in new]
            self._controls = (reader, tail.ctl, events)
        if upto is None:
            upto = tail.mark.seq
        return [event for event in events if event.seq <= upto]

    def _sealed_controls(self, reader: Reader) -> list[Event]:
        """Return the control events of the sealed segments, which are the same for ever."""
        chain = self._handle.chain(reader)
        if chain is None:
            return []
        upto, events = self._sealed
        if upto != (reader.segment.time, chain.upto):
            known = self._handle.checkpoint(reader)
            lines, after = [], 0
            if known is not None and known.seq <= chain.upto:
                lines, after = format.decode_lines(known.controls), known.seq
            lines += chain.controls(after)
            events = [event_of(line, self._gaps) for line in lines]
            self._sealed = ((reader.segment.time, chain.upto), events)
        return events

    def wait(self, after: int, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        pause = _FIRST_LOOK
        while True:
            found = self._look()
            if found is not None and found[1].mark.seq > after:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LATEST_LOOK)

    def busy(self) -> bool:
        self._backend.used(self)
        return self._handle.is_locked()

    def compact(
        self,
        forget: Forget,
        *,
        level: int,
        progress: Callable[[int, int], None] | None = None,
        state: Callable[[int], bytes] | None = None,
    ) -> Compacted:
        self._backend.used(self)
        self._writer.seal()
        found = self._look()
        if found is None:
            raise SessionNotFound(f"no session {self.session_id!r} in this store")
        chain = self._handle.chain(found[0])
        if chain is None:
            return Compacted(0, 0, 0, 0)
        from hansard.backend.compaction import Compaction, locked

        directory = chain.open_directory()
        try:
            lock = locked(directory, self._handle.root.path_of(self._handle.name, names.COMPACTION))
            try:
                done = Compaction(
                    directory,
                    chain.again(),
                    session_id=self.session_id,
                    created=found[0].segment.time,
                    path=self._handle.root.path_of(self._handle.name),
                    forget=forget,
                    level=level,
                    progress=progress,
                    gaps=self._gaps,
                    dictionary=self._backend.dictionary,
                ).run()
                if done.segments:
                    self._save_checkpoint(directory, found[0], chain.again(), state)
                return done
            finally:
                lock.release()
        finally:
            disk.close(directory)

    def pending(self, forget: Forget) -> Compacted:
        found = self._look()
        if found is None:
            raise SessionNotFound(f"no session {self.session_id!r} in this store")
        reader, tail = found
        start = reader.segment.start.seq
        active = tail.size if tail.mark.seq > start else 0
        blank = sum(start < seq <= tail.mark.seq for seq in forget.seqs)
        if forget.before > start + 1:
            pieces = self.read(start, forget.before - 1)
            dropped = (event for chunk in pieces for event in chunk.events())
            blank += sum(is_said(event.kind) and event.seq not in forget.seqs for event in dropped)
        chain = self._handle.chain(reader)
        if chain is not None:
            from hansard.backend.compaction import Compaction

            directory = chain.open_directory()
            try:
                sealed = Compaction(
                    directory,
                    chain.again(),
                    session_id=self.session_id,
                    created=reader.segment.time,
                    path=self._handle.root.path_of(self._handle.name),
                    forget=forget,
                    level=0,
                    progress=None,
                    gaps=self._gaps,
                    dictionary=self._backend.dictionary,
                ).plan()
            finally:
                disk.close(directory)
            size = active + sealed.before
            return Compacted(size, size, sealed.segments + bool(active), blank + sealed.blanked)
        return Compacted(active, active, int(active > 0), blank)

    def _save_checkpoint(
        self, directory: int, reader: Reader, chain: Chain, state: Callable[[int], bytes] | None
    ) -> None:
        """Write down what the sealed segments add up to, if they are many enough for it to matter."""
        if chain.size() < CHECKPOINT:
            return
        lines = [format.control_line(line) for line in chain.controls()]
        saved = b"" if state is None else state(chain.upto)
        found = Checkpoint(self.session_id, reader.segment.time, chain.upto, b"".join(lines), saved)
        # It is only a shortcut: without it everything is as it was, a little slower.
        with suppress(OSError):
            write_checkpoint(directory, found)

    def is_small(self, *, sealed: bool = False) -> bool:
        """Say whether a session has something to compact, and little. `sealed`: or had."""
        try:
            found = self._look()
        except HansardError:
            return False  # it shows when it is compacted
        if found is None:
            return False
        reader, tail = found
        new = tail.mark.seq > reader.segment.start.seq
        return (new or (sealed and self._handle.chain(reader) is not None)) and tail.size < SMALL

    def checkpoint(self) -> tuple[int, bytes] | None:
        found = self._look()
        if found is None or self._handle.chain(found[0]) is None:
            return None
        known = self._handle.checkpoint(found[0])
        if known is None or not known.state or known.seq > found[1].mark.seq:
            return None
        return known.seq, known.state

    def salvage(self) -> Iterator[Event | Finding]:
        try:
            if self._look() is None:
                return
        except Damaged:
            pass  # which is what this is for
        reader = self._handle.reader
        chain = None if reader is None else self._handle.chain(reader)
        if chain is not None:
            for piece, behind in chain.forwards(0, chain.upto):
                for line in piece.lines(format.decode_lines):
                    if behind < line.seq <= chain.upto:
                        yield event_of(line, self._gaps)
        found = (
            # Not even the header is whole; the lines behind it may be.
            inspection.salvage_bytes(self._handle.raw())
            if reader is None
            else inspection.salvage(reader.segment)
        )
        path = self._handle.path
        for item in found:
            if isinstance(item, inspection.Finding):
                yield Finding("damage", path, *item)
            else:
                yield event_of(item, self._gaps)

    def records(self) -> Iterator[Record]:
        from hansard.backend import dumping

        handle = self._handle
        directory = handle.root.open_session(self.session_id, handle.name)
        if directory is None:
            return
        try:
            yield from dumping.records(
                directory, handle.root.path_of(handle.name), handle.root.dictionary
            )
        finally:
            disk.close(directory)

    def verify(self) -> list[Finding]:
        try:
            found = self._look()
        except Damaged as error:
            return self._list_damage(error)
        if found is None:
            raise SessionNotFound(f"no session {self.session_id!r} in this store")
        reader = found[0]
        try:
            # What the disk holds, not what the cache remembers: after a failed sync they differ, and
            # what was believed of the end may not be so.
            self._forget_cached(reader)
            tail = self._handle.look_anew(reader)
            for piece in reader.forwards(reader.segment.start, tail.mark):
                inspection.committed(reader.segment, piece.start, piece.data, piece.end)
            chain = self._handle.chain(reader)
            if chain is not None:
                check_chain(chain, reader, stream_of)
            for event in self.controls():
                event.data  # noqa: B018 - decoded, to see that it can be
        except Damaged as error:
            return self._list_damage(error)
        notes = []
        if tail.size > tail.mark.offset:
            length = tail.size - tail.mark.offset
            reason = "an unfinished append, as a crash leaves one; the next append ends it"
            notes.append(Finding("note", self._handle.path, tail.mark.offset, length, reason))
        if chain is not None:
            notes += self._verify_checkpoint(reader, tail, chain)
        self._clear_failure(tail)
        return notes

    def _verify_checkpoint(self, reader: Reader, tail: Tail, chain: Chain) -> list[Finding]:
        """Compare the checkpoint's control records with the log's; its state is for others to compare."""
        found = self._handle.look_at_checkpoint(reader)
        if isinstance(found, Checkpoint) and found.seq > tail.mark.seq:
            found = "is ahead of the log"
        if isinstance(found, str):
            hint = "it is passed over, and the next compaction writes another"
            note = Finding("note", self.checkpoint_file(), 0, 0, f"this checkpoint {found}: {hint}")
            return [note] if found else []
        said = format.decode_lines(found.controls)
        right = [line for line in chain.controls() if line.seq <= found.seq]
        if [format.control_line(line) for line in said] == list(map(format.control_line, right)):
            return []
        reason = "this checkpoint has other control records than the log"
        return [Finding("damage", self.checkpoint_file(), 0, 0, f"{reason}; {WRONG_CHECKPOINT}")]

    def checkpoint_file(self) -> str:
        return self._handle.root.path_of(self._handle.name, names.CHECKPOINT)

    def drop_checkpoint(self) -> None:
        self._backend.used(self)
        self._handle.drop_checkpoint()
        self._forget_known()

    def taken_out(self) -> Iterator[Event]:
        found = self._look()
        chain = None if found is None else self._handle.chain(found[0])
        for part, behind in () if chain is None else chain.parts():
            segment = part.reader.segment
            if not isinstance(segment, Sealed):
                continue
            blank, before = set(segment.index.blank), segment.index.blank_before
            if not (blank or before):
                continue
            for piece in part.reader.forwards(part.start, part.end):
                for line in piece.lines(format.decode_lines):
                    if behind < line.seq and (
                        line.seq in blank or (line.seq < before and is_said(line.kind))
                    ):
                        yield event_of(line, self._gaps)

    def _forget_cached(self, reader: Reader) -> None:
        try:
            disk.forget_cached(reader.segment.descriptor)
        except OSError as error:
            raise disk.explain(error, "read", self._handle.path) from error

    def _clear_failure(self, tail: Tail) -> None:
        root = self._handle.root
        if root.read_only or not (FAILED in tail.shut or self.session_id in root.failed):
            return
        self._writer.note("verified", removes=FAILED)
        root.failed.discard(self.session_id)

    def _list_damage(self, error: Damaged) -> list[Finding]:
        """Return all damage of the segment, of which reading has met the first."""
        reader = self._handle.reader
        if reader is None:
            # Not even the header is whole; the lines behind it may be.
            findings = inspection.findings(Mark(0, 0, 0), self._handle.raw())
        else:
            findings = inspection.all_findings(reader.segment)
        listed = islice(findings, MAX_FINDINGS)
        found = [Finding("damage", error.path, *finding) for finding in listed]
        return found or [Finding("damage", error.path, error.offset, 0, error.reason)]

    def repair(self, *, known: Known | None = None, missing: bool = False) -> Repaired:
        self._backend.used(self)
        from hansard.backend.repair import repair

        root = self._handle.root
        try:
            done = repair(
                root,
                self.session_id,
                self._handle.name,
                known=known or Known(),
                missing=missing,
                timeout=self._backend.lock_timeout,
            )
        finally:
            # Also after an error: other files may have their names by now.
            self.let_go()
        if done.findings:
            # All that is left was written anew, and synced.
            root.failed.discard(self.session_id)
        return done

    def let_go(self) -> None:
        """Close the files unless they are in use; the next call opens them again."""
        self._writer.let_go()
        self._forget_known()

    def delete(self, expected_seq: int | None, timeout: float | None) -> None:
        """Shut the log with a note, then move the directory (F-36)."""
        root = self._handle.root
        name = self._handle.name
        moved = []
        try:
            self._writer.note("deleted", adds=DELETED, expected_seq=expected_seq, timeout=timeout)
            # The note decides, so it is deleted by now; who meets it there moves it.
            with suppress(LockTimeout):
                # Somebody may have restored it since, and be writing: then it stays where it is.
                self._writer.while_shut(DELETED, lambda: moved.append(root.to_trash(name)))
                root.sync_move(name)
        finally:
            # Also after an error: the directory may have moved away from under these files.
            self.let_go()
        if moved == [False]:
            raise deleted(self.session_id)

    def restore(self) -> None:
        """Move the directory back, then open the log with a note."""
        handle = self._handle
        root = handle.root
        if root.in_trash(handle.name):
            found = root.from_trash(handle.name)
            root.sync_move(handle.name)
        else:
            found = self._is_deleted()
        if not found:
            raise SessionNotFound(f"no session {self.session_id!r} in the trash")
        self._writer.note("restored", removes=DELETED)

    def bury(self) -> bool:
        """Move the directory of a deleted session that never reached the trash; False if it is none."""
        if not self._is_deleted():
            return False
        root = self._handle.root
        name = self._handle.name
        moved: list[bool] = []
        try:
            # Only what is still deleted: somebody may be restoring it.
            self._writer.while_shut(DELETED, lambda: moved.append(root.to_trash(name)))
            root.sync_move(name)
        except SessionDeleted:
            return True  # another was faster
        finally:
            self.let_go()
        return bool(moved)

    def _is_deleted(self) -> bool:
        """Say whether the log ends as a deleted one that never reached the trash (F-36)."""
        try:
            self._look()
        except SessionDeleted:
            return True
        return False

    def _look(self) -> tuple[Reader, Tail] | None:
        self._backend.used(self)
        found = self._handle.refresh()
        if self._renewed != self._handle.renewed:
            self._renewed = self._handle.renewed
            self._forget_known()
        return found

    def _forget_known(self) -> None:
        self._controls = (None, 0, [])
        self._sealed = (("", 0), [])
        self._first = (None, None)

    def _range(self, first: int, count: int) -> list[Event]:
        return [
            whole(event)
            for chunk in self.read(first - 1, first - 1 + count)
            for event in chunk.events()
        ]

    def _gaps(self, references: object) -> Gaps:
        return self._backend.large.gaps(references, self._handle.path)


class LocalBackend(Backend):
    """A directory of sessions."""

    __slots__ = (
        "__weakref__",
        "_ancestors",
        "_audit",
        "_closed",
        "_cursors",
        "_generation",
        "_ids",
        "_latest",
        "_logs",
        "_mutex",
        "_recent",
        "_root",
        "caretaker",
        "dictionary",
        "durability",
        "large",
        "large_content",
        "lock_timeout",
        "read_only",
        "where",
    )

    durability: Durability

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "sync",
        lock_timeout: float = LOCK_TIMEOUT,
        large_content: int | None = None,
    ) -> None:
        self._root = Root(path, create=create, read_only=read_only)
        self._cursors = LocalCursors(self._root, self.check_open, syncs=durability == "sync")
        self.where = self._root.path
        self.read_only = read_only
        self.durability = durability
        self.lock_timeout = lock_timeout
        self.large_content = large_content
        self.dictionary = Latest(self._root, lock_timeout)
        self.large = LocalContents(self._root, self.check_open, lock_timeout)
        self._closed = False
        self._generation = disk.generation
        self._mutex = threading.RLock()
        #: One log per session, shared by all handles on it, so that their appends share syncs.
        self._logs: WeakValueDictionary[str, LocalLog] = WeakValueDictionary()
        #: Sessions from which others were forked: a log of its own for each, which may lie in the trash.
        self._ancestors: WeakValueDictionary[str, LocalLog] = WeakValueDictionary()
        self._audit: LocalLog | None = None
        #: The ids of sessions by the names of their directories, for those who ask again and again.
        self.caretaker = None
        self._ids: dict[str, str] = {}
        #: Those that may have files open, the most recently used last.
        self._recent: OrderedDict[LocalLog, None] = OrderedDict()
        self._latest: LocalLog | None = None

    def _guard(self) -> threading.RLock:
        """Return the mutex; after a fork a new one, since a thread of the parent may hold the old."""
        if self._generation != disk.generation:
            with disk.fork_guard:
                if self._generation != disk.generation:
                    self._mutex = threading.RLock()
                    self._generation = disk.generation
        return self._mutex

    def log(self, session_id: str) -> Log:
        names.check_id(session_id)
        with self._guard():
            found = self._logs.get(session_id)
            if found is None:
                name = self._name_of(session_id)
                found = self._logs[session_id] = LocalLog(self, self._root, session_id, name)
            return found

    def ancestor(self, session_id: str) -> Log:
        names.check_id(session_id)
        with self._guard():
            found = self._ancestors.get(session_id)
            if found is None:
                name = self._name_of(session_id)
                found = LocalLog(self, self._root, session_id, name, buried=True)
                self._ancestors[session_id] = found
            return found

    def _name_of(self, session_id: str) -> str:
        """Return the name of a session's directory."""
        # What `ids` or `trash` calls by its name, for want of its id, must be found under it.
        nameless = names.is_hashed(session_id) and (
            self._root.holds_log(session_id) or self._root.in_trash(session_id)
        )
        if nameless and self._true_id(session_id) is None:
            return session_id
        return names.encode(session_id)

    def check_open(self) -> None:
        """Raise if the store was closed: what cannot be read must not look empty."""
        if self._closed:
            raise Closed(f"{self.where}: the store was closed; open it again")

    def used(self, log: LocalLog) -> None:
        """Note that a log is about to use its files, and close those of one unused for longest."""
        if self._closed:
            self.check_open()
        # Most often the same one again. A race here only misjudges which is the oldest.
        if self._latest is log:
            return
        with self._guard():
            self._latest = log
            self._recent.pop(log, None)
            self._recent[log] = None
            oldest = None
            if len(self._recent) > MAX_OPEN:
                oldest = self._recent.popitem(last=False)[0]
        if oldest is not None:
            oldest.let_go()

    def begin_with(self, session_id: str, staged: str) -> None:
        """Let a session, which must not exist, begin with a log that was staged."""
        self._local(session_id).begin_with(staged)

    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        names.check_id(session_id)
        self.check_open()
        # Here, because few programs move sessions from store to store.
        from hansard.backend.staging import LocalStage

        return LocalStage(self, self._root, session_id, before)

    def audit(self) -> Log:
        with self._guard():
            if self._audit is None:
                self._audit = LocalLog(self, self._root, AUDIT, names.AUDIT)
            return self._audit

    def ids(self) -> Iterator[str]:
        self.check_open()
        return self._ids_of(self._root.session_names())

    def trash(self) -> Iterator[str]:
        self.check_open()
        return self._trashed()

    def _trashed(self) -> Iterator[str]:
        moved = set(self._ids_of(self._root.trash_names()))
        yield from moved
        # Where a crash came between the two steps of a deletion, the note decides (F-36).
        for session_id in self.ids():
            try:
                self.log(session_id).head()
            except SessionDeleted:
                if session_id not in moved:
                    yield session_id
            except HansardError:
                continue  # it cannot be read, so nothing says that it was deleted

    def sizes(self) -> dict[str, int]:
        self.check_open()
        stamps = dict(self._root.stamps())
        unknown = [name for name in stamps if name not in self._ids]
        self._ids.update(
            (name, session_id) for name in unknown for session_id in self._ids_of([name])
        )
        ids = self._ids
        return {ids[name]: stamp for name, stamp in stamps.items() if name in ids}

    def _ids_of(self, found: Iterable[str]) -> Iterator[str]:
        for name in found:
            try:
                session_id = names.decode(name)
            except ValueError:
                continue  # no session's name, so not ours
            if session_id is None:
                session_id = self._true_id(name) or name
            yield session_id

    def _true_id(self, name: str) -> str | None:
        """Return the id of a session whose name does not tell it; None if its log does not."""
        try:
            directory = self._root.open_session(name, name, buried=True)
            if directory is None:
                return None
            opened = disk.Open(directory)
            path = self._root.path_of(name, names.LOG)
            segment = open_segment(opened.descriptor, path, None, writable=False)
        except HansardError:
            return None
        # A log that was copied here from under another name is not this one's.
        if segment is None or names.encode(segment.session_id) != name:
            return None
        return segment.session_id

    def delete(
        self, session_id: str, *, expected_seq: int | None = None, timeout: float | None = None
    ) -> None:
        log = self._local(session_id)
        with self.large.moving(), self.dictionary.moving():
            log.delete(expected_seq, timeout)

    def restore(self, session_id: str) -> None:
        log = self._local(session_id)
        with self.large.moving(), self.dictionary.moving():
            log.restore()

    def purge(self, session_id: str) -> None:
        log = self._local(session_id)
        name = self._name_of(session_id)
        self._root.check_writable()
        with (
            self.large.moving(),
            self.dictionary.moving(),
            self.dictionary.forgetting(self._said_first(session_id)),
        ):
            purged = self._root.purge(name) or (log.bury() and self._root.purge(name))
        if not purged:
            raise SessionNotFound(f"no session {session_id!r} in the trash")
        # Whatever was wrong with it, the next session of this name has nothing to do with it.
        self._root.failed.discard(session_id)
        log.let_go()

    def _said_first(self, session_id: str) -> list[bytes]:
        """Return what a dictionary may have been made of, of a session that is to be forgotten."""
        if not kept(self._root):
            return []
        texts: list[bytes] = []
        size = 0
        try:
            for chunk in self.ancestor(session_id).read():
                for event in chunk.events():
                    if event.kind != MESSAGE_PART:
                        texts.append(event.raw)
                        size += len(event.raw)
                if size >= SAMPLE:
                    break
        except HansardError:
            return [bytes(MOST + 1)]  # it cannot be read, so everything is in doubt
        return texts

    def _local(self, session_id: str) -> LocalLog:
        log = self.log(session_id)
        self.check_open()
        assert isinstance(log, LocalLog)  # `log` makes no others
        return log

    def cursor(self, name: str, *, timeout: float = 0.0) -> Cursor:
        return self._cursors.open(name, timeout)

    def cursors(self) -> list[str]:
        return self._cursors.names()

    def drop_cursor(self, name: str) -> bool:
        return self._cursors.drop(name)

    def contents(self) -> list[Content]:
        return self.large.listing()

    def collect(self, refers: Refers, *, dry_run: bool = False) -> list[Content]:
        return self.large.collect(refers, self._all_ids, self.ancestor, dry_run=dry_run)

    def population(self) -> object:
        self.check_open()
        return self._root.population()

    def _all_ids(self) -> list[str]:
        """Return the ids of all sessions, also of those in the trash."""
        both = (self._root.session_names(), self._root.trash_names())
        return sorted({session_id for names in both for session_id in self._ids_of(names)})

    def learn(self, session_ids: Iterable[str], sample: Callable[[str], bytes]) -> bool:
        self.check_open()
        try:
            return self._learn(list(session_ids), sample)
        except (DiskFailed, LockTimeout, UnsafePath):
            return False  # without one, everything is only larger

    def _learn(self, session_ids: list[str], sample: Callable[[str], bytes]) -> bool:
        judged = False
        if self.dictionary.doubted():
            with self.dictionary.training():
                judged = self.dictionary.judge(map(sample, _spread(sorted(self.ids()))))
        if self.dictionary.name():
            return judged
        # Those that have been compacted without one had too little in common, or were too few. But those that
        # need one that was retired are written anew.
        anew = bool(self.dictionary.retired())
        small = [found for found in session_ids if self._local(found).is_small(sealed=anew)]
        if len(small) >= FEWEST:
            with self.dictionary.training():
                self.dictionary.learn(map(sample, _spread(small)))
        return judged

    def unlearn(self) -> int:
        self.check_open()
        return self.dictionary.remove_unneeded()

    def shared_findings(self) -> list[Finding]:
        self.check_open()
        hint = "sessions that need it say so if both of its files are lost"
        return [
            Finding("note", path, 0, 0, f"this dictionary is {reason}; {hint}")
            for path, reason in problems(self._root)
        ]

    def health(self) -> Health:
        self.check_open()
        free = self._root.probe()
        return Health(self.where, self.durability, not self.read_only, free)

    def close(self) -> None:
        if self.caretaker is not None:
            self.caretaker.stop()
        self._closed = True
        with self._guard():
            logs = [*self._logs.values(), *self._ancestors.values()]
            if self._audit is not None:
                logs.append(self._audit)
            self._recent.clear()
            self._latest = None
        for log in logs:
            log.let_go()
        self._cursors.close()
        self._root.close()


def _spread(session_ids: list[str]) -> list[str]:
    """Return so many of them as are enough to tell what is common, from all over."""
    step = max(1, -(-len(session_ids) // (4 * FEWEST)))
    return session_ids[::step]
