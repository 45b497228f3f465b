"""Find out which large content is referred to, and remove the rest.

Above: `store`, `verify`.  Below: `state.redaction`, `backend.contract`; docs/format.md, F-75 to F-77.
A text is needed as long as a message that holds it can be shown: in any session, in the trash, and in what
a fork inherits, which is its parent's. A message that was redacted needs nothing, and that its text goes is
what redacting is for.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from hansard.backend.contract import Backend, Finding, Log
from hansard.errors import Damaged, DiskFailed, UnsafePath
from hansard.event.large import Gaps, Reference
from hansard.state import redaction


class CollectionReport(msgspec.Struct, frozen=True):
    """What `collect_large` removed, or would remove.

    Attributes:
        removed: how many texts.
        bytes: how many bytes they took.
        kept: how many texts are left.
        dry_run: nothing was removed; these are the numbers of what would be.
    """

    removed: int
    bytes: int
    kept: int
    dry_run: bool


def collect_large(backend: Backend, *, dry_run: bool = False) -> CollectionReport:
    """Remove the large content to which no message refers any more, in any session, forked or deleted.

    Safe beside writers. Raises, and removes nothing, if a session cannot be read: it may refer to anything.
    """
    gone = backend.collect(_all_referred, dry_run=dry_run)
    left = len(backend.contents()) - (len(gone) if dry_run else 0)
    return CollectionReport(len(gone), sum(content.bytes for content in gone), left, dry_run)


def _all_referred(logs: Iterator[Log]) -> set[str]:
    return {
        reference.sha256
        for log in logs
        for _, gaps in referring(log)
        for reference in gaps.references
    }


def referring(log: Log) -> Iterator[tuple[int, Gaps]]:
    """Yield the messages of a session itself that refer to large content, by seq; redacted ones do not."""
    pending = [(seq, gaps) for chunk in log.read() for seq, gaps in chunk.gaps().items()]
    if pending:
        # After the reading: what was redacted meanwhile refers to nothing either. Only the session's
        # own redactions count: what a fork has redacted, its parent still shows.
        hidden = redaction.of(log.controls())
        for seq, gaps in pending:
            # Only messages refer to something, and of dropped history none is left.
            if seq >= hidden.before and seq not in hidden.seqs:
                yield seq, gaps


class Problem(NamedTuple):
    """What is wrong with a content, and where it should be."""

    where: str
    reason: str


#: What was found out about content, by hash and size: None, if it is whole.
Known = dict[tuple[str, int], Problem | None]


def findings(log: Log, known: Known) -> list[Finding]:
    """Check the large content to which a session itself refers; return what is wrong with it.

    `known`: what is known of content from other sessions, to check each file once; added to.
    """
    found = []
    for seq, gaps in referring(log):
        for reference in gaps.references:
            key = (reference.sha256, reference.bytes)
            if key not in known:
                known[key] = _problem(gaps, reference)
            problem = known[key]
            if problem is not None:
                reason = f"session {log.session_id!r}, seq {seq}: {problem.reason}"
                found.append(Finding("damage", problem.where, 0, reference.bytes, reason))
    return found


def _problem(gaps: Gaps, reference: Reference) -> Problem | None:
    try:
        gaps.fetch(reference)
    except Damaged as error:
        return Problem(error.path, error.reason)
    except DiskFailed as error:
        return Problem(error.path, str(error))
    except UnsafePath as error:
        return Problem(str(error).split(": ", maxsplit=1)[0], str(error))
    return None
