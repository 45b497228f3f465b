"""One session's files: events ↔ records."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from hansard.backend.contract import (
    DUPLICATE,
    INTERNAL,
    WRONG_CHECKPOINT,
    AppendRequest,
    CompactionFilter,
    CompactionResult,
    Finding,
    InternalLog,
    Known,
    MakeFilter,
    Record,
    RepairResult,
    attempt,
)
from hansard.backend.local.records import KnownRecords, LocalReader, Look, event_of, stream_of
from hansard.backend.local.staging import LocalStage
from hansard.clock import Backoff
from hansard.errors import Damaged, InvalidEvent, LockTimeout, SessionDeleted, SessionNotFound
from hansard.event import codec
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import is_content
from hansard.log import disk, format, names, segment_scan
from hansard.log.checkpoint import Checkpoint
from hansard.log.checkpoint import write as write_checkpoint
from hansard.log.format import LogEnd
from hansard.log.sealed_chain import SealedChain, SealedPart, check_chain
from hansard.log.segment_reader import SegmentReader
from hansard.log.session_files import DELETED, FAILED, SessionFiles
from hansard.log.store_directory import StoreDirectory
from hansard.log.write_batch import PendingAppend
from hansard.log.writer import LogWriter

if TYPE_CHECKING:
    from hansard.backend.local.backend import LocalBackend
    from hansard.backend.local.compact import Compaction

#: An active segment of more bytes is sealed and compressed when somebody gets to it.
SEAL: Final = 8 * 1024 * 1024

#: Less than this, compressed, is read in a moment.
CHECKPOINT: Final = 256 * 1024

#: So many findings are listed for one session: what has more is past reading them.
MAX_FINDINGS: Final = 1_000


class LocalLog(InternalLog):
    """One session's files, shared by all who use the session in this process."""

    descriptors = disk.SESSION_FILES

    def __init__(
        self,
        backend: "LocalBackend",
        root: StoreDirectory,
        session_id: str,
        name: str,
        *,
        from_trash: bool = False,
    ) -> None:
        self.session_id = session_id
        self._backend = backend
        self._files = SessionFiles(root, session_id, name, from_trash=from_trash)
        self._writer = LogWriter(
            self._files, durability=backend.durability, lock_timeout=backend.lock_timeout
        )
        self._known = KnownRecords()
        #: Which files these are from: see `SessionFiles.renewed`.
        self._renewed = 0

    def append(self, request: AppendRequest) -> list[Event]:
        self._backend.used(self)
        events = request.events
        if (
            len(events) == 1
            and request.key is None
            and request.expected_seq is None
            and not request.new_only
        ):
            new = events[0]
            if not new.control and new.time is None:
                one = self._writer.append_one(new.kind.encode(), new.data, durable=request.durable)
                if one is not None:
                    self._look_after()
                    seq, stamp = one
                    return [Event(seq, stamp, new.kind, new.data)]
        (append,) = self._writer.append((request,))
        return self._events_of(append)

    def append_many(self, requests: Sequence[AppendRequest]) -> list[list[Event] | Exception]:
        self._backend.used(self)
        return [attempt(self._events_of, append) for append in self._writer.append(requests)]

    def _look_after(self) -> None:
        """Schedule compaction if the active segment exceeds SEAL bytes."""
        tail = self._files.end
        compactor = self._backend.compactor
        if (
            tail is not None
            and tail.position.offset > SEAL
            and compactor is not None
            and not self.session_id.startswith(INTERNAL)
        ):
            compactor.schedule(self.session_id)

    def _events_of(self, append: PendingAppend) -> list[Event]:
        """Return the events that an append has become."""
        done = append.outcome()
        self._look_after()
        if done.duplicate:
            return self._range(done.first, done.length)
        key = append.request.key
        return [
            Event(
                done.first + place,
                new.time or done.time,
                new.kind,
                new.data,
                None if place else key,
            )
            for place, new in enumerate(append.request.events)
        ]

    def begin_with(self, staged: str) -> None:
        """Let the session, which must not exist, begin with a log that was staged."""
        self._backend.used(self)
        self._writer.begin_with(staged)
        self._look_after()

    def replace(self, events: Sequence[NewEvent], *, expected_seq: int) -> None:
        self._backend.used(self)
        stage = LocalStage(self._backend, self._files.root, self.session_id, expected_seq)
        try:
            stage.append(events)
            self._writer.replace(stage.finish(), expected_seq)
        except BaseException:
            stage.discard()
            raise

    def drop(self) -> bool:
        self._backend.used(self)
        root, name = self._files.root, self._files.name
        root.check_writable()
        there = root.holds_log(name)
        dropped = root.purge(name)
        root.failed.discard(self.session_id)
        self.release_files()
        return there and dropped

    def sync(self) -> None:
        self._backend.used(self)
        self._writer.sync()

    def reader(self) -> LocalReader:
        return LocalReader(self._files, self._look_to_read, self._report)

    def _look_to_read(self) -> Look | None:
        found = self._look()
        return None if found is None else Look(*found, self._known)

    def wait(self, after: int, timeout: float) -> bool:
        backoff = Backoff(timeout)
        while True:
            found = self._look()
            if found is not None and found[1].position.seq > after:
                return True
            if not backoff.sleep():
                return False

    def is_busy(self) -> bool:
        self._backend.used(self)
        return self._files.is_locked()

    def compact(
        self,
        filter: CompactionFilter,
        *,
        level: int,
        progress: Callable[[int, int], None] | None = None,
        state: Callable[[int], bytes] | None = None,
        wait: bool = True,
        dry_run: bool = False,
    ) -> CompactionResult:
        self._backend.used(self)
        if dry_run:
            return self._plan(filter)
        self._writer.seal()
        with self.marked():
            try:
                return self._compact(filter, level=level, progress=progress, state=state, wait=wait)
            finally:
                # What it read to make a checkpoint must not stay in memory.
                self._files.forget_chain()

    def _compact(
        self,
        filter: CompactionFilter,
        *,
        level: int,
        progress: Callable[[int, int], None] | None,
        state: Callable[[int], bytes] | None,
        wait: bool,
    ) -> CompactionResult:
        found = self._look()
        if found is None:
            raise SessionNotFound(f"no session {self.session_id!r} in this store")
        chain = self._files.chain(found[0])
        if chain is None:
            return CompactionResult(0, 0, 0, 0)
        from hansard.backend.local.compact import locked

        directory = chain.open_directory()
        try:
            path = self._files.root.path_of(self._files.name, names.COMPACTION)
            lock = locked(directory, path, self._backend.lock_timeout if wait else 0.0)
            try:
                # The compactor that was waited for may have sealed more.
                found = self._look() or found
                chain = self._files.chain(found[0]) or chain
                done = self._compaction(directory, found[0], chain, filter, level, progress).run()
                if done.segments:
                    self._save_checkpoint(directory, found[0], chain.again(), state)
                return done
            finally:
                lock.release()
        finally:
            disk.close(directory)

    def _plan(self, filter: CompactionFilter) -> CompactionResult:
        """Return what a compaction would rewrite."""
        found = self._look()
        if found is None:
            raise SessionNotFound(f"no session {self.session_id!r} in this store")
        reader, tail = found
        start = reader.segment.start.seq
        active = tail.size if tail.position.seq > start else 0
        blank = sum(start < seq <= tail.position.seq for seq in filter.seqs)
        if filter.before > start + 1:
            pieces = self.reader().read(start, filter.before - 1)
            dropped = (event for chunk in pieces for event in chunk.events())
            blank += sum(
                is_content(event.kind) and event.seq not in filter.seqs for event in dropped
            )
        chain = self._files.chain(reader)
        if chain is not None:
            directory = chain.open_directory()
            try:
                sealed = self._compaction(directory, reader, chain, filter).plan()
            finally:
                disk.close(directory)
            size = active + sealed.before
            return CompactionResult(
                size, size, sealed.segments + bool(active), blank + sealed.blanked
            )
        return CompactionResult(active, active, int(active > 0), blank)

    def _compaction(
        self,
        directory: int,
        reader: SegmentReader,
        chain: SealedChain,
        filter: CompactionFilter,
        level: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> "Compaction":
        from hansard.backend.local.compact import Compaction

        return Compaction(
            directory,
            chain.again(),
            session_id=self.session_id,
            created=reader.segment.time,
            path=self._files.root.path_of(self._files.name),
            filter=filter,
            level=level,
            progress=progress,
        )

    def _save_checkpoint(
        self,
        directory: int,
        reader: SegmentReader,
        chain: SealedChain,
        state: Callable[[int], bytes] | None,
    ) -> None:
        """Write down what the sealed segments add up to, if they are many enough for it to matter."""
        if chain.size() < CHECKPOINT:
            return
        previous = reader.segment.previous
        assert previous is not None  # there is a chain
        lines = [format.control_line(line) for line in chain.controls()]
        saved = b"" if state is None else state(chain.upto)
        found = Checkpoint(
            self.session_id,
            reader.segment.time,
            chain.upto,
            previous.crc,
            b"".join(lines),
            saved,
        )
        # It is only a shortcut: without it everything is as it was, a little slower.
        with suppress(OSError):
            write_checkpoint(directory, found)

    def salvage(self) -> Iterator[Event | Finding]:
        try:
            if self._look() is None:
                return
        except Damaged:
            pass  # which is what this is for
        reader = self._files.reader
        chain = None if reader is None else self._files.chain(reader)
        if chain is not None:
            for piece, behind in chain.forwards(0, chain.upto):
                for line in piece.lines(format.decode_lines):
                    if behind < line.seq <= chain.upto:
                        yield event_of(line)
        # If not even the header is whole, the lines behind it may be.
        segment = self._files.raw() if reader is None else reader.segment
        found = () if segment is None else segment_scan.salvage(segment)
        path = self._files.path
        for item in found:
            if isinstance(item, segment_scan.Finding):
                yield Finding("damage", path, *item)
            else:
                yield event_of(item)

    def records(self) -> Iterator[Record]:
        from hansard.backend.local import verify as dumping

        files = self._files
        directory = files.root.open_session(self.session_id, files.name)
        if directory is None:
            return
        try:
            yield from dumping.records(directory, files.root.path_of(files.name))
        finally:
            disk.close(directory)

    def verify(self, filter: MakeFilter | None = None) -> list[Finding]:
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
            tail = self._files.read_end_again(reader)
            for piece in reader.forwards(reader.segment.start, tail.position):
                segment_scan.committed(reader.segment, piece.start, piece.data, piece.end)
            # Files opened again: frames that are in memory tell nothing of the disk.
            self._files.forget_chain()
            chain = self._files.chain(reader)
            if chain is not None:
                check_chain(chain, reader, stream_of)
            for event in self.reader().controls():
                event.data  # noqa: B018 - decoded, to see that it can be
            notes = _limited(self._look_at_lines(reader, tail, chain))
        except Damaged as error:
            return self._list_damage(error)
        if tail.size > tail.position.offset:
            length = tail.size - tail.position.offset
            reason = "an unfinished append, as a crash leaves one; the next append ends it"
            notes.append(Finding("note", self._files.path, tail.position.offset, length, reason))
        if chain is not None:
            notes += self._verify_checkpoint(reader, chain)
            if filter is not None:
                notes += self._verify_erased(chain, filter())
        self._clear_failure(tail)
        return notes

    def _look_at_lines(
        self, reader: SegmentReader, tail: LogEnd, chain: SealedChain | None
    ) -> Iterator[Finding]:
        """Yield what reading passes over: discarded fragments (F-29), and keys that occur twice (F-13)."""
        sealed = [] if chain is None else [part for part, _ in chain.parts()]
        for part in (*sealed, SealedPart(reader, tail.position)):
            path = part.reader.segment.path
            for piece in part.reader.forwards(part.start, part.end):
                for fragment in segment_scan.discarded(piece.data):
                    reason = (
                        f"{fragment.reason}, as a crash leaves one; none of it was acknowledged"
                    )
                    yield Finding("note", path, fragment.offset, fragment.length, reason)
                offset = piece.start.offset
                for line in piece.data.split(b"\n"):
                    length = len(line) + 1
                    try:
                        codec.check_keys(line, "the record")
                    except InvalidEvent as error:
                        yield Finding("damage", path, offset, length, f"{error}; {DUPLICATE}")
                    offset += length

    def _verify_checkpoint(self, reader: SegmentReader, chain: SealedChain) -> list[Finding]:
        """Compare the checkpoint's control records with the log's; its state is for others to compare."""
        found = self._files.look_at_checkpoint(reader)
        where = self._files.root.path_of(self._files.name, names.CHECKPOINT)
        if isinstance(found, str):
            hint = "readers ignore it, and the next compaction replaces it"
            note = Finding("note", where, 0, 0, f"this checkpoint {found}: {hint}")
            return [note] if found else []
        said = format.decode_lines(found.controls)
        right = [line for line in chain.controls() if line.seq <= found.seq]
        if [format.control_line(line) for line in said] == list(map(format.control_line, right)):
            return []
        reason = "this checkpoint has other control records than the log"
        return [Finding("damage", where, 0, 0, f"{reason}; {WRONG_CHECKPOINT}")]

    @staticmethod
    def _verify_erased(chain: SealedChain, filter: CompactionFilter) -> Iterator[Finding]:
        from hansard.backend.local.verify import unerased

        reason = "is marked as erased, but still has its data"
        for part, _ in chain.parts():
            path = part.reader.segment.path
            for seq in unerased(part.reader, part.end, filter):
                yield Finding("damage", path, 0, 0, f"event {seq} {reason}")

    def drop_checkpoint(self) -> None:
        self._backend.used(self)
        self._files.drop_checkpoint()
        self._known = KnownRecords()

    def _forget_cached(self, reader: SegmentReader) -> None:
        try:
            disk.forget_cached(reader.segment.descriptor)
        except OSError as error:
            raise disk.explain(error, "read", self._files.path) from error

    def _clear_failure(self, tail: LogEnd) -> None:
        root = self._files.root
        if root.read_only or not (FAILED in tail.shut or self.session_id in root.failed):
            return
        self._writer.note("verified", removes=FAILED)
        root.failed.discard(self.session_id)

    def _list_damage(self, error: Damaged) -> list[Finding]:
        """Return all damage of the segment, of which reading has met the first."""
        self._report(error)
        reader = self._files.reader
        # If not even the header is whole, the lines behind it may be.
        segment = self._files.raw() if reader is None else reader.segment
        findings = iter(()) if segment is None else segment_scan.all_findings(segment)
        listed = islice(findings, MAX_FINDINGS)
        found = [Finding("damage", error.path, *finding) for finding in listed]
        return found or [Finding("damage", error.path, error.offset, 0, error.reason)]

    def repair(
        self,
        *,
        known: Known | None = None,
        filter: MakeFilter | None = None,
        missing: bool = False,
    ) -> RepairResult:
        self._backend.used(self)
        from hansard.backend.local.repair import repair

        root = self._files.root
        erased = None
        if filter is not None:
            with suppress(Damaged):  # then damaged segments are written again in any case
                erased = filter()
        try:
            done = repair(
                root,
                self.session_id,
                self._files.name,
                known=known or Known(),
                filter=erased,
                missing=missing,
                timeout=self._backend.lock_timeout,
            )
        finally:
            # Also after an error: other files may have their names by now.
            self.release_files()
        if done.findings:
            # All that is left was written anew, and synced.
            root.failed.discard(self.session_id)
        return done

    @contextmanager
    def marked(self) -> Iterator[None]:
        """Mark the session before and after something is done to it without its lock."""
        self._files.root.check_writable()
        self._files.check_process()
        self._files.mark()
        try:
            yield
        finally:
            # Once more: the marks may have been read before it was done.
            self._files.mark()

    def _report(self, error: Damaged) -> None:
        """Tell whoever keeps an index that the session is damaged."""
        root = self._files.root
        if not root.read_only:
            root.marks.report(root.descriptor, self._files.name, error.offset)

    def release_files(self, *, wait: bool = True) -> None:
        """Close the files unless they are in use; the next call opens them again."""
        self._writer.release_files(wait=wait)
        self._known = KnownRecords()
        self._backend.unused(self)

    def delete(self, expected_seq: int | None, timeout: float | None) -> None:
        """Shut the log with a note, then move the directory (F-36)."""
        root = self._files.root
        name = self._files.name
        try:
            self._writer.note("deleted", adds=DELETED, expected_seq=expected_seq, timeout=timeout)
            # The note decides, so this call has deleted it, even if another process moves it first.
            with suppress(LockTimeout, SessionDeleted):
                # It may be restored and appended to by now: then it stays where it is.
                self._writer.while_shut(DELETED, lambda: root.move_to_trash(name))
                root.sync_move(name)
        finally:
            # Also after an error: the directory may have been moved with these files open.
            self.release_files()

    def restore(self) -> None:
        """Move the directory back, then open the log with a note."""
        files = self._files
        root = files.root
        if root.in_trash(files.name):
            with self.marked():
                found = root.move_from_trash(files.name)
            root.sync_move(files.name)
        else:
            found = self._is_deleted()
        if not found:
            raise SessionNotFound(f"no session {self.session_id!r} in the trash")
        self._writer.note("restored", removes=DELETED)

    def finish_delete(self) -> bool:
        """Move the directory of a deleted session that never reached the trash; False if it is none."""
        if not self._is_deleted():
            return False
        root = self._files.root
        name = self._files.name
        moved: list[bool] = []
        try:
            # Only what is still deleted: somebody may be restoring it.
            self._writer.while_shut(DELETED, lambda: moved.append(root.move_to_trash(name)))
            root.sync_move(name)
        except SessionDeleted:
            return True  # another was faster
        finally:
            self.release_files()
        return bool(moved)

    def _is_deleted(self) -> bool:
        """Say whether the log ends as a deleted one that never reached the trash (F-36)."""
        try:
            self._look()
        except SessionDeleted:
            return True
        return False

    def _look(self) -> tuple[SegmentReader, LogEnd] | None:
        self._backend.used(self)
        try:
            found = self._files.refresh()
        except Damaged as error:
            self._report(error)
            raise
        if self._renewed != self._files.renewed:
            self._renewed = self._files.renewed
            self._known = KnownRecords()
        return found

    def _range(self, first: int, count: int) -> list[Event]:
        return [
            event
            for chunk in self.reader().read(first - 1, first - 1 + count)
            for event in chunk.events()
        ]


def _limited(findings: Iterable[Finding]) -> list[Finding]:
    """Return the first findings of each severity."""
    counts = Counter[str]()
    kept = []
    for finding in findings:
        counts[finding.severity] += 1
        if counts[finding.severity] <= MAX_FINDINGS:
            kept.append(finding)
    return kept
