"""Read what a person types into a search box, and say it to FTS5.

Above: `search`.  Below: `text`.
Nothing that is typed is an error of syntax: each word is handed over in quotes, and what cannot be understood
as an operator is a word. Words are joined by "and"; `OR` between two of them lets either do; `-word` or
`NOT word` leaves out what has it; `"some words"` must stand together; `refun*` is the beginning of a word.
"""

import re
from typing import Final, NamedTuple
from unicodedata import category

from hansard.message import search_text as texts

#: More is no question; and each word costs.
MOST: Final = 256

_TOKEN: Final = re.compile(
    r'(?P<minus>-?)"(?P<phrase>[^"]*)(?:"(?P<starred>\*?)|\Z)|(?P<word>[^\s"]+)'
)


class _Term(NamedTuple):
    """Something to look for, as FTS5 takes it."""

    said: str
    excluded: bool


def expression(text: str) -> str:
    """Return what FTS5 is to look for; `ValueError` if the text asks for nothing."""
    groups: list[list[str]] = []
    excluded: list[str] = []
    either = negative = False
    tokens = list(_TOKEN.finditer(text))
    for place, token in enumerate(tokens):
        word = token["word"]
        more = place + 1 < len(tokens)
        if word == "OR" and more and groups:
            either = True
            continue
        if word == "NOT" and more:
            negative = True
            continue
        if word == "AND" and more and groups:
            continue
        term = _term(token)
        if term is None:
            continue
        if negative or term.excluded:
            excluded.append(term.said)
        elif either:
            groups[-1].append(term.said)
        else:
            groups.append([term.said])
        either = negative = False
    return _joined(groups, excluded, text)


def _joined(groups: list[list[str]], excluded: list[str], text: str) -> str:
    if not groups:
        reason = (
            "say what to look for, and not only what to leave out" if excluded else "no word in it"
        )
        raise ValueError(f"search for {text!r:.60}: {reason}; give a word, such as 'refund'")
    if len(excluded) + sum(map(len, groups)) > MOST:
        raise ValueError(f"search for {text!r:.60}: more than {MOST} words; give fewer")
    wanted = " AND ".join(
        dict.fromkeys(f"({' OR '.join(dict.fromkeys(group))})" for group in groups)
    )
    if not excluded:
        return wanted
    return f"({wanted}) NOT ({' OR '.join(dict.fromkeys(excluded))})"


def _term(token: re.Match[str]) -> _Term | None:
    """Return what a token looks for; None if there is no letter or digit in it."""
    word = token["word"]
    if word is None:
        body, starred, excluded = token["phrase"], bool(token["starred"]), bool(token["minus"])
    else:
        # `--verbose` is an option that somebody looks for.
        excluded = word[0] == "-" and word[1:2] not in {"-", ""}
        starred = word.endswith("*")
        body = word[1:] if excluded else word
    if not any(map(_is_word, body)):
        return None
    # A lone surrogate can be typed, and be in no message.
    body = texts.split(body).encode("utf-8", "replace").decode().replace('"', " ")
    return _Term(f'"{body}" *' if starred else f'"{body}"', excluded)


def _is_word(character: str) -> bool:
    """Say whether FTS5 takes a character for a part of a word."""
    found = category(character)
    return found[0] in "LN" or found == "Co"
