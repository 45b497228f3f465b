"""Mend the files of a damaged session.

Above: `local`.  Below: `contract`, `log`.
First look, then keep, then write, then put in place: the damaged files are copied, byte for byte, and the
copies are durable before anything else changes; the new segments are written beside the old ones, whole and
synced; only then do they take their names. Whoever dies in between leaves the log as it was, or mended.

*Writers.* Another process may have the damaged file open, and would go on appending to it after it has lost
its name. So the lock file is replaced first, by one that is locked already: who gets the old lock afterwards
sees that it is no longer the session's, as after a deletion, and opens everything anew. *Readers* see that
the file they have open has no name any more. docs/format.md, F-110 to F-118.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from hansard.backend.contract import Finding, Known, Repaired
from hansard.backend.damage import Found, Look, Site, ends, gaps
from hansard.backend.records import stream_of
from hansard.errors import SessionNotFound
from hansard.event.kinds import EVENT_LOST, SESSION_REPAIRED
from hansard.log import disk, format, inspection, mending, names
from hansard.log.disk import Lock
from hansard.log.format import Line, Mark
from hansard.log.reframing import Reframer
from hansard.log.sealing import Sealer
from hansard.log.store_directory import StoreDirectory, deleted

#: How often to start again when the lock file is replaced under our hands.
_TRIES: Final = 5

#: So many findings, and so many stretches of lost seqs, are written into the log.
_NAMED: Final = 100

_LEVEL: Final = 12
_PIECE: Final = 1 << 20

_UNCHANGED: Final = "the log is as it was, and nothing is lost that was not lost before"


class _New(NamedTuple):
    """A segment that is written, under a temporary name."""

    temporary: str
    name: str


def repair(
    root: StoreDirectory, session_id: str, name: str, *, known: Known, missing: bool, timeout: float
) -> Repaired:
    """Mend what is damaged of a session; return what was done. Nothing is written if nothing is."""
    root.check_writable()
    directory = root.open_session(session_id, name)
    if directory is None:
        raise SessionNotFound(f"no session {session_id!r} in this store")
    site = Site(root, session_id, name, directory)
    try:
        return _Repair(site, known, fill_missing=missing).run(timeout)
    except OSError as error:
        raise disk.explain(error, "repair", site.path(), _UNCHANGED) from error
    finally:
        for temporary in site.temporaries:
            disk.discard(directory, temporary)
        disk.close(directory)


class _Repair:
    """One repair of one session."""

    def __init__(self, site: Site, known: Known, *, fill_missing: bool) -> None:
        self._site = site
        self._known = known
        self._fill_missing = fill_missing
        self._now = format.now()
        self._findings: list[Finding] = []
        self._kept: list[str] = []
        self._lost: list[tuple[int, int]] = []
        self._unchecked: list[int] = []
        self._salvaged = 0
        self._controls = 0
        self._start = 1

    def run(self, timeout: float) -> Repaired:
        """Take the locks, look, and mend."""
        locks: list[Lock] = []
        try:
            locks.append(self._open_lock(names.COMPACTION))
            locks[0].acquire(timeout)
            locks.append(self._session_lock(timeout))
            return self._mend(locks)
        finally:
            for lock in reversed(locks):
                lock.release()

    # -- locks ----------------------------------------------------------------------------------

    def _open_lock(self, name: str) -> Lock:
        file = disk.open_file(self._site.directory, name, writable=True, create=True)
        return Lock(file, self._site.path(name))

    def _session_lock(self, timeout: float) -> Lock:
        """Take the session's lock, and see that it is this session's, here and now."""
        for _ in range(_TRIES):
            lock = self._open_lock(names.LOCK)
            lock.acquire(timeout)
            if lock.exists():
                self._check_in_place()
                return lock
            lock.release()
        raise self._site.not_found()

    def _check_in_place(self) -> None:
        live = self._site.root.open_live(self._site.name)
        try:
            if live is None or disk.identity(live)[:2] != disk.identity(self._site.directory)[:2]:
                raise deleted(self._site.session_id)
        finally:
            if live is not None:
                disk.close(live)

    def _shut_out(self) -> Lock:
        """Put another lock file, which is locked, in the place of the one that others may wait for."""
        temporary = names.temporary(names.LOCK)
        self._site.temporaries.append(temporary)
        lock = Lock(disk.create_file(self._site.directory, temporary), self._site.path(names.LOCK))
        lock.acquire(0.0)  # nobody else knows it
        disk.move(self._site.directory, temporary, self._site.directory, names.LOCK)
        return lock

    # -- the whole of it ------------------------------------------------------------------------

    def _mend(self, locks: list[Lock]) -> Repaired:
        look = Look(self._site, self._known.untrue)
        active = look.active()
        before, sealed = look.sealed(active)
        active = active._replace(first=before + 1)
        missed = gaps(sealed, before, active.start or before + 1)
        missing = [
            Finding(
                "damage", self._site.path(), 0, 0, f"the segment with events {a} to {b} is missing"
            )
            for a, b in missed
        ]
        damaged = [old for old in [*sealed, active] if old.damaged]
        if not damaged and not (missing and self._fill_missing):
            return Repaired(missing=missing)
        for old in damaged:
            self._keep(old)
        # The first seq of all: what begins with it has nothing before it.
        self._start = active.start or before + 1
        if sealed and sealed[0].begins:
            self._start = sealed[0].first
        made = [self._write_sealed(old, end) for old, end in ends(sealed, before) if old.damaged]
        if self._fill_missing:
            made += [self._write_missing(*gap) for gap in missed]
            self._findings += missing
            missing = []
        made.insert(0, self._write_active(active, before, sealed))
        root = self._site.root
        root.marks.leave(root.descriptor, self._site.name)
        locks.append(self._shut_out())
        self._put_in_place(made)
        return Repaired(
            self._findings,
            sorted(self._lost),
            self._kept,
            self._salvaged,
            sorted(set(self._unchecked)),
            self._controls,
            missing,
        )

    # -- keeping --------------------------------------------------------------------------------

    def _keep(self, old: Found) -> None:
        """Copy a damaged file to a name of its own, durably."""
        assert old.survey is not None  # only what is damaged is kept
        name = names.damaged(old.name, old.first, self._now.decode())
        temporary, target = self._site.temporary(name)
        offset = 0
        while data := disk.read_at(old.segment.descriptor, _PIECE, offset):
            disk.write_all(target.descriptor, data)
            offset += len(data)
        disk.sync(target.descriptor)
        disk.publish(self._site.directory, temporary, name)
        disk.sync_directory(self._site.directory)
        self._kept.append(name)
        path = self._site.path(old.name)
        found = old.findings or tuple(old.survey.findings)
        if not found:
            found = (inspection.Finding(0, offset, "it does not hold what it should"),)
        self._findings += [Finding("damage", path, *finding) for finding in found]
        self._unchecked += old.survey.unchecked
        self._controls += old.survey.controls

    # -- writing --------------------------------------------------------------------------------

    def _lines(
        self, old: Found, before: int, upto: int, spare: Mapping[int, Line], time: str
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

    def _kept_as(self, old: Found) -> str:
        """Return the name under which a segment's damaged bytes are kept: nothing if there are none."""
        if not (old.damaged and old.name):
            return ""
        return names.damaged(old.name, old.first, self._now.decode())

    def _is_lost(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self._lost)

    def _note_lost(self, seq: int) -> None:
        if self._lost and self._lost[-1][1] == seq - 1:
            self._lost[-1] = (self._lost[-1][0], seq)
        else:
            self._lost.append((seq, seq))

    def _write_sealed(self, old: Found, upto: int) -> _New:
        survey = old.survey
        assert survey is not None  # only what is damaged is written anew
        if not old.name.endswith(".zst"):
            return self._write_plain(old, upto)
        index = old.inventory
        created = index.created if index else survey.header.created or self._known.created
        created = created or self._now.decode()
        lines = self._lines(old, old.first - 1, upto, old.controls, created)
        return self._seal(old.name, old.first - 1, created, lines, survey.unknown)

    def _write_missing(self, first: int, last: int) -> _New:
        created = self._known.created or self._now.decode()
        nothing = Found("", first, disk.OwnedFd(-1))
        lines = self._lines(nothing, first - 1, last, {}, created)
        return self._seal(names.sealed(first), first - 1, created, lines, {})

    def _seal(
        self,
        name: str,
        before: int,
        created: str,
        lines: Iterator[Line],
        unknown: Mapping[int, bytes],
    ) -> _New:
        import zstandard

        temporary, file = self._site.temporary(name)
        data = {"version": format.VERSION, "session": self._site.session_id, "created": created}
        head, crc = format.note("header", before, created.encode(), data, 0)
        sealer = Sealer(
            file.descriptor,
            head,
            Mark(len(head), before, crc),
            session_id=self._site.session_id,
            created=created,
            compress=zstandard.ZstdCompressor(level=_LEVEL).compress,
            begins=before < self._start,
        )
        # What the index said of taken-out data and of streams may be wrong as well. Streams are in the lines;
        # and what is not called blank is looked at, and called so, by the next compaction.
        streams: dict[str, None] = {}
        for line in lines:
            stream = stream_of(line)
            if stream is not None:
                streams[stream] = None
            sealer.add(line, bytes(line.data), unknown=unknown.get(line.seq, b""))
        sealer.keep_parts(list(streams))
        sealer.finish()
        return _New(temporary, name)

    def _write_plain(self, old: Found, upto: int) -> _New:
        """Write a sealed segment that is not compressed yet."""
        survey = old.survey
        assert survey is not None  # only what is damaged is written anew
        before = old.first - 1
        temporary, file = self._site.temporary(old.name)
        created = survey.header.created or self._known.created or self._now.decode()
        facts: dict[str, Any] = {"created": created}
        if before >= self._start:
            facts["previous"] = {"seq": before, "crc": 0, "time": created}
        head = survey.header.line or self._header(before, facts)
        lines = Reframer(file.descriptor, head, before)
        for line in self._lines(old, before, upto, {}, created):
            lines.add(line, survey.unknown.get(line.seq, b""))
        lines.note("sealed", self._now, {"shut": ["sealed"]})
        lines.finish()
        return _New(temporary, old.name)

    def _write_active(self, active: Found, before: int, sealed: list[Found]) -> _New:
        """Write the active segment: what it held, and what was done, which thus comes together."""
        survey = active.survey
        assert survey is not None  # made for this
        upto = max(survey.lost_upto, before)
        if active.damaged:
            upto = max(upto, self._known.seq)
        temporary, file = self._site.temporary(names.LOG)
        created = self._created(active, before, sealed)
        head = survey.header.line
        if not head or (sealed and self._is_lost(sealed[0].first)):
            # It says of what kind the first event of all is, and that is not so any more.
            head = self._header(before, self._facts(created, before, sealed))
        lines = Reframer(file.descriptor, head, before)
        for line in self._lines(active, before, upto, {}, created):
            lines.add(line, survey.unknown.get(line.seq, b""))
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
        found = {
            "damage": damage,
            "lost": sorted(self._lost)[:_NAMED],
            "unchecked": sorted(set(self._unchecked))[:_NAMED],
            "kept": self._kept,
        }
        return {name: value for name, value in found.items() if value}

    # -- a header that is lost ------------------------------------------------------------------

    def _header(self, before: int, facts: dict[str, Any]) -> bytes:
        data = {"version": format.VERSION, "session": self._site.session_id, **facts}
        time = facts.get("created", "").encode() or self._now
        if "previous" not in facts:
            # The first segment's says when the session began by its own time.
            data.pop("created", None)
        return format.note("header", before, time, data, 0)[0]

    def _created(self, active: Found, before: int, sealed: list[Found]) -> str:
        """Return when the session began, from whoever still knows it."""
        survey = active.survey
        assert survey is not None
        said = [old.inventory.created for old in sealed if old.inventory is not None]
        said += [old.created for old in sealed if old.created]
        # The children of a session know when it began, and know it by that.
        said += [self._known.created, survey.header.created or ""]
        first = survey.first()
        if first is not None and first.seq == before + 1 and not sealed:
            # A session's header and its first event are written at one time.
            said.append(first.time)
        return next((time for time in said if time), self._now.decode())

    def _facts(self, created: str, before: int, sealed: list[Found]) -> dict[str, Any]:
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

    def _put_in_place(self, made: list[_New]) -> None:
        """Give the new segments their names. The caller has shut out everybody else."""
        directory = self._site.directory
        for name in list(disk.names(directory)):
            # A second name of the damaged file would be taken for a sealed segment by and by; and what was
            # derived from the log may say what is lost.
            if name == names.CHECKPOINT or (
                names.sealed_first_seq(name) is not None and self._site.is_active(name)
            ):
                disk.remove(directory, name)
        # The active one, with the record of all this, first: nothing is mended without a trace.
        for new in made:
            disk.move(directory, new.temporary, directory, new.name)
            disk.sync_directory(directory)
