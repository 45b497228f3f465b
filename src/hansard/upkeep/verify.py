"""Look at everything that is stored, and report.

Above: `store`, `session`.  Below: `backend.contract`.
"""

from collections.abc import Iterable

import msgspec

from hansard.backend.contract import Backend, Finding
from hansard.errors import Damaged, DiskFailed, SessionDeleted, UnknownFormat, UnsafePath


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


def verify_session(backend: Backend, session_id: str) -> SessionReport:
    """Check all of a session."""
    log = backend.log(session_id)
    findings = log.verify()
    seq = 0
    try:
        head = log.head()
        seq = head.seq if head is not None else 0
    except Damaged:
        pass  # which is among the findings
    return SessionReport(session_id, seq, findings)


def verify_store(backend: Backend, session_ids: Iterable[str]) -> StoreReport:
    """Check sessions one by one; one that cannot be read is a finding and stops no other."""
    reports = []
    for session_id in sorted(session_ids):
        try:
            reports.append(verify_session(backend, session_id))
        except SessionDeleted:
            continue
        except (DiskFailed, UnknownFormat, UnsafePath) as error:
            finding = Finding("damage", backend.where, 0, 0, str(error))
            reports.append(SessionReport(session_id, 0, [finding]))
    return StoreReport(reports)
