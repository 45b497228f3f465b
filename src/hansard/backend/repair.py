"""Mend the files of a damaged session.

Above: `local`.  Below: `contract`, `log`.
First look, then keep, then write, then put in place: the damaged files are copied, byte for byte, and the
copies are durable before anything else changes; the new segments are written beside the old ones, whole and
synced; only then do they take their names. Whoever dies in between leaves the log as it was, or mended.

*Writers.* Another process may have the damaged file open, and would go on appending to it after it has lost its
name. So the lock file is replaced first, by one that is locked already: who gets the old lock afterwards sees
that it is no longer the session's, as after a deletion, and opens everything anew. *Readers* see that the file
they have open has no name any more. docs/format.md, F-110 to F-118.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from hansard.backend.contract import Finding, Known, Repaired
from hansard.errors import Damaged, HansardError, SessionNotFound
from hansard.event.kinds import EVENT_LOST, SESSION_FORKED, SESSION_REPAIRED
from hansard.log import disk, format, inspection, mending, names
from hansard.log.format import Line, Mark
from hansard.log.handle import DELETED
from hansard.log.lock import Lock
from hansard.log.reader import Reader
from hansard.log.reframing import Reframer
from hansard.log.root import Root, deleted
from hansard.log.sealed import Index, Sealed
from hansard.log.sealing import Sealer
from hansard.log.segment import Segment
from hansard.log.thawing import thaw
from hansard.log.writer import last_time

#: How often to start again when the lock file is replaced under our hands.
_TRIES: Final = 5

#: So many findings, and so many stretches of lost seqs, are written into the log.
_NAMED: Final = 100

_LEVEL: Final = 12
_PIECE: Final = 1 << 20

_UNCHANGED: Final = "the log is as it was, and nothing is lost that was not lost before"


class _Old(NamedTuple):
    """A segment as it is: whole, with its end, or damaged, with what is left of it."""

    name: str
    first: int
    segment: disk.Open
    #: Where it ends, if it is whole, and when its last event was written.
    end: Mark | None = None
    time: str = ""
    #: What is left of it, if it is not; of the active segment in any case.
    survey: mending.Survey | None = None
    damaged: bool = True
    findings: tuple[inspection.Finding, ...] = ()
    index: Index | None = None
    controls: dict[int, Line] = {}
    #: Its first record, and when the session began, if it is whole.
    head: Line | None = None
    created: str = ""


class _New(NamedTuple):
    """A segment that is written, under a temporary name."""

    temporary: str
    name: str


class Repair:
    """One repair of one session."""

    def __init__(
        self,
        root: Root,
        session_id: str,
        name: str,
        *,
        known: Known,
        missing: bool,
        timeout: float,
    ) -> None:
        self._root = root
        self._session_id = session_id
        self._name = name
        self._known = known
        self._fill_missing = missing
        self._timeout = timeout
        self._now = format.now()
        self._directory = -1
        self._temporaries: list[str] = []
        self._findings: list[Finding] = []
        self._kept: list[str] = []
        self._lost: list[tuple[int, int]] = []
        self._unchecked: list[int] = []
        self._salvaged = 0
        self._controls = 0

    def run(self) -> Repaired:
        """Mend what is damaged; return what was done. Nothing is written if nothing is damaged."""
        self._root.check_writable()
        directory = self._root.open_session(self._session_id, self._name)
        if directory is None:
            raise self._not_found()
        self._directory = directory
        locks: list[Lock] = []
        try:
            try:
                locks.append(self._open_lock(names.COMPACTION))
                locks[0].acquire(self._timeout)
                locks.append(self._session_lock())
                return self._mend(locks)
            finally:
                for temporary in self._temporaries:
                    disk.discard(directory, temporary)
                for lock in reversed(locks):
                    lock.release()
        except OSError as error:
            raise disk.explain(error, "repair", self._path(), _UNCHANGED) from error
        finally:
            disk.close(directory)

    # -- locks ----------------------------------------------------------------------------------

    def _open_lock(self, name: str) -> Lock:
        file = disk.open_file(self._directory, name, writable=True, create=True)
        return Lock(file, self._path(name))

    def _session_lock(self) -> Lock:
        """Take the session's lock, and see that it is this session's, here and now."""
        for _ in range(_TRIES):
            lock = self._open_lock(names.LOCK)
            lock.acquire(self._timeout)
            if lock.exists():
                self._check_in_place()
                return lock
            lock.release()
        raise self._not_found()

    def _check_in_place(self) -> None:
        live = self._root.open_live(self._name)
        try:
            if live is None or disk.identity(live)[:2] != disk.identity(self._directory)[:2]:
                raise deleted(self._session_id)
        finally:
            if live is not None:
                disk.close(live)

    def _shut_out(self) -> Lock:
        """Put another lock file, which is locked, in the place of the one that others may wait for."""
        temporary = self._temporary(names.LOCK)
        lock = Lock(disk.create_file(self._directory, temporary), self._path(names.LOCK))
        lock.acquire(self._timeout)
        disk.move(self._directory, temporary, self._directory, names.LOCK)
        return lock

    # -- looking --------------------------------------------------------------------------------

    def _mend(self, locks: list[Lock]) -> Repaired:
        active = self._look_at_active()
        before, sealed = self._look_at_sealed(active)
        gaps = _gaps(sealed, before)
        missing = [
            Finding("damage", self._path(), 0, 0, f"the segment with events {a} to {b} is missing")
            for a, b in gaps
        ]
        damaged = [old for old in [*sealed, active] if old.damaged]
        if not damaged and not (missing and self._fill_missing):
            return Repaired(missing=missing)
        for old in damaged:
            self._keep(old)
        made = [self._write_sealed(old, end) for old, end in _ends(sealed, before) if old.damaged]
        if self._fill_missing:
            made += [self._write_missing(*gap) for gap in gaps]
            self._findings += missing
            missing = []
        made.insert(0, self._write_active(active, before, sealed))
        locks.append(self._shut_out())
        self._put_in_place(made, active)
        return Repaired(
            self._findings,
            self._lost,
            self._kept,
            self._salvaged,
            sorted(self._unchecked),
            self._controls,
            missing,
        )

    def _look_at_active(self) -> _Old:
        try:
            file = disk.open_file(self._directory, names.LOG)
        except FileNotFoundError:
            raise self._not_found() from None
        path = self._path(names.LOG)
        whole = disk.Open(file)
        try:
            segment = Segment(disk.duplicate(file), path, None)
        except Damaged:
            survey = mending.Survey(mending.Raw(disk.duplicate(file), path))
            if names.encode(self._session_id) != self._name and self._name != names.AUDIT:
                raise  # a hashed name: only the header had the id, and it is gone
            self._check_owner(survey.header.line, path)
            return _Old(names.LOG, 0, whole, survey=survey)
        if segment.session_id != self._session_id:
            # Whole, and another's: nothing to mend, and nothing that may be mixed with this one.
            raise segment.damaged(0, f"this is the log of session {segment.session_id!r}")
        first = segment.start.seq + 1
        survey = mending.Survey(mending.Raw(disk.duplicate(file), path))
        try:
            end, time, shut = _check(segment)
        except Damaged:
            end, time, shut = None, "", survey.shut
        if DELETED in shut:
            raise deleted(self._session_id)
        return _Old(names.LOG, first, whole, end, time, survey, damaged=end is None)

    def _look_at_sealed(self, active: _Old) -> tuple[int, list[_Old]]:
        """Return the seq before the active segment, and the segments that stand before that."""
        files = sorted(
            (first, name)
            for name in disk.names(self._directory)
            if (first := names.sealed_first_seq(name)) is not None
            and not (active.first and first >= active.first)
            and not self._is_active(name)
        )
        found: list[_Old] = []
        last = 0
        for first, name in dict(files).items():
            old = self._look_at(name, first)
            if old.end is not None and old.end.seq <= last:
                continue  # what an interrupted compaction has left of what it joined
            found.append(old)
            last = max(last, old.end.seq if old.end else 0)
        if active.first:
            return active.first - 1, found
        if found:
            survey = found[-1].survey
            return (survey.lost_upto if survey else last), found
        return self._before(active.survey), found

    def _is_active(self, name: str) -> bool:
        """Say whether this is a second name of the active segment, left by a crash while it was sealed."""
        same = disk.stamp(self._directory, name) == disk.stamp(self._directory, names.LOG)
        return same and not name.endswith(".zst")

    def _look_at(self, name: str, first: int) -> _Old:
        path = self._path(name)
        file = disk.Open(disk.open_file(self._directory, name))
        packed = name.endswith(".zst")
        try:
            segment: Segment
            if packed:
                sealed = Sealed(
                    disk.duplicate(file.descriptor), path, self._session_id, self._root.dictionary
                )
                sealed.check()
                segment = sealed
            else:
                segment = Segment(disk.duplicate(file.descriptor), path, self._session_id)
            end, time, _ = _check(segment)
            head = Reader(segment).first(end)
            return _Old(
                name, first, file, end, time, None, damaged=False, head=head, created=segment.time
            )
        except Damaged:
            pass
        if not packed:
            survey = mending.Survey(mending.Raw(disk.duplicate(file.descriptor), path))
            self._check_owner(survey.header.line, path)
            return _Old(name, first, file, survey=survey, head=survey.first())
        temporary = self._temporary("thawed")
        spool = disk.create_file(self._directory, temporary)
        raw = mending.Raw(spool, path)
        thawed = thaw(file.descriptor, path, spool, self._root.dictionary)
        survey = mending.Survey(raw, thawed.known_at)
        self._check_owner(survey.header.line, path)
        inner = [
            inspection.Finding(found.offset, found.length, f"unpacked: {found.reason}")
            for found in survey.findings
            if found.length > len(b"\0\n")  # what stands for a frame is among the others
        ]
        findings = (*thawed.findings, *inner)
        return _Old(
            name,
            first,
            file,
            survey=survey,
            findings=findings,
            index=thawed.index,
            controls=thawed.controls,
            head=survey.first(),
        )

    def _check_owner(self, header: bytes, path: str) -> None:
        if not header:
            return
        found = format.decode_header(format.decode_line(header).data).session
        if found != self._session_id:
            hint = "nothing was changed; put it back where it belongs"
            raise Damaged(path, 0, f"this is the log of session {found!r}", hint)

    def _before(self, survey: mending.Survey | None) -> int:
        """Return the seq before the first event of a log whose header is lost."""
        assert survey is not None  # a header that is whole says it
        first = survey.first()
        if first is not None and first.kind == SESSION_FORKED:
            return first.seq - 1  # with this, and with nothing else, a log may begin behind 0
        said = survey.header.before
        if said is not None and (first is None or said < first.seq):
            return said
        return 0

    # -- keeping --------------------------------------------------------------------------------

    def _keep(self, old: _Old) -> None:
        """Copy a damaged file to a name of its own, durably."""
        assert old.survey is not None  # only what is damaged is kept
        name = names.damaged(old.name, old.first or 1, self._now.decode())
        temporary = self._temporary(name)
        target = disk.Open(disk.create_file(self._directory, temporary))
        offset = 0
        while data := disk.read_at(old.segment.descriptor, _PIECE, offset):
            disk.write_all(target.descriptor, data)
            offset += len(data)
        disk.sync(target.descriptor)
        disk.publish(self._directory, temporary, name)
        disk.sync_directory(self._directory)
        self._kept.append(name)
        path = self._path(old.name)
        found = old.findings or tuple(old.survey.findings)
        if not found:
            found = (inspection.Finding(0, offset, "it does not hold what it should"),)
        self._findings += [Finding("damage", path, *finding) for finding in found]
        self._unchecked += old.survey.unchecked
        self._controls += old.survey.controls

    # -- writing --------------------------------------------------------------------------------

    def _lines(
        self, old: _Old, before: int, upto: int, spare: dict[int, Line], time: str
    ) -> Iterator[Line]:
        """Yield a record for each seq; note those that are lost."""
        survey = old.survey
        kept = msgspec.json.encode({"kept": self._kept_as(old)})
        lost = Line(0, time, msgspec.Raw(kept), "", kind=EVENT_LOST)
        found = iter(()) if survey is None else survey.records(before, upto)
        for line in mending.filled(found, before, upto, lost, spare):
            if line.kind == EVENT_LOST and line.data is lost.data:
                self._note_lost(line.seq)
            else:
                self._salvaged += 1
            yield line

    def _kept_as(self, old: _Old) -> str:
        """Return the name under which a segment's damaged bytes are kept: nothing if there are none."""
        if not (old.damaged and old.name):
            return ""
        return names.damaged(old.name, old.first or 1, self._now.decode())

    def _is_lost(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self._lost)

    def _note_lost(self, seq: int) -> None:
        if self._lost and self._lost[-1][1] == seq - 1:
            self._lost[-1] = (self._lost[-1][0], seq)
        else:
            self._lost.append((seq, seq))

    def _write_sealed(self, old: _Old, upto: int) -> _New:
        survey = old.survey
        assert survey is not None  # only what is damaged is written anew
        if not old.name.endswith(".zst"):
            return self._write_plain(old, upto)
        index = old.index
        created = index.created if index else survey.header.created or self._known.created
        created = created or self._now.decode()
        blank = frozenset(index.blank if index else ())
        lines = self._lines(old, old.first - 1, upto, old.controls, created)
        return self._seal(
            old.name, old.first - 1, created, lines, blank, list(index.parts) if index else []
        )

    def _write_missing(self, first: int, last: int) -> _New:
        created = self._known.created or self._now.decode()
        nothing = _Old("", first, disk.Open(-1))
        lines = self._lines(nothing, first - 1, last, {}, created)
        return self._seal(names.sealed(first), first - 1, created, lines, frozenset(), [])

    def _seal(
        self,
        name: str,
        before: int,
        created: str,
        lines: Iterator[Line],
        blank: frozenset[int],
        parts: list[str],
    ) -> _New:
        import zstandard

        temporary = self._temporary(name)
        file = disk.Open(disk.create_file(self._directory, temporary))
        data = {"version": format.VERSION, "session": self._session_id, "created": created}
        head, crc = format.note("header", before, created.encode(), data, 0)
        sealer = Sealer(
            file.descriptor,
            head,
            Mark(len(head), before, crc),
            session_id=self._session_id,
            created=created,
            compress=zstandard.ZstdCompressor(level=_LEVEL).compress,
        )
        for line in lines:
            sealer.add(line, bytes(line.data), blank=line.seq in blank)
        sealer.keep_parts(parts)
        sealer.finish()
        return _New(temporary, name)

    def _write_plain(self, old: _Old, upto: int) -> _New:
        """Write a sealed segment that is not compressed yet."""
        survey = old.survey
        assert survey is not None  # only what is damaged is written anew
        before = old.first - 1
        temporary = self._temporary(old.name)
        file = disk.Open(disk.create_file(self._directory, temporary))
        created = survey.header.created or self._known.created or self._now.decode()
        head = survey.header.line or self._header(before, {"created": created})
        lines = Reframer(file.descriptor, head, before)
        for line in self._lines(old, before, upto, {}, created):
            lines.add(line)
        lines.note("sealed", self._now, {"shut": ["sealed"]})
        lines.finish()
        return _New(temporary, old.name)

    def _write_active(self, active: _Old, before: int, sealed: list[_Old]) -> _New:
        """Write the active segment: what it held, and what was done, which thus comes together."""
        survey = active.survey
        assert survey is not None  # made for this
        upto = max(survey.lost_upto, before)
        if active.damaged:
            upto = max(upto, self._known.seq)
        temporary = self._temporary(names.LOG)
        file = disk.Open(disk.create_file(self._directory, temporary))
        created = self._created(active, before, sealed)
        head = survey.header.line
        if not head or (sealed and self._is_lost(sealed[0].first)):
            # It says of what kind the first event of all is, and that is not so any more.
            head = self._header(before, self._facts(created, before, sealed))
        lines = Reframer(file.descriptor, head, before)
        for line in self._lines(active, before, upto, {}, created):
            lines.add(line)
        done = msgspec.Raw(msgspec.json.encode(self._record()))
        time = self._now.decode()
        lines.add(Line(upto + 1, time, done, "", kind=SESSION_REPAIRED, control=True))
        lines.finish()
        return _New(temporary, names.LOG)

    def _record(self) -> dict[str, Any]:
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
        return {"damage": damage, "lost": self._lost[:_NAMED], "kept": self._kept}

    # -- a header that is lost ------------------------------------------------------------------

    def _header(self, before: int, facts: dict[str, Any]) -> bytes:
        data = {"version": format.VERSION, "session": self._session_id, **facts}
        time = facts.get("created", "").encode() or self._now
        if "previous" not in facts:
            # The first segment's says when the session began by its own time.
            data.pop("created", None)
        return format.note("header", before, time, data, 0)[0]

    def _created(self, active: _Old, before: int, sealed: list[_Old]) -> str:
        """Return when the session began, from whoever still knows it."""
        survey = active.survey
        assert survey is not None
        said = [old.index.created for old in sealed if old.index is not None]
        said += [old.created for old in sealed if old.created]
        # The children of a session know when it began, and know it by that.
        said += [self._known.created, survey.header.created or ""]
        first = survey.first()
        if first is not None and first.seq == before + 1 and not sealed:
            # A session's header and its first event are written at one time.
            said.append(first.time)
        return next((time for time in said if time), self._now.decode())

    def _facts(self, created: str, before: int, sealed: list[_Old]) -> dict[str, Any]:
        """Return what the header of a segment says that follows others."""
        if not sealed:
            return {"created": created}
        last = sealed[-1]
        crc, time = (last.end.crc, last.time) if last.end is not None else (0, created)
        facts: dict[str, Any] = {
            "previous": {"seq": before, "crc": crc, "time": time},
            "created": created,
        }
        first = sealed[0].head
        if first is None or first.seq != sealed[0].first:
            first = Line(sealed[0].first, created, msgspec.Raw(b""), "", kind=EVENT_LOST)
        facts["first"] = {"seq": first.seq, "time": first.time, "kind": first.kind}
        return facts

    # -- putting in place -----------------------------------------------------------------------

    def _put_in_place(self, made: list[_New], active: _Old) -> None:
        """Give the new segments their names. The caller has shut out everybody else."""
        directory = self._directory
        for name in list(disk.names(directory)):
            # A second name of the damaged file would be taken for a sealed segment by and by; and what was
            # derived from the log may say what is lost.
            if name == names.CHECKPOINT or (
                names.sealed_first_seq(name) is not None and self._is_active(name)
            ):
                disk.remove(directory, name)
        del active
        # The active one, with the record of all this, first: nothing is mended without a trace.
        for new in made:
            disk.move(directory, new.temporary, directory, new.name)
            disk.sync_directory(directory)

    # -- small things ---------------------------------------------------------------------------

    def _path(self, file: str = "") -> str:
        return self._root.path_of(self._name, file)

    def _temporary(self, base: str) -> str:
        """Return a name for a file that goes if this ends before it got another."""
        name = names.temporary(base)
        self._temporaries.append(name)
        return name

    def _not_found(self) -> HansardError:
        return SessionNotFound(f"no session {self._session_id!r} in this store")


def _check(segment: Segment) -> tuple[Mark, str, tuple[str, ...]]:
    """Check every byte of a segment; return its end, when its last event was written, and its notes' word."""
    reader = Reader(segment, segment.marks() if isinstance(segment, Sealed) else None)
    tail = segment.tail() if isinstance(segment, Sealed) else reader.tail()
    for piece in reader.forwards(segment.start, tail.mark):
        inspection.committed(segment, piece.start, piece.data, piece.end)
    return tail.mark, tail.time or last_time(reader, tail.mark), tail.shut


def _ends(sealed: list[_Old], before: int) -> list[tuple[_Old, int]]:
    """Return each segment with the last seq that it is to hold: the next one goes on from there."""
    nexts = [*(old.first - 1 for old in sealed[1:]), before][: len(sealed)]
    return [(old, max(end, old.first - 1)) for old, end in zip(sealed, nexts, strict=True)]


def _gaps(sealed: list[_Old], before: int) -> list[tuple[int, int]]:
    """Return the stretches of seqs whose segments are not there at all."""
    if not sealed:
        return []
    gaps = []
    for old, end in _ends(sealed, before):
        if old.end is not None and old.end.seq < end:
            gaps.append((old.end.seq + 1, end))
    return gaps
