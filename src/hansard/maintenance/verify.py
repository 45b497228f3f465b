"""Verify stored sessions, and repair damaged ones.

Repair is never automatic: the caller has seen the report of `verify`, and may have a backup. It keeps the
valid records and the damaged bytes, and reports what was lost. Forks of a damaged session may still know its
last seq and when it began.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from hansard.backend.contract import (
    WRONG_CHECKPOINT,
    Backend,
    Finding,
    LogReader,
    RepairHints,
    RepairReport,
)
from hansard.errors import (
    Damaged,
    DiskFailed,
    ReadOnly,
    SessionDeleted,
    SessionNotFound,
    UnknownFormat,
    UnsafePath,
)
from hansard.state import fold, lineage, redaction
from hansard.state.lineage import forks


class SessionReport(msgspec.Struct, frozen=True):
    """What `verify` found in one session.

    Attributes:
        session: the session's id.
        seq: its last seq; 0 if the log cannot be read.
        findings: damage, and notes about what is normal after a crash.
    """

    session: str
    seq: int
    findings: list[Finding]

    @property
    def damage(self) -> list[Finding]:
        """The findings that are damage."""
        return [finding for finding in self.findings if finding.severity == "damage"]

    @property
    def ok(self) -> bool:
        """True if nothing is damaged."""
        return not self.damage


class StoreReport(msgspec.Struct, frozen=True):
    """What `verify` found in a store.

    Attributes:
        sessions: one report per session, sorted by id, and one per internal log with findings.
    """

    sessions: list[SessionReport]

    @property
    def ok(self) -> bool:
        """True if no session is damaged."""
        return all(session.ok for session in self.sessions)

    @property
    def findings(self) -> list[Finding]:
        """The findings of all sessions."""
        return [finding for session in self.sessions for finding in session.findings]


def verify_session(
    backend: Backend, session_id: str, sound: set[str] | None = None
) -> SessionReport:
    """Check a session and its ancestors. `sound`: see `lineage.check`."""
    log = backend.log(session_id)
    report = SessionReport(session_id, 0, log.verify())
    try:
        lineage.check(backend, session_id, set() if sound is None else sound)
    except Damaged as error:
        if report.ok:
            report.findings.append(Finding("damage", error.path, error.offset, 0, error.reason))
    with suppress(Damaged):  # already one of the findings
        reader = log.reader()
        head = reader.head()
        report = msgspec.structs.replace(report, seq=0 if head is None else head.seq)
        if report.ok:
            report.findings.extend(_compare_checkpoint(reader))
    return report


def _compare_checkpoint(log: LogReader) -> Iterator[Finding]:
    """Compare the state in the checkpoint with the state of the events."""
    found = log.checkpoint()
    if found is None:
        return
    seq, saved, where = found
    redactions = redaction.of(log.controls())
    state = fold.load(saved, redactions)
    if state is None:
        reason = "events were redacted after it, or another version wrote it"
        hint = "readers ignore it, and the next compaction replaces it"
        yield Finding("note", where, 0, 0, f"this checkpoint is stale ({reason}): {hint}")
    elif state != fold.replay(log, upto=seq, redactions=redactions):
        reason = "this checkpoint differs from the state of the log"
        yield Finding("damage", where, 0, 0, f"{reason}; {WRONG_CHECKPOINT}")


#: Prefix of an internal log's name in a report: no session's directory begins so.
_INTERNAL: Final = "~"


def verify_store(backend: Backend, session_ids: Iterable[str]) -> StoreReport:
    """Check sessions one by one; a session that cannot be read is a finding and does not stop the others."""
    reports: list[SessionReport] = []
    sound: set[str] = set()
    for session_id in sorted(session_ids):
        with _reporting(backend, session_id, reports):
            reports.append(verify_session(backend, session_id, sound))
    # The internal logs are not sessions, and belong to the unscoped store.
    if not backend.prefix:
        with _reporting(backend, _INTERNAL, reports):
            for name in backend.internals():
                with _reporting(backend, _INTERNAL + name, reports):
                    if findings := backend.internal(name).verify():
                        reports.append(SessionReport(_INTERNAL + name, 0, findings))
    return StoreReport(reports)


@contextmanager
def _reporting(backend: Backend, name: str, reports: list[SessionReport]) -> Iterator[None]:
    """Add a report of what cannot be read."""
    try:
        yield
    except (SessionDeleted, SessionNotFound):
        pass  # deleted since it was listed
    except (DiskFailed, UnknownFormat, UnsafePath) as error:
        finding = Finding("damage", backend.where, 0, 0, str(error))
        reports.append(SessionReport(name, 0, [finding]))


def repair_session(backend: Backend, session_id: str, *, missing: bool = False) -> RepairReport:
    """Repair one session, if it is damaged. `missing`: accept the loss of missing segments."""
    if backend.read_only:
        raise ReadOnly(f"{backend.where}: store is read-only; reopen without read_only=True")
    before = verify_session(backend, session_id)
    if before.ok:
        return RepairReport(session_id)
    wrong = [one for one in before.damage if one.reason.endswith(WRONG_CHECKPOINT)]
    # What the forks of the session know about it.
    children = [one for _, one in forks(backend) if one is not None and one.parent == session_id]
    seq = max((one.seq for one in children), default=0)
    created = next((one.created for one in children if one.created), "")
    known = RepairHints(seq, created, wrong_checkpoint=bool(wrong))
    done = backend.log(session_id).repair(known, missing=missing)
    done = msgspec.structs.replace(done, findings=[*wrong, *done.findings])
    return msgspec.structs.replace(done, left=verify_session(backend, session_id).damage)
