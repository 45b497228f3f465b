r"""Show what would otherwise act on the terminal: control characters, and marks that turn text around.

A stored text is somebody else's. Sent raw to a terminal, it could move the cursor, change the title, hide
what was said or answer in the user's name; so these characters are shown as `\x1b`, and do nothing.
"""

import re
from typing import Final

#: C0 but for tab and line feed, DEL, C1; line and paragraph separators; bidirectional marks; lone surrogates;
#: and what marks text invisibly.
_ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)

#: The same, as far as JSON may have them unescaped.
_IN_JSON: Final = re.compile(
    "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Return a text whose control characters are shown instead of obeyed; lines and tabs stay."""
    return _ACTING.sub(_escape, text)


def cell(text: str) -> str:
    """Return the same in one line."""
    return visible(text).replace("\n", "↵").replace("\t", " ")


def json_line(text: str) -> str:
    """Return JSON that means the same, with what would act on a terminal escaped."""
    return _IN_JSON.sub(_escape_json, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFF:  # noqa: PLR2004 - what two digits can say
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - likewise four


def _escape_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFFFF:  # noqa: PLR2004 - what four digits can say
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
