"""Put back what the step stores of Pydantic AI's harness have taken out of messages for its size.

Above: `pydantic_ai`.  Below: `source`.
A long text or a picture is stored by its SHA-256, and a marker stands in its place that says which member it
was. What looks like a marker, and was said by somebody, is wrapped, and unwrapped here.
"""

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hansard.importers.source import Files, Unreadable

_MARK: Final = "__harness_external_media__"
_TEXT: Final = "__harness_external_text__"
_URI: Final = "__harness_external_uri__"
_ESCAPED: Final = "__harness_external_escaped_keys__"
_FORMAT: Final = "__harness_external_marker_format__"
_URLSAFE: Final = "__harness_external_urlsafe__"
_LITERAL: Final = "__harness_external_literal__"
#: The values of `_FORMAT`, and of `_URLSAFE`, that are known.
_ESCAPED_FORMAT: Final = "escaped-keys-v1"
_LITERAL_FORMAT: Final = "literal-v1"
_URLSAFE_STAMP: Final = "base64-urlsafe-v1"

_ADDRESS: Final = re.compile(r"media\+sha256://([0-9a-f]{64})")

Node = dict[str, Any]


class Media:
    """What was taken out: in a folder, in a table, or nowhere."""

    def __init__(
        self,
        files: Files | None = None,
        folder: Path | None = None,
        *,
        blobs: Callable[[str], bytes | None] | None = None,
    ) -> None:
        self._files = files
        self._folder = folder
        self._blobs = blobs

    def get(self, uri: object) -> bytes:
        """Return the bytes of an address; raise `Unreadable` if they are not there, or are others."""
        found = _ADDRESS.fullmatch(uri) if isinstance(uri, str) else None
        if found is None:
            raise Unreadable(f"something was stored apart at {uri!r:.80}, which nobody can find")
        digest = found[1]
        content = None if self._blobs is None else self._blobs(digest)
        if self._files is not None and self._folder is not None:
            path = self._folder / f"{digest}.bin"
            content = self._files.read(path) if self._files.exists(path) else None
        if content is None:
            raise Unreadable(
                f"what was stored apart as {digest} is missing: the place for it is empty"
            )
        if hashlib.sha256(content).hexdigest() != digest:
            raise Unreadable(
                f"what was stored apart as {digest} is damaged: the place for it is empty"
            )
        return content


def restored(node: Any, media: Media) -> Any:
    """Return messages with what was taken out of them."""
    if isinstance(node, list):
        return [restored(inner, media) for inner in node]
    if not isinstance(node, dict):
        return node
    if node.keys() == {_LITERAL, _FORMAT} and node[_FORMAT] == _LITERAL_FORMAT:
        node = node[_LITERAL]
    elif node.get(_MARK) is True:
        return _put_back(node, media)
    return {name: restored(inner, media) for name, inner in node.items()}


def _put_back(node: Node, media: Media) -> Node:
    taken = {_MARK, _TEXT}
    urlsafe = node.get(_URLSAFE) == _URLSAFE_STAMP
    if urlsafe:
        taken.add(_URLSAFE)
    escaped = node.get(_ESCAPED)
    own: Node = {}
    if isinstance(escaped, dict) and node.get(_FORMAT) == _ESCAPED_FORMAT:
        # Members of the message's own that have a marker's names.
        taken |= {_ESCAPED, _FORMAT}
        own = escaped
    uri = node.get(_URI, node.get("uri"))
    taken.add(_URI)
    if node.get("uri") == uri:
        taken.add("uri")
    content = media.get(uri)
    rest = {name: restored(inner, media) for name, inner in node.items() if name not in taken}
    rest |= {name: restored(inner, media) for name, inner in own.items()}
    if node.get(_TEXT) is True:
        rest["content"] = content.decode(errors="surrogatepass")
    else:
        rest["data"] = base64.b64encode(content, altchars=b"-_" if urlsafe else None).decode()
    return rest
