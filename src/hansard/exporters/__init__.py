"""HOW IT GETS OUT, FOR OTHER PROGRAMS: one file per foreign format.

    from hansard import exporters

    Path("refund.jsonl").write_bytes(b"".join(exporters.export(session, "codex")))

Above: user code, `hansard export --as`.  Below: the public API, `adapters` (what a framework's item is as a
message). Nothing of a framework is imported. hansard's own JSONL, Markdown and HTML are `session.export`.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Final, Literal, get_args

import hansard

Kind = Literal["claude-code", "codex", "openai-items"]
View = Literal["model", "history"]

#: The kinds, and how the names of their files end.
KINDS: Final[dict[str, str]] = {"claude-code": "jsonl", "codex": "jsonl", "openai-items": "json"}


def export(
    session: hansard.Session, kind: Kind, *, redacted: bool = True, view: View = "model"
) -> Iterator[bytes]:
    """Yield a session as another program has it, piece by piece.

    What was imported from that program, or written through its adapter, comes out as it came in; what others
    wrote is told in its shape.

    Args:
        session: what is to be written; with what it inherits, if it is a fork.
        kind: the format: see `KINDS`.
        redacted: replace what looks like a credential. What was redacted in the session is in no export.
        view: what a model is given, to go on from there; or "history", all that was said, also what was
            taken back.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if view not in get_args(View):
        raise ValueError(f"view must be one of {', '.join(get_args(View))}, not {view!r}")
    from hansard.exporters.telling import told

    module = import_module(f"hansard.exporters.{kind.replace('-', '_')}")
    render = module.render
    # Read before the first piece is asked for: whoever has no such session hears of it at once.
    pieces: Iterator[bytes] = render(told(session, redacted=redacted, view=view))
    return pieces
