"""Repair the files of a damaged session: write everything that is valid into one new segment.

The damaged files are copied first, and the copies are durable before anything else changes. The new segment
begins with the first damaged file and replaces the active one. Sealed segments from there on are leftovers
(`sealed_files`); valid ones before it stay. A crash leaves the log as it was, or repaired.

*Writers.* Another process may have the damaged file open and would append to it after it has lost its name.
So the lock file is replaced first, by one that is already locked: a process that gets the old lock afterwards
notices that it is not the session's, and opens the files again. *Readers* notice that the file they have open
has no name any more. docs/format.md, F-110 to F-117.
"""

import heapq
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from hansard.backend.contract import Finding, Known, RepairResult
from hansard.backend.local.records import stream_of
from hansard.errors import Damaged, HansardError, SessionNotFound
from hansard.event.kinds import EVENT_LOST, SESSION_FORKED, SESSION_REPAIRED
from hansard.log import checkpoint, disk, format, names, segment_scan
from hansard.log.checkpoint import Checkpoint
from hansard.log.disk import Lock
from hansard.log.format import Line, Position
from hansard.log.sealed_segment import SealedSegment, compare, unpack
from hansard.log.segment import Raw, Segment, header, sealed_files
from hansard.log.segment_reader import SegmentReader
from hansard.log.segment_scan import Remains
from hansard.log.session_files import DELETED, SEALED
from hansard.log.store_directory import StoreDirectory, deleted
from hansard.log.write_batch import SegmentWriter
from hansard.log.writer import last_time

#: Attempts to take the session's lock while its file is replaced.
_TRIES: Final = 5

#: Maximum findings, and maximum ranges of lost seqs, that are written into the log.
_NAMED: Final = 100

_PIECE: Final = 1 << 20

_UNCHANGED: Final = "the log is as it was, and nothing is lost that was not lost before"


def repair(
    root: StoreDirectory,
    session_id: str,
    name: str,
    *,
    known: Known,
    missing: bool,
    timeout: float,
) -> RepairResult:
    """Repair a session; return what was done. Nothing is written if nothing is damaged."""
    root.check_writable()
    directory = root.open_session(session_id, name)
    if directory is None:
        raise SessionNotFound(f"no session {session_id!r} in this store")
    site = _Site(root, session_id, name, directory)
    try:
        return _Repair(site, known, fill_missing=missing).run(timeout)
    except OSError as error:
        raise disk.explain(error, "repair", site.path(), _UNCHANGED) from error
    finally:
        for temporary in site.temporaries:
            disk.discard(directory, temporary)
        disk.close(directory)


@dataclass
class _Site:
    """A session's directory, and the temporary files of its repair."""

    root: StoreDirectory
    session_id: str
    name: str
    directory: int
    temporaries: list[str] = field(default_factory=list)
    #: Open until the end, so that they are not swept.
    files: list[disk.OwnedFd] = field(default_factory=list)

    def path(self, file: str = "") -> str:
        """Return a path, for people."""
        return self.root.path_of(self.name, file)

    def temporary(self, base: str) -> tuple[str, disk.OwnedFd]:
        """Create a file that is removed at the end unless it was renamed; return its name, and the file."""
        name = names.temporary(base)
        self.temporaries.append(name)
        file = disk.OwnedFd(disk.create_file(self.directory, name))
        self.files.append(file)
        return name, file

    def is_active(self, name: str) -> bool:
        """Return whether this is a second name of the active segment, left by a crash during a seal."""
        same = disk.stamp(self.directory, name) == disk.stamp(self.directory, names.LOG)
        return same and not name.endswith(".zst")


# -- what there is ------------------------------------------------------------------------------


@dataclass
class _Found:
    """A segment as it was found: valid, or damaged and what is left of it."""

    name: str
    #: The first seq; 0 for an active segment whose header is lost.
    first: int
    file: disk.OwnedFd
    #: Where it ends, if it is valid.
    end: Position | None = None
    reader: SegmentReader | None = None
    #: When its last event was written, and when the session began.
    time: str = ""
    created: str = ""
    #: Where the segment before it ended, as its header says.
    previous: format.Previous | None = None
    #: Whether the log begins with it, as far as it says.
    begins: bool = True
    #: What is left of it, if it is damaged.
    remains: Remains | None = None
    findings: list[segment_scan.Finding] = field(default_factory=list)
    #: Of a valid active segment with a predecessor: the log's first record, as the header repeats it.
    first_record: bytes = b""

    #: Its last seq, if that is known in spite of its damage.
    last: int | None = None

    @property
    def damaged(self) -> bool:
        """True if something of it is."""
        return self.remains is not None

    def records(self, after: int, upto: int) -> Iterator[tuple[Line, bytes]]:
        """Yield the records with after < seq <= upto, with the members that this version does not know."""
        if self.remains is not None:
            yield from self.remains.records(after, upto)
            return
        assert self.reader is not None
        assert self.end is not None
        segment = self.reader.segment
        for piece in self.reader.forwards(segment.start, self.end):
            for _, raw in segment_scan.committed(segment, piece.start, piece.data, piece.end):
                line = format.decode_line(raw)
                if after < line.seq <= upto:
                    yield line, format.unknown_members(raw)


class _Look:
    """One look at all segments of a session."""

    def __init__(self, site: _Site, untrue: frozenset[int]) -> None:
        """`untrue`: see `Known`."""
        self._site = site
        self._untrue = untrue
        #: The seq with which the log begins, as far as the active segment says it.
        self._begin: int | None = None

    def active(self) -> _Found:
        """Look at the active segment."""
        site = self._site
        try:
            file = disk.OwnedFd(disk.open_file(site.directory, names.LOG))
        except FileNotFoundError:
            raise _not_found(site) from None
        path = site.path(names.LOG)
        try:
            segment = Segment(disk.duplicate(file.descriptor), path, None)
        except Damaged as error:
            remains = Remains(Raw(disk.duplicate(file.descriptor), path))
            if names.encode(site.session_id) != site.name:
                raise  # a hashed name: only the header had the id
            self._check_owner(remains, path)
            findings = remains.findings or [segment_scan.Finding(0, 0, error.reason)]
            found = _Found(names.LOG, 0, file, remains=remains, findings=findings)
            return self._with_header(found, remains)
        if segment.session_id != site.session_id:
            # Valid, and another session's: it must not be mixed with this one.
            raise segment.damaged(0, f"this is the log of session {segment.session_id!r}")
        found = _Found(names.LOG, segment.start.seq + 1, file)
        found.created = segment.time
        found.previous = segment.previous
        found.first_record = segment.first_record
        if segment.first_record:
            self._begin = format.decode_first(segment.first_record).seq
        try:
            shut = _check(found, segment)
        except Damaged as error:
            remains = Remains(Raw(disk.duplicate(file.descriptor), path), segment.start.seq)
            found.remains = remains
            found.findings = remains.findings or [
                segment_scan.Finding(error.offset, 0, error.reason)
            ]
            return found
        # One that was damaged while it was deleted or restored is here: neither was acknowledged.
        if DELETED in shut:
            raise deleted(site.session_id)
        return found

    @staticmethod
    def _with_header(found: _Found, remains: Remains) -> _Found:
        """Take over a header of which only the checksum is damaged."""
        left = remains.header
        if left.line:
            found.first = (left.before or 0) + 1
            found.created, found.previous = left.created, left.previous
            head = format.decode_header(format.decode_line(left.line).data)
            found.first_record = bytes(head.first)
        return found

    def sealed(self, active: _Found) -> list[_Found]:
        """Look at the sealed segments before the active one."""
        site = self._site
        files, leftovers = sealed_files(site.directory, active.first or format.MAX_SEQ)
        assert active.first or not leftovers
        found: list[_Found] = []
        last = 0
        # Of a segment that is there compressed and not, the compressed one, which sorts later.
        for first, name in dict(files).items():
            if not active.first and site.is_active(name):
                continue
            old = self._look_at(name, first)
            if old.end is not None and old.end.seq <= last:
                continue  # a leftover of an interrupted compaction
            found.append(old)
            last = max(last, old.end.seq if old.end else 0)
        return found

    def _look_at(self, name: str, first: int) -> _Found:
        site = self._site
        path = site.path(name)
        found = _Found(name, first, disk.OwnedFd(disk.open_file(site.directory, name)))
        packed = name.endswith(".zst")
        descriptor = found.file.descriptor
        try:
            segment: Segment
            if packed:
                segment = sealed = SealedSegment(disk.duplicate(descriptor), path, site.session_id)
                compare(sealed, stream_of)
                self._compare(sealed, first)
                found.begins = sealed.index.begins
            else:
                segment = Segment(disk.duplicate(descriptor), path, site.session_id)
                found.previous = segment.previous
                found.begins = segment.previous is None
            if segment.start.seq + 1 != first:
                raise segment.damaged(0, f"begins with event {segment.start.seq + 1}")
            shut = _check(found, segment)
            if SEALED not in shut:
                assert found.end is not None
                raise segment.damaged(found.end.offset, "the file ends here: it has been cut")
            found.created = segment.time
        except Damaged as error:
            found.end = found.reader = None
            self._take_remains(found, path, error, packed=packed)
        return found

    def _take_remains(self, found: _Found, path: str, error: Damaged, *, packed: bool) -> None:
        descriptor = found.file.descriptor
        before = found.first - 1
        reason = segment_scan.Finding(error.offset, 0, error.reason)
        if packed:
            _, spool = self._site.temporary("unpacked")
            unpacked = unpack(descriptor, path, spool.descriptor)
            # One wrong byte of compressed data can become many: no record counts without its checksum.
            remains = Remains(
                Raw(disk.duplicate(spool.descriptor), path),
                before,
                known_at=unpacked.known_at,
                proven_only=True,
            )
            inner = [
                lost._replace(reason=f"unpacked: {lost.reason}")
                for lost in remains.findings
                if lost.length > len(b"\0\n")  # a frame that is lost is among the others
            ]
            found.findings = [*unpacked.findings, *inner]
            index = unpacked.inventory
            found.created = index.created if index else remains.header.created
            found.begins = index is None or index.begins
            found.last = None if index is None else index.last
        else:
            remains = Remains(Raw(disk.duplicate(descriptor), path), before)
            found.findings = remains.findings
            found.created = remains.header.created
            found.previous = remains.header.previous
            found.begins = True
            found.last = remains.sealed_at
        if self._begin is not None:
            found.begins = self._begin == found.first
        found.remains = remains
        found.findings = found.findings or [reason]
        self._check_owner(remains, path)

    def _compare(self, sealed: SealedSegment, first: int) -> None:
        """Compare what an index says with what is known of the session."""
        if self._begin is not None and sealed.index.begins != (self._begin == first):
            raise sealed.damaged(0, "the index is wrong: `begins` is not what the log says")
        if any(first <= seq <= sealed.index.last for seq in self._untrue):
            raise sealed.damaged(0, "the index is wrong: not all that it says was taken out")

    def _check_owner(self, remains: Remains, path: str) -> None:
        session = remains.header.session
        if session is not None and session != self._site.session_id:
            hint = "nothing was changed; put it back where it belongs"
            raise Damaged(path, 0, f"this is the log of session {session!r}", hint)


def _not_found(site: _Site) -> HansardError:
    return SessionNotFound(f"no session {site.session_id!r} in this store")


def _check(found: _Found, segment: Segment) -> tuple[str, ...]:
    """Check every byte of a segment; note its end, and return for which reasons it is shut."""
    reader = SegmentReader(segment, segment.marks() if isinstance(segment, SealedSegment) else None)
    tail = segment.log_end() if isinstance(segment, SealedSegment) else reader.log_end()
    for piece in reader.forwards(segment.start, tail.position):
        segment_scan.committed(segment, piece.start, piece.data, piece.end)
    found.reader, found.end = reader, tail.position
    found.time = tail.time or last_time(reader, tail.position)
    return tail.shut


# -- the repair ---------------------------------------------------------------------------------


class _Repair:
    """One repair of one session."""

    def __init__(self, site: _Site, known: Known, *, fill_missing: bool) -> None:
        self._site = site
        self._known = known
        self._fill_missing = fill_missing
        self._now = format.now()
        self._findings: list[Finding] = []
        self._kept: list[str] = []
        self._lost: list[tuple[int, int]] = []
        self._salvaged = 0

    def run(self, timeout: float) -> RepairResult:
        """Take the locks, look, and repair."""
        locks: list[Lock] = []
        try:
            locks.append(self._open_lock(names.COMPACTION))
            locks[0].acquire(timeout)
            locks.append(self._session_lock(timeout))
            return self._repair(locks)
        finally:
            for lock in reversed(locks):
                lock.release()

    # -- locks ----------------------------------------------------------------------------------

    def _open_lock(self, name: str) -> Lock:
        file = disk.open_file(self._site.directory, name, writable=True, create=True)
        return Lock(file, self._site.path(name))

    def _session_lock(self, timeout: float) -> Lock:
        """Take the session's lock, and check that it is this session's, here and now."""
        for _ in range(_TRIES):
            lock = self._open_lock(names.LOCK)
            lock.acquire(timeout)
            if lock.exists():
                self._check_in_place()
                return lock
            lock.release()
        raise _not_found(self._site)

    def _check_in_place(self) -> None:
        live = self._site.root.open_live(self._site.name)
        try:
            if live is None or disk.identity(live)[:2] != disk.identity(self._site.directory)[:2]:
                raise deleted(self._site.session_id)
        finally:
            if live is not None:
                disk.close(live)

    def _replace_lock(self) -> Lock:
        """Replace the lock file that others may wait for by one that is locked."""
        temporary = names.temporary(names.LOCK)
        self._site.temporaries.append(temporary)
        lock = Lock(disk.create_file(self._site.directory, temporary), self._site.path(names.LOCK))
        lock.acquire(0.0)  # no other process knows it
        disk.move(self._site.directory, temporary, self._site.directory, names.LOCK)
        return lock

    # -- what to do -----------------------------------------------------------------------------

    def _repair(self, locks: list[Lock]) -> RepairResult:
        look = _Look(self._site, self._known.untrue)
        active = look.active()
        sealed = look.sealed(active)
        before = active.first - 1 if active.first else _before(active, sealed)
        start = _log_start(active, sealed, before)
        damaged = [old for old in [*sealed, active] if old.damaged]
        missed = [gap for gap in _gaps(sealed, before, start) if not _has_any(damaged, gap)]
        missing = [
            Finding(
                "damage", self._site.path(), 0, 0, f"the segment with events {a} to {b} is missing"
            )
            for a, b in missed
        ]
        if not damaged and not (missed and self._fill_missing):
            return RepairResult(missing=missing)
        begin = _first_to_replace([*sealed, active], damaged, before, start)
        if self._fill_missing and missed:
            begin = min(begin, missed[0][0])
        if not self._fill_missing and any(last >= begin for _, last in missed):
            # The new segment would give up the events of a file that may be restored.
            return RepairResult(missing=missing)
        for old in damaged:
            self._keep(old)
        if self._fill_missing:
            self._findings += missing
            missing = []
        used = [old for old in sealed if old.end is None or old.end.seq >= begin] + [active]
        stay = [old for old in sealed if old.first < begin and not old.damaged]
        upto = self._last_seq(active, used, before)
        temporary = self._write(active, stay, used, start, begin, upto, missed)
        root = self._site.root
        root.marks.leave(root.descriptor, self._site.name)
        locks.append(self._replace_lock())
        self._put_in_place(temporary, begin)
        remains = [old.remains for old in damaged if old.remains is not None]
        return RepairResult(
            self._findings,
            self._lost,
            self._kept,
            self._salvaged,
            self._unchecked(damaged),
            sum(left.controls for left in remains),
            missing,
        )

    def _last_seq(self, active: _Found, used: list[_Found], before: int) -> int:
        """Return the last seq that the log is likely to have had."""
        if active.end is not None:
            return max(active.end.seq, before)
        # Of sealed segments only if it is not known where the active one begins.
        left = [active] if active.first else used
        found = [old.remains.upto for old in left if old.remains is not None]
        return max(before, self._known.seq, *found)

    @staticmethod
    def _unchecked(damaged: list[_Found]) -> list[int]:
        return sorted({seq for old in damaged if old.remains for seq in old.remains.unchecked})

    # -- keeping --------------------------------------------------------------------------------

    def _keep(self, old: _Found) -> None:
        """Copy a damaged file, durably. Not a link: link counts tell open handles of a replacement."""
        name = names.damaged(old.name, self._now.decode())
        temporary, target = self._site.temporary(name)
        offset = 0
        while data := disk.read_at(old.file.descriptor, _PIECE, offset):
            disk.write_all(target.descriptor, data)
            offset += len(data)
        disk.sync(target.descriptor)
        disk.publish(self._site.directory, temporary, name)
        disk.sync_directory(self._site.directory)
        self._kept.append(name)
        path = self._site.path(old.name)
        self._findings += [Finding("damage", path, *finding) for finding in old.findings]

    # -- writing --------------------------------------------------------------------------------

    def _write(
        self,
        active: _Found,
        stay: list[_Found],
        used: list[_Found],
        start: int,
        begin: int,
        upto: int,
        missed: list[tuple[int, int]],
    ) -> str:
        """Write the new segment, synced and read once more; return its temporary name."""
        site = self._site
        created = self._created(active, stay + used, begin)
        temporary, file = site.temporary(names.LOG)
        head = self._header(active, stay, created, start, begin)
        mark = Position(len(head), begin - 1, format.crc32(head))
        writer = SegmentWriter(file.descriptor, head, mark)
        unknown: dict[int, bytes] = {}
        lost = Line(0, created, msgspec.Raw(b""), "", kind=EVENT_LOST)
        spare = self._spare(stay + used, created)
        for line in filled(_merged(used, begin - 1, upto, unknown), begin - 1, upto, lost, spare):
            if line.data is lost.data:
                line.data = msgspec.Raw(
                    msgspec.json.encode({"kept": self._kept_as(line.seq, used, missed)})
                )
                self._note_lost(line.seq)
            elif _source(line.seq, used).damaged:
                self._salvaged += 1
            writer.copy(line, unknown.get(line.seq, b""))
        done = msgspec.Raw(msgspec.json.encode(self._record(used)))
        time = self._now.decode()
        writer.copy(Line(upto + 1, time, done, "", kind=SESSION_REPAIRED, control=True))
        writer.finish()
        # As a reader reads it, before it replaces anything.
        _check(
            _Found(names.LOG, begin, file),
            Segment(disk.duplicate(file.descriptor), site.path(temporary), site.session_id),
        )
        return temporary

    def _spare(self, files: list[_Found], created: str) -> Mapping[int, Line]:
        """Return the control records that the checkpoint repeats, if it is one of this log."""
        saved = checkpoint.look(self._site.directory, self._site.session_id, created)
        # Believed only if a segment continues the very log that it was made of (F-109).
        if isinstance(saved, Checkpoint) and any(
            old.previous is not None
            and (old.previous.seq, old.previous.crc) == (saved.seq, saved.previous)
            for old in files
        ):
            return {line.seq: line for line in format.decode_lines(saved.controls)}
        return {}

    def _kept_as(self, seq: int, used: list[_Found], missed: list[tuple[int, int]]) -> str:
        """Return the name under which the bytes of a lost event are kept: empty if there are none."""
        old = _source(seq, used)
        if not old.damaged or any(first <= seq <= last for first, last in missed):
            return ""
        return names.damaged(old.name, self._now.decode())

    def _note_lost(self, seq: int) -> None:
        if self._lost and self._lost[-1][1] == seq - 1:
            self._lost[-1] = (self._lost[-1][0], seq)
        else:
            self._lost.append((seq, seq))

    def _record(self, used: list[_Found]) -> dict[str, Any]:
        """Return what the log will say about this repair."""
        damage = [
            {
                "file": finding.where.rpartition("/")[2],
                "offset": finding.offset,
                "length": finding.length,
                "reason": finding.reason,
            }
            for finding in self._findings[:_NAMED]
        ]
        found = {
            "damage": damage,
            "lost": self._lost[:_NAMED],
            "unchecked": self._unchecked(used)[:_NAMED],
            "kept": self._kept,
        }
        return {name: value for name, value in found.items() if value}

    def _created(self, active: _Found, sealed: list[_Found], begin: int) -> str:
        """Return when the session began, from the first source that still says it."""
        said = [active.created, *(old.created for old in sealed)]
        # The children of a session know when it began, and identify it by that.
        said.append(self._known.created)
        left = active.remains
        if left is not None:
            said.append(left.header.created)
            # A session's header and its first event are written at one time.
            said += [line.time for line, _ in left.records(begin - 1, begin)]
        return next((time for time in said if time), self._now.decode())

    def _header(
        self, active: _Found, stay: list[_Found], created: str, start: int, begin: int
    ) -> bytes:
        site = self._site
        if begin == active.first:
            kept = active.remains.header.line if active.remains is not None else b""
            if active.reader is not None:
                segment = active.reader.segment
                kept = segment.read(0, segment.start.offset)
            if kept:
                return kept
        if begin <= start:
            # The first header tells by its own time when the session began.
            return header(site.session_id, before=begin - 1, time=created.encode())[0]
        last = stay[-1] if stay else None
        crc, time = 0, created
        if last is not None and last.end is not None and last.end.seq == begin - 1:
            crc, time = last.end.crc, last.time
        facts: dict[str, Any] = {
            "previous": {"seq": begin - 1, "crc": crc, "time": time},
            "created": created,
        }
        if stay and stay[0].reader is not None and stay[0].end is not None:
            line = stay[0].reader.first(stay[0].end)
            facts["first"] = {"seq": line.seq, "time": line.time, "kind": line.kind}
        elif active.first_record:
            facts["first"] = msgspec.Raw(active.first_record)
        time_of = created.encode()
        return header(site.session_id, before=begin - 1, time=time_of, facts=facts)[0]

    # -- putting in place -----------------------------------------------------------------------

    def _put_in_place(self, temporary: str, begin: int) -> None:
        """Rename the new segment to the log, and remove what it replaces. All locks are held."""
        directory = self._site.directory
        leftovers = sealed_files(directory, begin)[1]
        for name in leftovers:
            if self._site.is_active(name):
                # A second name would keep open handles from noticing that the file was replaced.
                disk.remove(directory, name)
        # It was derived from the log, and may say what is lost.
        with suppress(FileNotFoundError):
            disk.remove(directory, names.CHECKPOINT)
        disk.move(directory, temporary, directory, names.LOG)
        disk.sync_directory(directory)
        for name in leftovers:
            with suppress(FileNotFoundError):
                disk.remove(directory, name)
        disk.sync_directory(directory)


def _before(active: _Found, sealed: list[_Found]) -> int:
    """Return the seq before an active segment whose header is lost."""
    if sealed:
        last = sealed[-1]
        # After a damaged one it does not matter: the new segment begins with that.
        return last.first - 1 if last.end is None else last.end.seq
    remains = active.remains
    assert remains is not None  # a valid header says it
    first = next((line for line, _ in remains.records(0, format.MAX_SEQ)), None)
    if first is not None and first.kind == SESSION_FORKED:
        return first.seq - 1  # with this, and with nothing else, a log may begin after 0
    said = remains.header.before
    if said is not None and (first is None or said < first.seq):
        return said
    return 0


def _log_start(active: _Found, sealed: list[_Found], before: int) -> int:
    """Return the first seq of the log."""
    if active.first_record:
        return format.decode_first(active.first_record).seq
    if sealed:
        return sealed[0].first if sealed[0].begins else 1
    if active.first:
        return 1 if active.previous is not None else active.first
    return before + 1


def _gaps(sealed: list[_Found], before: int, start: int) -> list[tuple[int, int]]:
    """Return the ranges of seqs whose segments are missing. `start`: the first seq of all."""
    if not sealed:
        return [(start, before)] if start <= before else []
    found = []
    if not sealed[0].begins and start < sealed[0].first:
        found.append((start, sealed[0].first - 1))
    nexts = [*(old.first - 1 for old in sealed[1:]), before]
    for old, end in zip(sealed, nexts, strict=True):
        last = old.last if old.end is None else old.end.seq
        if last is not None and last < end:
            found.append((last + 1, end))
    return found


def _has_any(damaged: list[_Found], gap: tuple[int, int]) -> bool:
    return any(old.remains is not None and old.remains.has_any(*gap) for old in damaged)


def _first_to_replace(files: list[_Found], damaged: list[_Found], before: int, start: int) -> int:
    """Return the first seq of the new segment: that of the first damaged file, or of what it holds."""
    if not damaged:
        return format.MAX_SEQ
    place = next(at for at, old in enumerate(files) if old.damaged)
    last = files[place - 1].end if place else None
    floor = start if last is None else last.seq + 1
    first = files[place].first or before + 1
    # A file under another's name holds other seqs than its name says.
    held = [seq for old in damaged if old.remains and (seq := old.remains.first_seq) is not None]
    return min(first, max(floor, min(held, default=first)))


def _source(seq: int, files: list[_Found]) -> _Found:
    """Return the file that an event was in, or should have been in."""
    return next((old for old in reversed(files) if old.first <= seq), files[0])


def _merged(
    files: list[_Found], after: int, upto: int, unknown: dict[int, bytes]
) -> Iterator[Line]:
    """Yield the records of several segments, each seq once, in order; of two the later file's."""

    def numbered(place: int, old: _Found) -> Iterator[tuple[int, int, Line, bytes]]:
        for line, members in old.records(after, upto):
            yield line.seq, -place, line, members

    streams = [numbered(place, old) for place, old in enumerate(files)]
    last = after
    for seq, _, line, members in heapq.merge(*streams, key=lambda item: item[:2]):
        if seq > last:
            last = seq
            if members:
                unknown[seq] = members
            yield line


def filled(
    records: Iterator[Line], after: int, upto: int, lost: Line, spare: Mapping[int, Line]
) -> Iterator[Line]:
    """Yield a record for each seq with after < seq <= upto: `lost` under its seq where there is none.

    `spare`: records that are kept elsewhere. Appends are complete afterwards: lost members are replaced, and
    one that was cut off ends where it ends (F-27).
    """
    group: list[Line] = []
    for line in _without_gaps(records, after, upto, lost, spare):
        expected = group[-1].more - 1 if group else None
        if expected is not None and line.kind == lost.kind and line.more == 0:
            line.more = expected
        if expected is not None and line.more != expected:
            yield from _closed(group)
            group = []
        group.append(line)
        if line.more == 0:
            yield from group
            group = []
    yield from _closed(group)


def _closed(group: list[Line]) -> list[Line]:
    """Let an append end with the last of its records that is there."""
    for place, line in enumerate(group):
        line.more = len(group) - 1 - place
    return group


def _without_gaps(
    records: Iterator[Line], after: int, upto: int, lost: Line, spare: Mapping[int, Line]
) -> Iterator[Line]:
    seq, time = after, lost.time
    for line in records:
        yield from _between(seq, line.seq, time or line.time, lost, spare)
        yield line
        seq, time = line.seq, line.time
    yield from _between(seq, upto + 1, time, lost, spare)


def _between(
    seq: int, end: int, time: str, lost: Line, spare: Mapping[int, Line]
) -> Iterator[Line]:
    for missing in range(seq + 1, end):
        known = spare.get(missing)
        if known is None:
            yield msgspec.structs.replace(lost, seq=missing, time=time, more=0)
        else:
            yield msgspec.structs.replace(known)
