"""Refuse credentials where nobody means to keep them, and take them out of what is to be shown to others.

Above: `session`, `upkeep.share`.  Below: `credentials` (names), `shapes` (texts).
Metadata and settings are configuration: a credential in them is a mistake, and `refuse` says so. Messages
are what was said, and are kept to the byte; `redact` makes a copy for other eyes. Neither is on the way of a
message into the log.
No list of shapes is complete: a word chosen as a password, said in a sentence, is found by nobody.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hansard.errors import InvalidEvent, SecretRefused
from hansard.event.credentials import Named, holds, named, words
from hansard.event.shapes import Found, by_name, by_shape

#: Under the name of a credential, these say which one it is, and not what it is.
_HARMLESS: Final = words(
    "type kind source name user username email provider scheme scope scopes method description title env "
    "variable path domain id expires expires_at created created_at updated updated_at version"
)
_SCHEMA_TYPES: Final = words("string number integer boolean object array null")
_SCHEMA_KEYS: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf", "enum"})

#: JSON inside of a text inside of JSON …; what is deeper is looked at as text.
_DEEPEST_TEXT: Final = 8
_REDACTED: Final = "[redacted: "
#: `pwd=abc`: no shorter text holds a credential.
_SHORTEST: Final = 7
#: What was redacted can bring to light what was hidden by it; it ends long before this.
_ROUNDS: Final = 8


# -- refusing ---------------------------------------------------------------------------------------


def refuse(data: dict[str, Any], what: str) -> None:
    """Raise `SecretRefused` if JSON holds a credential; `what` says in the error what the JSON is.

    The data must have passed `codec.encode`, which bounds their depth.
    """
    try:
        found = next(_places(data, what, None, 0), None)
    except RecursionError:
        # Not the data, but JSON in a text in them, and in a text in that.
        raise InvalidEvent(f"{what}: nested too deep to look for credentials") from None
    if found is not None:
        place, kind = found
        raise SecretRefused(
            f"{place}: looks like a credential ({kind}), and what is stored stays; give the client its "
            "credential from the environment or a secret manager, and store only its name, such as "
            "'env:OPENAI_API_KEY'",
            place=place,
        )


def _places(value: Any, place: str, name: Named | None, texts: int) -> Iterator[tuple[str, str]]:
    """Yield place and kind of each credential in a JSON value, given the name that it goes under."""
    if isinstance(value, dict):
        for key, item in value.items():
            shown, count = redact_text(key) if isinstance(key, str) else (key, 0)
            below = f"{place}[{shown!r:.60}]"
            if count:
                yield below, "in the key itself"
            yield from _places(item, below, _name_below(key, value, name), texts)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _places(item, f"{place}[{index}]", name, texts)
    elif name is not None and holds(name, value):
        yield place, name.what
    elif isinstance(value, str):
        for found in (*by_shape(value), *by_name(value, strict=True)):
            yield place, found.what
        inner = _json(value) if texts < _DEEPEST_TEXT else None
        if inner is not None:
            yield from _places(inner, place, None, texts + 1)


def _name_below(key: object, holder: dict[Any, Any], name: Named | None) -> Named | None:
    """Return the name that counts for what stands under a key."""
    if not isinstance(key, str):
        return name
    own = named(key)
    if own is not None:
        return own
    # `credentials: {"value": …}`, but not the schema of a tool's argument of that name.
    return None if name is None or key.lower() in _HARMLESS or _is_schema(holder) else name


def _is_schema(value: dict[Any, Any]) -> bool:
    kind = value.get("type")
    if isinstance(kind, list):
        return True
    return (isinstance(kind, str) and kind in _SCHEMA_TYPES) or not _SCHEMA_KEYS.isdisjoint(value)


def _json(text: str) -> dict[str, Any] | list[Any] | str | None:
    """Return what a text says as JSON, if it can hold anything; None if it is no JSON."""
    if text.strip()[:1] not in {"{", "[", '"'}:
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict | list | str) else None


# -- redacting --------------------------------------------------------------------------------------


def redact(value: Any) -> tuple[Any, int]:
    """Return a JSON value with `[redacted: …]` for each credential, and how many there were.

    The value itself is left as it is, and is returned if there were none.
    """
    try:
        return _redact(value, None, 0)
    except RecursionError:
        # No data of ours are: and what cannot be looked at must not be given away.
        raise InvalidEvent("nested too deep to look for credentials; nothing was shown") from None


def redact_text(text: str) -> tuple[str, int]:
    """Do as `redact` does with one text."""
    return _redact_text(text, 0)


def _redact(value: Any, name: Named | None, texts: int) -> tuple[Any, int]:
    if isinstance(value, dict):
        return _redact_dict(value, name, texts)
    if isinstance(value, list | tuple):
        done = [_redact(item, name, texts) for item in value]
        count = sum(each for _, each in done)
        return ([item for item, _ in done], count) if count else (value, 0)
    if name is not None and holds(name, value):
        return _mark(name.what), 1
    return _redact_text(value, texts) if isinstance(value, str) else (value, 0)


def _redact_dict(
    value: dict[str, Any], name: Named | None, texts: int
) -> tuple[dict[str, Any], int]:
    done: dict[str, Any] = {}
    count = 0
    for key, item in value.items():
        shown, in_key = _redact_text(key, texts)
        if in_key:
            shown = unused(shown, value, done)
        done[shown], below = _redact(item, _name_below(key, value, name), texts)
        count += in_key + below
    return (done, count) if count else (value, 0)


def unused(key: str, *taken: dict[str, Any]) -> str:
    """Return a key that stands in for another and takes no other's place."""
    number, free = 1, key
    while any(free in some for some in taken):
        number += 1
        free = f"{key} ({number})"
    return free


def _redact_text(text: str, texts: int) -> tuple[str, int]:
    total = 0
    if len(text) < _SHORTEST:
        return text, 0
    for _ in range(_ROUNDS):
        count = 0
        inner = _json(text) if texts < _DEEPEST_TEXT else None
        if inner is not None:
            try:
                inner, count = _redact(inner, None, texts + 1)
            except RecursionError:
                count = 0  # it is deeper than any data of ours: what follows sees it as text
            if count:
                text = msgspec.json.encode(inner).decode()
        # JSON names one key twice, or hides what only its text shows: look at that too.
        spans = _spans(text)
        if spans:
            text = _replace(text, spans)
        count += len(spans)
        if not count:
            break
        total += count
    return text, total


def _spans(text: str) -> list[Found]:
    """Return the credentials of a text in order; those that overlap become one."""
    spans: list[Found] = []
    # Sorting keeps the order of those that begin at one place: the shape before the name.
    for found in sorted((*by_shape(text), *by_name(text)), key=lambda found: found.start):
        if text.startswith(_REDACTED, found.start):
            continue
        if spans and found.start < spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(spans[-1].end, found.end))
        else:
            spans.append(found)
    return spans


def _replace(text: str, spans: list[Found]) -> str:
    pieces = []
    after = 0
    for start, end, what in spans:
        pieces += [text[after:start], _mark(what)]
        after = end
    return "".join([*pieces, text[after:]])


def _mark(what: str) -> str:
    return f"{_REDACTED}{what}]"
