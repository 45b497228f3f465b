"""Look at the files of a session as a repair finds them: which are whole, and what is left of the others.

Above: `repair`.  Below: `log`.
Nothing is changed here; what a sealed segment still holds is unpacked into a temporary file. The caller
holds the session's lock, and that of its compaction.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from hansard.backend.records import stream_of
from hansard.errors import Damaged, HansardError, SessionNotFound
from hansard.event.kinds import SESSION_FORKED
from hansard.log import disk, format, inspection, mending, names
from hansard.log.comparison import compare
from hansard.log.format import Line, Mark
from hansard.log.handle import DELETED, SEALED
from hansard.log.reader import Reader
from hansard.log.sealed import Index, Sealed
from hansard.log.segment import Raw, Segment
from hansard.log.store_directory import StoreDirectory, deleted
from hansard.log.thawing import thaw
from hansard.log.writer import last_time


class Site:
    """Where a repair is at work: a session's directory, and what it has left lying there."""

    __slots__ = ("_open", "directory", "name", "root", "session_id", "temporaries")

    def __init__(self, root: StoreDirectory, session_id: str, name: str, directory: int) -> None:
        self.root = root
        self.session_id = session_id
        self.name = name
        self.directory = directory
        self.temporaries: list[str] = []
        #: Open until the end, so that they are not swept.
        self._open: list[disk.OwnedFd] = []

    def path(self, file: str = "") -> str:
        """Return a path, for people."""
        return self.root.path_of(self.name, file)

    def temporary(self, base: str) -> tuple[str, disk.OwnedFd]:
        """Create a file that goes if it has no other name by the end; return its name, and the open file."""
        name = names.temporary(base)
        self.temporaries.append(name)
        file = disk.OwnedFd(disk.create_file(self.directory, name))
        self._open.append(file)
        return name, file

    def is_active(self, name: str) -> bool:
        """Say whether this is a second name of the active segment, left by a crash while it was sealed."""
        same = disk.stamp(self.directory, name) == disk.stamp(self.directory, names.LOG)
        return same and not name.endswith(".zst")

    def not_found(self) -> HansardError:
        """Return the error for a session that is not there."""
        return SessionNotFound(f"no session {self.session_id!r} in this store")


class Found(NamedTuple):
    """A segment as it is: whole, with its end, or damaged, with what is left of it."""

    name: str
    first: int
    segment: disk.OwnedFd
    #: Where it ends, if it is whole, and when its last event was written.
    end: Mark | None = None
    time: str = ""
    #: What is left of it, if it is not; of the active segment in any case.
    survey: mending.Survey | None = None
    damaged: bool = True
    findings: tuple[inspection.Finding, ...] = ()
    inventory: Index | None = None
    controls: Mapping[int, Line] = MappingProxyType({})
    #: Its first record, and when the session began, if it is whole.
    head: Line | None = None
    created: str = ""
    #: Whether the log begins with it, as far as it says.
    begins: bool = True
    #: Of the active one: the first seq of all, or 0 if its header is lost.
    start: int = 0


class Look:
    """One look at all segments of a session."""

    __slots__ = ("_begin", "_site", "_untrue")

    def __init__(self, site: Site, untrue: frozenset[int] = frozenset()) -> None:
        """`untrue`: see `Known`."""
        self._site = site
        self._untrue = untrue
        #: The seq with which the log begins, as far as the active segment says it.
        self._begin: int | None = None

    def active(self) -> Found:
        """Look at the active segment."""
        try:
            file = disk.open_file(self._site.directory, names.LOG)
        except FileNotFoundError:
            raise self._site.not_found() from None
        path = self._site.path(names.LOG)
        whole = disk.OwnedFd(file)
        try:
            segment = Segment(disk.duplicate(file), path, None)
        except Damaged:
            survey = mending.Survey(Raw(disk.duplicate(file), path))
            if names.encode(self._site.session_id) != self._site.name:
                raise  # a hashed name: only the header had the id, and it is gone
            self._check_owner(survey.header.line, path)
            return Found(names.LOG, 0, whole, survey=survey)
        if segment.session_id != self._site.session_id:
            # Whole, and another's: nothing to mend, and nothing that may be mixed with this one.
            raise segment.damaged(0, f"this is the log of session {segment.session_id!r}")
        first = segment.start.seq + 1
        survey = mending.Survey(Raw(disk.duplicate(file), path))
        try:
            end, time, shut = _check(segment)
        except Damaged:
            end, time, shut = None, "", survey.shut
        # One that was being deleted or restored when it was damaged is here, and neither was acknowledged.
        if DELETED in shut and end is not None:
            raise deleted(self._site.session_id)
        start = first
        if segment.previous is not None:
            start = 1
            if segment.first_record:
                self._begin = start = format.decode_first(segment.first_record).seq
        return Found(names.LOG, first, whole, end, time, survey, damaged=end is None, start=start)

    def sealed(self, active: Found) -> tuple[int, list[Found]]:
        """Return the seq before the active segment, and the segments that stand before that."""
        files = sorted(
            (first, name)
            for name in disk.names(self._site.directory)
            if (first := names.sealed_first_seq(name)) is not None
            and not (active.first and first >= active.first)
            and not self._site.is_active(name)
        )
        found: list[Found] = []
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
            if survey is None:
                return last, found
            # Somewhere between the two, and what is lost there is lost in either.
            behind = active.survey.first() if active.survey else None
            return (survey.lost_upto if behind is None else behind.seq - 1), found
        return self._before(active.survey), found

    def _look_at(self, name: str, first: int) -> Found:
        path = self._site.path(name)
        file = disk.OwnedFd(disk.open_file(self._site.directory, name))
        packed = name.endswith(".zst")
        try:
            segment: Segment
            if packed:
                sealed = Sealed(
                    disk.duplicate(file.descriptor),
                    path,
                    self._site.session_id,
                )
                compare(sealed, stream_of)
                self._compare(sealed, first)
                segment = sealed
            else:
                segment = Segment(disk.duplicate(file.descriptor), path, self._site.session_id)
            end, time, shut = _check(segment)
            if SEALED not in shut:
                raise segment.damaged(end.offset, "the file ends here: it has been cut")
            head = Reader(segment).first(end)
            begins = sealed.index.begins if packed else segment.previous is None
            return Found(
                name,
                first,
                file,
                end,
                time,
                damaged=False,
                head=head,
                created=segment.time,
                begins=begins,
            )
        except Damaged as error:
            found = inspection.Finding(error.offset, 0, error.reason)
        if not packed:
            survey = mending.Survey(Raw(disk.duplicate(file.descriptor), path))
            self._check_owner(survey.header.line, path)
            return Found(name, first, file, survey=survey, head=survey.first())
        _, spool = self._site.temporary("thawed")
        raw = Raw(disk.duplicate(spool.descriptor), path)
        thawed = thaw(file.descriptor, path, spool.descriptor)
        # One wrong byte of what is compressed can become many: nothing is believed without its checksum.
        survey = mending.Survey(raw, thawed.known_at, proven_only=True)
        self._check_owner(survey.header.line, path)
        inner = [
            inspection.Finding(lost.offset, lost.length, f"unpacked: {lost.reason}")
            for lost in survey.findings
            if lost.length > len(b"\0\n")  # what stands for a frame is among the others
        ]
        findings = (*thawed.findings, *inner) or (found,)
        return Found(
            name,
            first,
            file,
            survey=survey,
            findings=findings,
            inventory=thawed.inventory,
            controls=thawed.controls,
            head=survey.first(),
            begins=self._begins(first, thawed.inventory),
        )

    def _begins(self, first: int, inventory: Index | None) -> bool:
        if self._begin is not None:
            return self._begin == first
        return inventory is None or inventory.begins

    def _compare(self, sealed: Sealed, first: int) -> None:
        """Compare what an index says with what is known of the session."""
        if self._begin is not None and sealed.index.begins != (self._begin == first):
            raise sealed.damaged(0, "the index is wrong: `begins` is not what the log says")
        if any(first <= seq <= sealed.index.last for seq in self._untrue):
            raise sealed.damaged(0, "the index is wrong: `blank` has what was not taken out")

    def _check_owner(self, header: bytes, path: str) -> None:
        if not header:
            return
        found = format.decode_header(format.decode_line(header).data).session
        if found != self._site.session_id:
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


def _check(segment: Segment) -> tuple[Mark, str, tuple[str, ...]]:
    """Check every byte of a segment; return its end, when its last event was written, and its notes' word."""
    reader = Reader(segment, segment.marks() if isinstance(segment, Sealed) else None)
    tail = segment.tail() if isinstance(segment, Sealed) else reader.tail()
    for piece in reader.forwards(segment.start, tail.mark):
        inspection.committed(segment, piece.start, piece.data, piece.end)
    return tail.mark, tail.time or last_time(reader, tail.mark), tail.shut


def ends(sealed: list[Found], before: int) -> list[tuple[Found, int]]:
    """Return each segment with the last seq that it is to hold: the next one goes on from there."""
    nexts = [*(old.first - 1 for old in sealed[1:]), before][: len(sealed)]
    return [(old, max(end, old.first - 1)) for old, end in zip(sealed, nexts, strict=True)]


def gaps(sealed: list[Found], before: int, start: int) -> list[tuple[int, int]]:
    """Return the stretches of seqs whose segments are not there at all. `start`: the first seq of all."""
    if not sealed:
        return [(start, before)] if start <= before else []
    found = []
    if not sealed[0].begins and start < sealed[0].first:
        found.append((start, sealed[0].first - 1))
    for old, end in ends(sealed, before):
        if old.end is not None and old.end.seq < end:
            found.append((old.end.seq + 1, end))
    return found
