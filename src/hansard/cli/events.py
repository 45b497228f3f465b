"""Events as lines of JSON: what `--json` prints where events are shown.

Above: `commands`.  Below: the public API.
"""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hansard import Event


def record(event: "Event", *, session: str | None = None) -> bytes:
    """Return an event as a JSON object. Its data are the stored bytes, digit for digit."""
    head = b"" if session is None else b'"session":%b,' % json.dumps(session).encode()
    key = b"" if event.key is None else b',"key":%b' % json.dumps(event.key).encode()
    return b'{%b"seq":%d,"time":"%b","kind":"%b","data":%b%b}' % (
        head,
        event.seq,
        event.stamp.encode(),
        event.kind.encode(),
        event.raw,
        key,
    )
