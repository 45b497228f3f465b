"""Repair a damaged session: keep what is valid and a copy of the damaged files, and report.

Only on request: the caller has seen `verify`, and perhaps looked for a backup. What the session's own files
cannot tell any more, its forks may: up to which seq there were events, and when it began.
"""

from contextlib import suppress

import msgspec

from hansard.backend.contract import Backend, Finding, Known
from hansard.errors import Damaged, ReadOnly
from hansard.maintenance.verify import untrue, verify_session
from hansard.state.fork_graph import forks


class RepairReport(msgspec.Struct, frozen=True):
    """What a repair did.

    Attributes:
        session: the session's id.
        findings: the damage that was mended; empty if there was none.
        salvaged: how many events were saved from the damaged files.
        lost: the events that were not, as stretches of seqs: first and last of each.
        unchecked: seqs of events that look whole, but whose checksum could not be checked, since it
            depends on bytes that are lost.
        controls: how many of the lost events are known to have been control events, which change views.
        kept: the files, in the session's directory, that hold the damaged bytes.
        left: damage that is still there: what only a backup can mend.
    """

    session: str
    findings: list[Finding] = []
    salvaged: int = 0
    lost: list[tuple[int, int]] = []
    unchecked: list[int] = []
    controls: int = 0
    kept: list[str] = []
    left: list[Finding] = []

    @property
    def repaired(self) -> bool:
        """True if something was mended."""
        return bool(self.findings)

    @property
    def ok(self) -> bool:
        """True if there is no damage any more."""
        return not self.left


def repair_session(backend: Backend, session_id: str, *, missing: bool = False) -> RepairReport:
    """Mend one session, if it is damaged."""
    if backend.read_only:
        raise ReadOnly(f"{backend.where}: opened with read_only=True; open it again to repair")
    before = verify_session(backend, session_id)
    if before.ok:
        return RepairReport(session_id)
    log = backend.log(session_id)
    damage = before.damage
    wrong = [finding for finding in damage if finding.where == log.checkpoint_file()]
    if wrong:
        # Derived from the log, and of no use: nothing that it says is lost with it.
        log.drop_checkpoint()
        if wrong == damage:
            return RepairReport(session_id, wrong, left=_damage(backend, session_id))
    known = _known(backend, session_id)
    # What is found to be damaged is written anew in any case.
    with suppress(Damaged):
        known = known._replace(untrue=frozenset(untrue(log)))
    done = log.repair(known=known, missing=missing)
    return RepairReport(
        session_id,
        list(done.findings),
        done.salvaged,
        list(done.lost),
        list(done.unchecked),
        done.controls,
        list(done.kept),
        _damage(backend, session_id),
    )


def _damage(backend: Backend, session_id: str) -> list[Finding]:
    """Return the damage that a session has now."""
    return verify_session(backend, session_id).damage


def _known(backend: Backend, session_id: str) -> Known:
    """Return what the forks of a session know of it, as far as they can be read themselves."""
    seq, created = 0, ""
    for _, forked in forks(backend):
        if forked is not None and forked.parent == session_id:
            seq = max(seq, forked.seq)
            created = created or forked.created
    return Known(seq, created)
