"""Export sessions for other programs.

    from hansard import exporters

    Path("refund.jsonl").write_bytes(b"".join(exporters.export(session, "codex")))

The command is `hansard export --as KIND`. hansard's own JSONL, Markdown and HTML are `session.export`.
"""

from collections.abc import Iterator
from typing import Final, Literal, get_args

import hansard

Kind = Literal["claude-code", "codex", "openai-items"]
View = Literal["model", "history"]

#: The kinds, and the suffixes of their files.
KINDS: Final[dict[str, str]] = {"claude-code": "jsonl", "codex": "jsonl", "openai-items": "json"}


def export(
    session: hansard.Session, kind: Kind, *, redacted: bool = True, view: View = "model"
) -> Iterator[bytes]:
    """Yield a session in the format of another program, piece by piece.

    What was imported from that program, or written through its adapter, is written unchanged; other
    messages are converted.

    Args:
        session: the session; a fork includes what it inherits.
        kind: the format, one of `KINDS`.
        redacted: replace what looks like a credential. Redacted messages are never exported.
        view: "model": what a model would see; "history": all messages, also reverted ones.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if view not in get_args(View):
        raise ValueError(f"view must be one of {', '.join(get_args(View))}, not {view!r}")
    from hansard.exporters import formats
    from hansard.exporters.telling import told

    render = getattr(formats, kind.replace("-", "_"))
    # Read before the first piece is asked for: whoever has no such session hears of it at once.
    pieces: Iterator[bytes] = render(told(session, redacted=redacted, view=view, kind=kind))
    return pieces
