"""Turn the grammar of docs/format.md into a pattern, so that real lines can be held against it.

Reads the page's own block: rules of the form `name = …`, with quoted text, names of rules, groups,
`[ optional ]`, `*( repeated )`, `1*100( counted )`, `/` between choices and `%x21-7E` for bytes.
"""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "format.md"

#: What the page leaves to others: JSON's values, and words of English.
GIVEN = {
    "int": rb"(?:0|[1-9][0-9]*)",
    "string": rb'"(?:[^"\\\x00-\x1f]|\\.)*"',
    "object": rb"\{[^\n]*\}",
    "word": rb"[a-z]+",
    "8lowerhex": rb"[0-9a-f]{8}",
    "LF": rb"\n",
    "any byte but LF": rb"[^\n]",
}

_TOKEN = re.compile(
    r"""'(?P<text>[^']*)' | (?P<bytes>%x[0-9A-F-]+) | (?P<count>\d*\*\d*(?=\()) | (?P<mark>[][()/])
        | (?P<given>any\ byte\ but\ LF) | (?P<name>\w+)""",
    re.VERBOSE,
)


def grammar() -> dict[str, str]:
    """Return the rules of the page: name → its definition."""
    block = next(
        block
        for block in re.findall(
            r"^```\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
        )
        if "segment   =" in block
    )
    rules: dict[str, str] = {}
    name = ""
    for line in block.splitlines():
        text = re.sub(r"\s;.*", "", line)
        if found := re.match(r"(\w+)\s*=\s(.*)", text):
            name, text = found[1], found[2]
            rules[name] = ""
        rules[name] += f" {text.strip()}"
    return rules


def pattern(name: str, rules: dict[str, str]) -> bytes:
    """Return a regular expression for a rule."""
    if name in GIVEN:
        return GIVEN[name]
    if name == "time":
        # The page writes a form, not a rule: letters stand for digits.
        form = re.sub("[YMDHSf]", "0", rules[name].strip(" '").replace("MM:SS", "00:00"))
        return re.escape(form).replace("0", "[0-9]").encode()
    parts: list[bytes] = []
    counts: list[str] = []
    for token in _TOKEN.finditer(rules[name]):
        kind, found = str(token.lastgroup), token[0]
        if kind == "text":
            parts.append(re.escape(token["text"].encode()))
        elif kind == "bytes":
            ends = [f"\\x{end.lower()}" for end in found[2:].split("-")]
            parts.append(b"[" + "-".join(ends).encode() + b"]")
        elif kind == "count":
            counts.append(found)
        elif found in "([":
            parts.append(b"(?:")
            if found == "[":
                counts.append("?")
        elif found in ")]":
            parts.append(b")" + _times(counts.pop()))
        else:
            parts.append(b"|" if found == "/" else pattern(found, rules))
    return b"(?:" + b"".join(parts) + b")"


def _times(count: str) -> bytes:
    if count == "?":
        return b"?"
    least, _, most = count.partition("*")
    return f"{{{least or 0},{most}}}".encode()
