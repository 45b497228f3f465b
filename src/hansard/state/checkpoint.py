"""Save a state at a seq, and take it up again. A function and its inverse.

Above: `session`, `upkeep.compaction`.  Below: `fold`, `redaction`.
A checkpoint is a shortcut and never the truth: one that cannot be read, of another version, or made before
something was taken out, is none, and the state is replayed from the first event.
"""

from typing import Final
from zlib import crc32

import msgspec

from hansard.state.fold import State
from hansard.state.redaction import Redactions

#: Grows when the same events add up to another state.
VERSION: Final = 1


class _Saved(msgspec.Struct):
    version: int
    redactions: int
    state: msgspec.Raw


def save(state: State, redactions: Redactions) -> bytes:
    """Return a state as bytes, with what was taken out when it was folded."""
    raw = msgspec.json.encode(state)
    return msgspec.json.encode(_Saved(VERSION, _sum(redactions), msgspec.Raw(raw)))


def load(saved: bytes, redactions: Redactions) -> State | None:
    """Return the state; None if it says nothing to this version, or if something was taken out since."""
    try:
        found = msgspec.json.decode(saved, type=_Saved)
        if found.version != VERSION or found.redactions != _sum(redactions):
            return None
        return msgspec.json.decode(found.state, type=State)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _sum(redactions: Redactions) -> int:
    streams = (sorted(redactions.streams), sorted(redactions.gone), redactions.before)
    return crc32(repr((sorted(redactions.seqs.items()), streams)).encode())
