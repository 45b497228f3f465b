"""Repair a damaged session: write everything that is valid into one new segment.

The steps (docs/format.md, F-116): (1) Copy the damaged files, durably. (2) Write, sync and read the new
segment, which begins with the first damaged or missing file. (3) Replace the lock file. (4) Remove the
checkpoint. (5) Rename the new segment to the log. A crash leaves the log as it was, or repaired.

Another process may have the damaged file open. As a writer, it gets the old lock later than the repair, and
notices that it is not the session's any more (F-117). As a reader, it notices that its file has no name.
"""

import heapq
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from hansard.backend.contract import Finding, RepairHints, RepairReport
from hansard.backend.local.log import records_of
from hansard.errors import Damaged
from hansard.event.kinds import EVENT_LOST, SESSION_FORKED, SESSION_REPAIRED
from hansard.log import checkpoint, disk, format, names
from hansard.log.disk import Lock
from hansard.log.format import Header, Line, Position, Previous
from hansard.log.sealed_chain import SealedPart, check_part
from hansard.log.sealed_segment import SealedSegment, unpack
from hansard.log.segment import check_begun, header, sealed_files
from hansard.log.segment_reader import Raw, Segment, SegmentReader
from hansard.log.segment_scan import Remains, ScanFinding
from hansard.log.session_files import DELETED, SEALED, SessionFiles
from hansard.log.store_directory import StoreDirectory, deleted, not_found
from hansard.log.write_batch import SegmentWriter

#: Attempts to take the session's lock while its file is replaced.
_TRIES: Final = 5

#: Maximum findings, and maximum ranges of lost seqs, that are written into the log.
_NAMED: Final = 100


def repair(
    files: SessionFiles,
    known: RepairHints,
    *,
    missing: bool,
    timeout: float,
) -> RepairReport:
    """Repair a session; write nothing if nothing is damaged."""
    root, session_id, name = files.root, files.session_id, files.name
    root.check_writable()
    directory = root.open_session(session_id, name)
    if directory is None:
        raise not_found(session_id)
    hint = "the log is as it was, and nothing is lost that was not lost before"
    with disk.reporting("repair", root.path_of(name), hint), ExitStack() as cleanup:
        work = _Repair(root, session_id, name, directory, known, missing, cleanup)
        work.lock(timeout)
        return work.run()


@dataclass
class _File:
    """A segment: valid, or damaged, with its remains."""

    name: str
    #: The first seq; 0 while it is unknown. The last one; None if it is unknown.
    first: int
    file: int
    last: int | None = None
    #: The content of its header; None if it is damaged.
    head: Header | None = None
    #: The log begins with it, as far as it is known.
    begins: bool = True
    valid: SealedPart | None = None
    remains: Remains | None = None

    def records(self, place: int, after: int) -> Iterator[tuple[int, int, Line, bytes]]:
        """Yield the records after a seq: each with its unknown members, sorted by seq and then by place."""
        found = () if self.valid is None else records_of(*self.valid)
        if self.remains is not None:
            found = self.remains.records(after)
        for line, unknown in found:
            if line.seq > after:
                yield line.seq, place, line, unknown


@dataclass
class _Repair:
    """One repair of one session."""

    root: StoreDirectory
    session_id: str
    name: str
    directory: int
    known: RepairHints
    fill_missing: bool
    #: Releases the locks, and removes temporary files that were not renamed.
    cleanup: ExitStack

    def __post_init__(self) -> None:
        self._now = format.now().decode()
        #: Open until the end: locks, and temporary files, which are not swept while they are open.
        self._open: list[disk.OwnedFd | Lock] = []
        #: All segments, the active one last, and the ranges of seqs whose segments are missing.
        self._files: list[_File] = []
        self._missed: list[tuple[int, int]] = []
        #: The first seq of the log, if the active segment has it.
        self._begin: int | None = None
        #: What is known of the result, except for `salvaged` and `controls`.
        self._report = RepairReport(self.session_id)
        self._salvaged = 0

    def path(self, file: str = "") -> str:
        """Return a path, for messages."""
        return self.root.path_of(self.name, file)

    def _temporary(self, base: str) -> tuple[str, int]:
        """Create a file that is removed at the end unless it was renamed."""
        name = names.temporary(base)
        self.cleanup.callback(disk.discard, self.directory, name)
        file = disk.create_file(self.directory, name)
        self._open.append(file)
        return name, file

    # -- locks ----------------------------------------------------------------------------------

    def lock(self, timeout: float) -> None:
        """Take the locks of compaction and of the session; raise if it was deleted or replaced."""
        self._acquire(names.COMPACTION, timeout)
        for _ in range(_TRIES):
            if not self._acquire(names.LOCK, timeout).exists():
                continue
            live = self.root.open_in(names.SESSIONS, self.name)
            there = None if live is None else disk.identity(live)
            if there != disk.identity(self.directory):
                raise deleted(self.session_id)
            return
        raise not_found(self.session_id)

    def _acquire(self, name: str, timeout: float, file: int | None = None) -> Lock:
        if file is None:
            file = disk.open_file(self.directory, name, writable=True, create=True)
        lock = Lock(file, self.path(name))
        lock.acquire(timeout)
        self._open.append(lock)
        self.cleanup.callback(lock.release)
        return lock

    def _replace_lock(self) -> None:
        """Replace the lock file, for which others may wait, by one that is locked."""
        temporary = names.temporary(names.LOCK)
        self.cleanup.callback(disk.discard, self.directory, temporary)
        # No other process knows it, so there is nothing to wait for.
        self._acquire(names.LOCK, 0.0, disk.create_file(self.directory, temporary))
        disk.move(self.directory, temporary, self.directory, names.LOCK)

    # -- what there is --------------------------------------------------------------------------

    def _sealed(self, active: _File) -> list[_File]:
        """Read the sealed segments before the active one."""
        found: list[_File] = []
        last = 0
        # Of a segment that is there compressed and not, the compressed one, which sorts later.
        names_by_first = dict(sealed_files(self.directory, active.first or format.MAX_SEQ)[0])
        for first, name in names_by_first.items():
            if not active.first and self._is_active(name):
                continue
            old = self._look_at(name, first)
            if old.valid is None or old.valid.end.seq > last:  # or it is a leftover of a compaction
                found.append(old)
                last = last if old.valid is None else old.valid.end.seq
        return found

    def _is_active(self, name: str) -> bool:
        """Return whether this is a second name of the active segment, left by a crash during a seal."""
        same = disk.inode(self.directory, name) == disk.inode(self.directory, names.LOG)
        return same and not name.endswith(".zst")

    def _look_at(self, name: str, first: int) -> _File:
        """Check every byte of a segment; collect what is left of a damaged one."""
        found = _File(name, first, disk.open_file(self.directory, name))
        path = self.path(name)
        try:
            kind = SealedSegment if name.endswith(".zst") else Segment
            segment = kind(found.file, path, None)
            first_record = msgspec.Raw(segment.first_record)
            found.head = Header(
                format.VERSION, segment.session_id, segment.previous, segment.time, first_record
            )
            found.begins, found.first = segment.begins, first or segment.start.seq + 1
            found.valid = self._check(found, segment)
            found.last = found.valid.end.seq
        except Damaged as error:
            self._salvage(found, path, error)
        if found.head is not None and found.head.session != self.session_id:
            # It must not be mixed with this session.
            hint = "nothing was changed; put it back where it belongs"
            raise Damaged(path, 0, f"this is the log of session {found.head.session!r}", hint)
        return found

    def _check(self, found: _File, segment: Segment) -> SealedPart:
        """Read a segment as a reader does, and compare it with its index; raise unless all is right."""
        if segment.start.seq + 1 != found.first:
            raise segment.damaged(0, f"begins with event {segment.start.seq + 1}")
        reader = SegmentReader(segment)
        end = reader.log_end()
        part = SealedPart(reader, end.position)
        check_part(part)
        packed = isinstance(segment, SealedSegment)
        if packed and self._begin is not None and found.begins != (self._begin == found.first):
            raise segment.damaged(0, "the index is wrong: `begins` is not what the log says")
        if found.name != names.LOG and SEALED not in end.shut:
            raise segment.damaged(end.position.offset, "the file ends here: it has been cut")
        # One that was damaged while it was deleted or restored is here: neither was acknowledged.
        if found.name == names.LOG and DELETED in end.shut:
            raise deleted(self.session_id)
        return part

    def _salvage(self, found: _File, path: str, error: Damaged) -> None:
        """Collect what is left of a damaged segment."""
        descriptor, before = found.file, max(found.first - 1, 0)
        if found.name.endswith(".zst"):
            _, spool = self._temporary("unpacked")
            unpacked = unpack(descriptor, path, spool)
            raw = Raw(spool, path)
            # One wrong byte of compressed data can become many: no record counts without its checksum.
            remains = Remains(raw, before, unpacked.known_at)
            inner = [
                lost._replace(reason=f"unpacked: {lost.reason}")
                for lost in remains.findings
                if lost.length > len(b"\0\n")  # a frame that is lost is among the others
            ]
            remains.findings, found.last = [*unpacked.findings, *inner], unpacked.last
        else:
            remains = Remains(Raw(descriptor, path), before)
            found.last = remains.sealed_at
        if found.head is None:
            if found.name == names.LOG and names.encode(self.session_id) != self.name:
                raise error  # a hashed name: only the header had the id
            found.head = remains.header
            if found.head is not None:  # only its checksum is damaged
                found.first = found.first or (remains.before or 0) + 1
                found.begins = found.head.previous is None
        if self._begin is not None:
            found.begins = self._begin == found.first
        found.remains = remains
        remains.findings = remains.findings or [ScanFinding(error.offset, 0, error.reason)]

    # -- what to do -----------------------------------------------------------------------------

    def run(self) -> RepairReport:
        """Read all segments, and repair them. The locks are held."""
        try:
            active = self._look_at(names.LOG, 0)
        except FileNotFoundError:
            check_begun(self.directory, self.path(names.LOG))
            raise not_found(self.session_id) from None
        if active.head is not None and active.head.first:
            self._begin = format.decode_first(active.head.first).seq
        sealed = self._sealed(active)
        headless = not active.first
        active.first = active.first or _guess_first(active, sealed)
        self._files = files = [*sealed, active]
        start = self._begin or (files[0].first if files[0].begins else 1)
        damaged = [(old, old.remains) for old in files if old.remains is not None]
        #: For each file, the last seq before it; None if it is unknown.
        lasts = [start - 1, *(old.last for old in sealed)]
        self._missed = [
            (last + 1, old.first - 1)
            for last, old in zip(lasts, files, strict=True)
            if last is not None
            and last + 1 < old.first
            and not any(left.has_any(last + 1, old.first - 1) for _, left in damaged)
        ]
        begins = [a for a, _ in self._missed if self.fill_missing]
        if damaged:
            first = damaged[0][0]
            floor = (lasts[files.index(first)] or 0) + 1
            # A file under another's name holds other seqs than its name says.
            held = [left.first_seq for _, left in damaged if left.first_seq is not None]
            begins.append(min(first.first, max(floor, min(held, default=first.first))))
        begin = min(begins, default=format.MAX_SEQ)
        # Without `fill_missing`, the new segment must not give up the events of a file that may be restored.
        if not begins or not (self.fill_missing or all(b < begin for _, b in self._missed)):
            return self._report
        for old, left in damaged:
            self._keep(old, left)
        for a, b in self._missed if self.fill_missing else ():
            reason = f"the segment with seq {a} to {b} is missing"
            self._report.findings.append(Finding("damage", self.path(), 0, 0, reason))
        if active.valid is not None:
            upto = active.valid.end.seq
        else:
            # Of sealed segments only if it is not known where the active one begins.
            ends = [left.upto for old, left in damaged if old is active or headless]
            upto = max(active.first - 1, self.known.seq, *ends)
        self._report.unchecked[:] = sorted({seq for _, left in damaged for seq in left.unchecked})
        temporary = self._write(start, begin, upto)
        self.root.marks.leave(self.root.descriptor, self.name)
        self._replace_lock()
        self._put_in_place(temporary, begin)
        controls = sum(left.controls for _, left in damaged)
        return msgspec.structs.replace(self._report, salvaged=self._salvaged, controls=controls)

    def _keep(self, old: _File, left: Remains) -> None:
        """Copy a damaged file, durably. Not a link: link counts tell open handles of a replacement."""
        name = names.damaged(old.name, self._now)
        temporary, target = self._temporary(name)
        disk.copy_content(old.file, target)
        disk.sync(target)
        disk.publish(self.directory, temporary, name)
        disk.sync_directory(self.directory)
        self._report.kept.append(name)
        where = self.path(old.name)
        self._report.findings.extend(Finding("damage", where, *found) for found in left.findings)

    def _write(self, start: int, begin: int, upto: int) -> str:
        """Write the new segment, synced and read again; return its temporary name."""
        report, created = self._report, self._created()
        head = self._header(created, start, begin)
        temporary, file = self._temporary(names.LOG)
        writer = SegmentWriter(file, head, Position(len(head), begin - 1, format.crc32(head)))
        for line, unknown in finished(self._records(created, begin, upto)):
            writer.copy(line, unknown)
        damage = [
            {"file": where.rpartition("/")[2], "offset": offset, "length": length, "reason": reason}
            for _, where, offset, length, reason in report.findings[:_NAMED]
        ]
        lost, unchecked = report.lost[:_NAMED], report.unchecked[:_NAMED]
        facts = {"damage": damage, "lost": lost, "unchecked": unchecked, "kept": report.kept}
        facts = {name: value for name, value in facts.items() if value}
        data = msgspec.Raw(msgspec.json.encode(facts))
        writer.copy(Line(upto + 1, self._now, data, "", kind=SESSION_REPAIRED, control=True))
        writer.finish()
        # As a reader reads it, before it replaces anything.
        new = _File(names.LOG, begin, file)
        self._check(new, Segment(file, self.path(temporary), self.session_id))
        return temporary

    def _records(self, created: str, begin: int, upto: int) -> Iterator[tuple[Line, bytes]]:
        """Yield a record for each seq from `begin` to `upto`, with the members that are unknown here."""
        spare = self._spare(created)
        seq, time = begin - 1, created
        used = [old for old in self._files if old.valid is None or old.valid.end.seq >= begin]
        # Of two records with one seq, that of the later file.
        sources = (old.records(-place, seq) for place, old in enumerate(used))
        merged = heapq.merge(*sources, key=lambda item: item[:2])
        for found, place, line, unknown in chain(merged, [(upto + 1, 1, None, b"")]):
            for gap in range(seq + 1, min(found, upto + 1)):
                self._salvaged += gap in spare
                yield spare.get(gap) or self._stand_in(gap, time, used), b""
            if line is not None and seq < found <= upto:
                self._salvaged += used[-place].remains is not None
                yield line, unknown
                time = line.time
            seq = max(seq, found)

    def _stand_in(self, seq: int, time: str, used: list[_File]) -> Line:
        """Return the record that says that an event is lost, and which file keeps its bytes."""
        # The file that the event was in, or should have been in.
        old = next((old for old in reversed(used) if old.first <= seq), used[0])
        kept = names.damaged(old.name, self._now)
        if kept not in self._report.kept or any(
            first <= seq <= last for first, last in self._missed
        ):
            kept = ""
        lost = self._report.lost
        first = lost.pop()[0] if lost and lost[-1][1] == seq - 1 else seq
        lost.append((first, seq))
        return Line(
            seq, time, msgspec.Raw(msgspec.json.encode({"kept": kept})), "", kind=EVENT_LOST
        )

    def _spare(self, created: str) -> dict[int, Line]:
        """Return the control records that the checkpoint repeats, if it is one of this log."""
        saved = checkpoint.look(self.directory, self.session_id, created)
        previous = (old.head.previous for old in self._files if old.head is not None)
        ends = [(one.seq, one.crc) for one in previous if one is not None]
        # Believed only if a segment continues the very log that it was made of (F-109).
        if isinstance(saved, str) or (saved.seq, saved.previous) not in ends:
            return {}
        return {line.seq: line for line in format.decode_lines(saved.controls)}

    def _created(self) -> str:
        """Return when the session began, from the first source that says it."""
        files = [self._files[-1], *self._files[:-1]]
        # The forks of a session identify it by the time at which it began.
        said = [*(old.head.created for old in files if old.head is not None), self.known.created]
        if files[0].remains is not None:
            # A session's header and its first event are written at one time.
            records = files[0].remains.records(0)
            said += [line.time for line, _ in records if line.seq <= files[0].first]
        return next((time for time in said if time), self._now)

    def _header(self, created: str, start: int, begin: int) -> bytes:
        facts: dict[str, Any] = {}
        active = self._files[-1]
        # The first header has no facts, and tells by its own time when the session began.
        if begin > start:
            before = [old.valid for old in self._files if old.valid and old.first < begin]
            previous = active.head.previous if active.head and active.first == begin else None
            if previous is None:
                previous = Previous(begin - 1, 0, created)
                if before and before[-1].end.seq == begin - 1:
                    reader, end = before[-1]
                    previous = Previous(begin - 1, end.crc, reader.last_time(end))
            facts = {"previous": previous, "created": created}
            if active.head is not None and active.head.first:
                facts["first"] = active.head.first
            elif before:
                line = before[0].reader.first(before[0].end)
                facts["first"] = {"seq": line.seq, "time": line.time, "kind": line.kind}
        return header(self.session_id, before=begin - 1, time=created.encode(), facts=facts)[0]

    def _put_in_place(self, temporary: str, begin: int) -> None:
        """Rename the new segment to the log, and remove what it replaces."""
        leftovers = sealed_files(self.directory, begin)[1]
        for name in leftovers:
            if self._is_active(name):
                # A second name would keep open handles from noticing that the file was replaced.
                disk.remove(self.directory, name)
        # It was derived from the log, and may contain what is lost.
        with suppress(FileNotFoundError):
            disk.remove(self.directory, names.CHECKPOINT)
        disk.move(self.directory, temporary, self.directory, names.LOG)
        disk.sync_directory(self.directory)
        for name in leftovers:
            with suppress(FileNotFoundError):
                disk.remove(self.directory, name)
        disk.sync_directory(self.directory)


def _guess_first(active: _File, sealed: list[_File]) -> int:
    """Return the first seq of an active segment whose header is lost."""
    if sealed:
        # After a damaged one it does not matter: the new segment begins with that.
        return sealed[-1].first if sealed[-1].valid is None else sealed[-1].valid.end.seq + 1
    remains = active.remains
    assert remains is not None  # a valid header has it
    first = next((line for line, _ in remains.records(0)), None)
    if first is not None and first.kind == SESSION_FORKED:
        return first.seq  # with this, and with nothing else, a log may begin after 1
    said = remains.before
    return said + 1 if said is not None and (first is None or said < first.seq) else 1


def finished(records: Iterator[tuple[Line, bytes]]) -> Iterator[tuple[Line, bytes]]:
    """Yield records as finished appends (F-27): a lost member counts, and one that was cut ends early."""
    group: list[tuple[Line, bytes]] = []
    for line, unknown in records:
        due = group[-1][0].more - 1 if group else line.more
        if line.kind == EVENT_LOST and line.more == 0:
            line.more = due
        if line.more != due:
            yield from _ended(group)
            group = []
        group.append((line, unknown))
        if line.more == 0:
            yield from group
            group = []
    yield from _ended(group)


def _ended(group: list[tuple[Line, bytes]]) -> list[tuple[Line, bytes]]:
    for left, (line, _) in enumerate(reversed(group)):
        line.more = left
    return group
