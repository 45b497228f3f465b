"""Look at everything that is stored, and report.

Above: `store`, `session`.  Below: `backend.contract`.
"""

from collections.abc import Iterable

import msgspec

from hansard.backend.contract import Backend, Finding
from hansard.errors import (
    Damaged,
    DiskFailed,
    SessionDeleted,
    SessionNotFound,
    UnknownFormat,
    UnsafePath,
)
from hansard.log import names
from hansard.state import lineage
from hansard.upkeep import collection


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
    def ok(self) -> bool:
        """True if there is no damage."""
        return not any(finding.severity == "damage" for finding in self.findings)


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
    backend: Backend,
    session_id: str,
    known: collection.Known | None = None,
    sound: set[str] | None = None,
) -> SessionReport:
    """Check all of a session, the large content that it refers to, and what it was forked from.

    `known`, `sound`: see `collection` and `lineage.check`.
    """
    log = backend.log(session_id)
    findings = log.verify()
    try:
        lineage.check(backend, session_id, set() if sound is None else sound)
    except Damaged as error:
        if not any(finding.severity == "damage" for finding in findings):
            findings.append(Finding("damage", error.path, error.offset, 0, error.reason))
    seq = 0
    try:
        head = log.head()
        seq = head.seq if head is not None else 0
        findings += collection.findings(log, {} if known is None else known)
    except Damaged:
        pass  # which is among the findings
    return SessionReport(session_id, seq, findings)


def verify_store(backend: Backend, session_ids: Iterable[str]) -> StoreReport:
    """Check sessions one by one; one that cannot be read is a finding and stops no other."""
    reports = []
    known: collection.Known = {}
    sound: set[str] = set()
    for session_id in sorted(session_ids):
        try:
            reports.append(verify_session(backend, session_id, known, sound))
        except SessionDeleted:
            continue
        except (DiskFailed, UnknownFormat, UnsafePath) as error:
            finding = Finding("damage", backend.where, 0, 0, str(error))
            reports.append(SessionReport(session_id, 0, [finding]))
    return StoreReport([*reports, *_verify_audit(backend), *_verify_shared(backend)])


def _verify_shared(backend: Backend) -> list[SessionReport]:
    """Check what all sessions share: in the report only if something is wrong with it."""
    try:
        findings = backend.shared_findings()
    except (DiskFailed, UnsafePath) as error:
        findings = [Finding("damage", backend.where, 0, 0, str(error))]
    return [SessionReport(names.SHARED, 0, findings)] if findings else []


def _verify_audit(backend: Backend) -> list[SessionReport]:
    """Check the audit log, which is no session: it is in the report only if something is wrong with it."""
    if backend.prefix:
        return []  # a part of a store; the whole looks after it
    try:
        findings = backend.audit().verify()
    except SessionNotFound:
        return []
    except (DiskFailed, UnknownFormat, UnsafePath) as error:
        findings = [Finding("damage", backend.where, 0, 0, str(error))]
    return [SessionReport(names.AUDIT, 0, findings)] if findings else []
