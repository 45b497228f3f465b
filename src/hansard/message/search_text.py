"""Return the searchable text of a message of any shape.

Messages are any JSON, so there are rules instead of shapes. Every string is searchable, except labels
(`role`, `type`, ids). Arguments of tools, and JSON inside a string, are searchable with their names and
numbers. Binary data, such as an image in base64, is left out: no word has 256 characters. `origin` is left
out, too: the text of a message is outside it.
"""

import re
from typing import Any, Final

import msgspec

from hansard.message.parse import LABELS, origin_of

#: Members that hold the arguments of a tool.
_ARGUMENTS: Final = frozenset({"arguments", "input", "args", "parameters"})

#: Levels of JSON inside a string inside JSON …; a deeper string is searched as text.
_DEEPEST_TEXT: Final = 4

#: A longer run of base64 characters, without a space, is not a word.
_LONGEST: Final = 255
_STRETCH: Final = 128
_BINARY: Final = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_=-]{256,}")

#: Characters that the index reserves: to separate characters (`split`), and to mark matches.
PART: Final = "\x1f"
OPEN: Final = "\x02"
CLOSE: Final = "\x03"
_RESERVED: Final = f"\0{OPEN}{CLOSE}{PART}"
_BLANKS: Final = str.maketrans(_RESERVED, " " * len(_RESERVED))

#: Scripts written without spaces, or with suffixes: Thai, Lao, Burmese, Khmer, Japanese, Chinese, Korean.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3100-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff]+"
)

_decode = msgspec.json.Decoder().decode


def of(message: object) -> str:
    """Return the searchable text of a message; empty if it has none."""
    if isinstance(message, dict) and origin_of(message) is not None:
        message = {key: value for key, value in message.items() if key != "origin"}
    found: list[str] = []
    _collect(message, 0, found, arguments=False)
    return "\n".join(filter(None, found))


def _collect(value: object, texts: int, found: list[str], *, arguments: bool) -> None:
    """Add the texts of a JSON value. `arguments`: it is a tool's arguments, or JSON in a string."""
    if isinstance(value, str):
        inner = _json(value) if texts < _DEEPEST_TEXT else None
        if inner is not None:
            # Decoded: in the string itself, "\n" is a letter, and "é" may be an escape.
            _collect(inner, texts + 1, found, arguments=True)
        else:
            found.append(_BINARY.sub(" ", value) if _may_be_binary(value) else value)
    elif isinstance(value, dict):
        for key, item in value.items():
            if arguments:
                found.append(str(key))
                _collect(item, texts, found, arguments=True)
            elif key not in LABELS:
                _collect(item, texts, found, arguments=key in _ARGUMENTS)
    elif isinstance(value, list):
        for item in value:
            _collect(item, texts, found, arguments=arguments)
    elif arguments and isinstance(value, int | float) and not isinstance(value, bool):
        found.append(str(value))


def _may_be_binary(text: str) -> bool:
    """Return whether a text can contain such a run, which fills one of these stretches."""
    for at in range(0, len(text) - _LONGEST + _STRETCH, _STRETCH):
        if text.find(" ", at, at + _STRETCH) < 0 and text.find("\n", at, at + _STRETCH) < 0:
            return True
    return False


def _json(text: str) -> Any:
    """Return the object or list that a string of JSON holds; None if it holds none."""
    if text[:1] not in {"{", "["}:
        return None
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def split(text: str) -> str:
    """Return a text for the index: each character of a script without spaces is a word."""
    if "\0" in text or OPEN in text or CLOSE in text or PART in text:
        text = text.translate(_BLANKS)
    return text if text.isascii() else _UNSPACED.sub(lambda run: PART.join(["", *run[0], ""]), text)
