"""Look at everything that is stored, and report."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from hansard.backend.contract import WRONG_CHECKPOINT, Backend, Finding, Log, LogReader
from hansard.errors import (
    Damaged,
    DiskFailed,
    SessionDeleted,
    SessionNotFound,
    UnknownFormat,
    UnsafePath,
)
from hansard.event import kinds
from hansard.event.kinds import MESSAGE_PART
from hansard.maintenance.compact import compaction_filter, controls_of
from hansard.state import fold, lineage, redaction


class SessionReport(msgspec.Struct, frozen=True):
    """What `verify` found in one session.

    Attributes:
        session: the session's id.
        seq: its last event, as far as it can be read.
        findings: damage, and notes on what is normal after a crash.
    """

    session: str
    seq: int
    findings: list[Finding]

    @property
    def damage(self) -> list[Finding]:
        """Those of the findings that are damage."""
        return [finding for finding in self.findings if finding.severity == "damage"]

    @property
    def ok(self) -> bool:
        """True if there is no damage."""
        return not self.damage


class StoreReport(msgspec.Struct, frozen=True):
    """What `verify` found in a store, session by session."""

    sessions: list[SessionReport]

    @property
    def ok(self) -> bool:
        """True if there is no damage in any session."""
        return all(session.ok for session in self.sessions)

    @property
    def findings(self) -> list[Finding]:
        """What was found, in all sessions."""
        return [finding for session in self.sessions for finding in session.findings]


def verify_session(
    backend: Backend, session_id: str, sound: set[str] | None = None
) -> SessionReport:
    """Check all of a session, and what it was forked from. `sound`: see `lineage.check`."""
    log = backend.log(session_id)
    findings = log.verify()
    try:
        lineage.check(backend, session_id, set() if sound is None else sound)
    except Damaged as error:
        if not any(finding.severity == "damage" for finding in findings):
            findings.append(Finding("damage", error.path, error.offset, 0, error.reason))
    seq = 0
    try:
        reader = log.reader()
        head = reader.head()
        seq = head.seq if head is not None else 0
        if not any(finding.severity == "damage" for finding in findings):
            findings += [
                *_compare_checkpoint(reader, log.checkpoint_file()),
                *_compare_taken_out(log),
            ]
    except Damaged:
        pass  # which is among the findings
    return SessionReport(session_id, seq, findings)


def _compare_checkpoint(log: LogReader, where: str) -> Iterator[Finding]:
    """Compare the state that the last compaction saved with what the events add up to."""
    found = log.checkpoint()
    if found is None:
        return
    seq, saved = found
    redactions = redaction.of(log.controls())
    state = fold.load(saved, redactions)
    if state is None:
        reason = "something was taken out since, or another version wrote it"
        hint = "it is passed over, and the next compaction writes another"
        yield Finding("note", where, 0, 0, f"this checkpoint is stale ({reason}): {hint}")
    elif state != fold.replay(log, upto=seq, redactions=redactions):
        reason = "this checkpoint has another state than the log"
        yield Finding("damage", where, 0, 0, f"{reason}; {WRONG_CHECKPOINT}")


def _compare_taken_out(log: Log) -> list[Finding]:
    """See that what is said to have been taken out was: nobody looks for it there again."""
    where = log.checkpoint_file().rpartition("/")[0]
    reason = "is said to have been taken out, and is still there"
    return [Finding("damage", where, 0, 0, f"event {seq} {reason}") for seq in untrue(log)]


def untrue(log: Log) -> list[int]:
    """Return the seqs of events that are there although an index says that they were taken out."""
    filter = compaction_filter(partial(controls_of, log), set)
    found = []
    for event in log.taken_out(filter):
        if event.kind == MESSAGE_PART:
            part = kinds.read(MESSAGE_PART, event.raw)
            if part is None or not part.text:
                continue  # superseded: whatever becomes of it, there is nothing left
        if filter.mask(event).raw != event.raw:
            found.append(event.seq)
    return found


#: What an internal log's name begins with in a report: no directory of a session has such a name.
_INTERNAL: Final = "~"


def verify_store(backend: Backend, session_ids: Iterable[str]) -> StoreReport:
    """Check sessions one by one; one that cannot be read is a finding and stops no other."""
    reports = []
    sound: set[str] = set()
    for session_id in sorted(session_ids):
        try:
            reports.append(verify_session(backend, session_id, sound))
        except (SessionDeleted, SessionNotFound):
            continue  # deleted since it was listed
        except (DiskFailed, UnknownFormat, UnsafePath) as error:
            finding = Finding("damage", backend.where, 0, 0, str(error))
            reports.append(SessionReport(session_id, 0, [finding]))
    return StoreReport([*reports, *_verify_internal(backend)])


def _verify_internal(backend: Backend) -> Iterator[SessionReport]:
    """Check the internal logs, which are not sessions: only those with findings are in the report."""
    if backend.prefix:
        return  # a scoped store; they belong to the unscoped one
    try:
        found = backend.internals()
    except (DiskFailed, UnsafePath) as error:
        yield SessionReport(_INTERNAL, 0, [Finding("damage", backend.where, 0, 0, str(error))])
        return
    for name in found:
        try:
            findings = backend.internal(name).verify()
        except SessionNotFound:
            continue  # dropped since it was listed
        except (DiskFailed, UnknownFormat, UnsafePath) as error:
            findings = [Finding("damage", backend.where, 0, 0, str(error))]
        if findings:
            yield SessionReport(_INTERNAL + name, 0, findings)
