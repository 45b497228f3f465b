"""Generate conversations like those of coding agents: prose, code, tool calls and their outputs.

Everything comes from a seed. Words have natural frequencies (Zipf's law with Mandelbrot's shift) over a
vocabulary of 20,000; one in five is one of 400 that a session has a liking for. Sentences follow a small
grammar. Code is Python of made-up identifiers, some dozens at a time. A session has its own files, made
up once and then read in pieces, searched and edited, so it repeats itself as real ones do, and turns to other
files now and then. Ids, hashes, times and numbers are random, and nothing makes them smaller. Sessions share
a system prompt (one of three), the shapes of the messages, and the vocabulary; no file, name, or sentence.
How much of what there is was chosen so that zstd alone leaves of it what it leaves of real sessions of 58 KB:
0.31 at level 3 and 0.28 at level 19, with a dictionary 0.28 and 0.24.
"""
# ruff: noqa: PLR0911, PLR2004, SIM905 - a table of shares and choices, written as code

import json
import random
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

SEED: Final = 20_261_116

_DETERMINERS: Final = "the a this that each every its our any some no another".split()
_PREPOSITIONS: Final = "of in to for with on at from by into over after before under".split()
_LINKS: Final = "and but so because while if when since although then".split()
_OPENINGS: Final = (
    "I will", "Now I", "Let me", "It looks like", "We should", "You can", "I can see that", "Next,",
    "The reason is that", "Please", "As far as I can tell,", "That said,", "To be sure,", "First,",
)  # fmt: skip
_ONSETS: Final = (
    "b c d f g h l m n p r s t v w br ch cl cr dr fl gr pl pr qu sh sl st str th tr".split()
)
_VOWELS: Final = "a e i o u ai ea ee io oa ou".split()
_CODAS: Final = "b ck d ft g l ll m n nd nt ng p r rd rt s ss st t x".split()
_ENDINGS: Final = (
    "",
    "",
    "",
    "",
    "er",
    "ing",
    "ed",
    "ion",
    "ment",
    "ly",
    "able",
    "ity",
    "ive",
    "al",
)
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

_WORDS: Final = 20_000
_FAVOURITES: Final = 400
_SHIFT: Final = 2.7


def _vocabulary() -> list[str]:
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < _WORDS:
        syllables = rng.choices((1, 2, 3), (3, 5, 2))[0]
        word = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(syllables - 1))
        word += (
            rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) + rng.choice(_ENDINGS)
        )
        found[word] = None
    # Frequent words are mostly short.
    return sorted(found, key=lambda word: len(word) + rng.gauss(0, 2))


def _weights(count: int) -> list[float]:
    return list(accumulate(1 / (rank + _SHIFT) for rank in range(count)))


VOCABULARY: Final = _vocabulary()
_ALL: Final = _weights(_WORDS)
_FEW: Final = _weights(_FAVOURITES)


class Conversation:
    """An endless conversation about one project."""

    def __init__(self, number: int) -> None:
        self._rng = random.Random(SEED * 1_000_003 + number)
        self._favourites: list[str] = []
        self._names: list[str] = []
        self._files: dict[str, list[str]] = {}
        self._clock = 1_790_000_000 + self._rng.randrange(10_000_000)
        self._agent = self._rng.randrange(3)
        self._turn_to_other_files()

    def _turn_to_other_files(self) -> None:
        """Switch to another part of the project: other files, names and frequent words."""
        rng = self._rng
        self._favourites = [self._common() for _ in range(_FAVOURITES)]
        self._names = ["_".join(self._words(rng.choice((1, 2, 2, 3)))) for _ in range(80)]
        self._files = {self._path(): self._module() for _ in range(6)}

    # -- words ----------------------------------------------------------------------------------

    def _common(self) -> str:
        return VOCABULARY[bisect(_ALL, self._rng.random() * _ALL[-1])]

    def _word(self) -> str:
        if self._rng.random() < 0.8:
            return self._common()
        return self._favourites[bisect(_FEW, self._rng.random() * _FEW[-1])]

    def _words(self, count: int) -> list[str]:
        return [self._word() for _ in range(count)]

    def _phrase(self) -> str:
        rng = self._rng
        words = [rng.choice(_DETERMINERS)] if rng.random() < 0.8 else []
        words += self._words(rng.choice((1, 1, 2)))
        if rng.random() < 0.12:
            words[-1] = f"`{rng.choice(self._names)}`"
        return " ".join(words)

    def _sentence(self) -> str:
        rng = self._rng
        clauses = []
        for _ in range(rng.choice((1, 1, 2))):
            clause = f"{self._phrase()} {self._word()} {self._phrase()}"
            for _ in range(rng.choice((0, 1, 1, 2))):
                clause += f" {rng.choice(_PREPOSITIONS)} {self._phrase()}"
            clauses.append(clause)
        text = f", {rng.choice(_LINKS)} ".join(clauses)
        if rng.random() < 0.3:
            return f"{rng.choice(_OPENINGS)} {text}."
        return text[0].upper() + text[1:] + rng.choice("....?:")

    def _prose(self, sentences: int) -> str:
        return " ".join(self._sentence() for _ in range(sentences))

    def _text(self) -> str:
        rng = self._rng
        parts = [self._prose(rng.randint(5, 20))]
        if rng.random() < 0.3:
            parts.append("\n".join(f"{n}. {self._sentence()}" for n in range(1, rng.randint(3, 7))))
        if rng.random() < 0.3:
            parts.append(f"```python\n{self._function()}```")
        if rng.random() < 0.4:
            parts.append(self._prose(rng.randint(5, 20)))
        return "\n\n".join(parts)

    # -- code -----------------------------------------------------------------------------------

    def _name(self) -> str:
        return self._rng.choice(self._names)

    def _path(self) -> str:
        folder = self._rng.choice(("src", "src", "tests", "lib", "app"))
        return f"{folder}/{self._word()}/{self._name()}.py"

    def _value(self) -> str:
        rng = self._rng
        kind = rng.randrange(6)
        if kind == 0:
            return str(rng.randint(0, 5000))
        if kind == 1:
            return f'"{" ".join(self._words(rng.randint(1, 4)))}"'
        if kind == 2:
            return f"{self._name()}.{self._name()}({self._name()})"
        if kind == 3:
            return f"{self._name()}[{self._name()}]"
        if kind == 4:
            return f"[{self._name()}({self._name()}) for {self._name()} in {self._name()}]"
        return self._name()

    def _statement(self, indent: str) -> str:
        rng = self._rng
        kind = rng.randrange(9)
        if kind <= 2:
            return f"{indent}{self._name()} = {self._value()}\n"
        if kind == 3:
            return f"{indent}if {self._name()} is None:\n{indent}    return {self._value()}\n"
        if kind == 4:
            body = self._statement(indent + "    ") if len(indent) < 12 else f"{indent}    pass\n"
            return f"{indent}for {self._name()} in {self._value()}:\n{body}"
        if kind == 5:
            return f"{indent}self.{self._name()}.{self._name()}({self._value()}, {self._value()})\n"
        if kind == 6:
            return f"{indent}assert {self._value()} == {self._value()}\n"
        if kind == 7:
            return f"{indent}# {self._sentence()}\n"
        return (
            f"{indent}try:\n{indent}    {self._name()} = {self._value()}\n"
            f"{indent}except {self._name().title().replace('_', '')}Error as error:\n"
            f"{indent}    raise ValueError({self._value()}) from error\n"
        )

    def _function(self) -> str:
        rng = self._rng
        kinds = ("int", "str", "bytes", "Any")
        arguments = ", ".join(
            f"{self._name()}: {rng.choice(kinds)}" for _ in range(rng.randint(0, 3))
        )
        body = "".join(self._statement("    ") for _ in range(rng.randint(2, 9)))
        head = f"def {self._name()}({arguments}) -> {rng.choice(('None', 'int', 'str', 'bool'))}:\n"
        return f'{head}    """{self._sentence()}"""\n{body}    return {self._value()}\n'

    def _module(self) -> list[str]:
        head = (
            f'"""{self._prose(2)}"""\n\nimport os\nfrom {self._word()} import {self._name()}\n\n\n'
        )
        functions = [self._function() for _ in range(self._rng.randint(5, 20))]
        return (head + "\n\n".join(functions)).splitlines()

    # -- tools ----------------------------------------------------------------------------------

    def _id(self, prefix: str, length: int = 24) -> str:
        return prefix + "".join(self._rng.choices(_LETTERS, k=length))

    def _time(self) -> str:
        self._clock += self._rng.randrange(1, 90)
        return f"{self._clock}.{self._rng.randrange(1_000_000):06d}"

    def _use(self) -> tuple[str, dict[str, Any], str]:
        """Return a tool's name, its arguments and its output."""
        rng = self._rng
        path = rng.choice(list(self._files))
        lines = self._files[path]
        kind = rng.randrange(10)
        if kind <= 2:
            begin = rng.randrange(max(1, len(lines) - 10))
            part = lines[begin : begin + rng.randint(10, 180)]
            shown = "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(part, begin + 1))
            return "read_file", {"path": path, "offset": begin, "limit": len(part)}, shown
        if kind <= 4:
            begin = rng.randrange(max(1, len(lines) - 4))
            old = lines[begin : begin + rng.randint(1, 5)]
            new = [line for line in old if rng.random() < 0.6]
            new += self._statement("    ").splitlines()
            self._files[path] = lines[:begin] + new + lines[begin + len(old) :]
            arguments = {"path": path, "old_string": "\n".join(old), "new_string": "\n".join(new)}
            return "edit_file", arguments, f"The file {path} has been updated."
        if kind <= 6:
            return "run_command", {"command": f"python -m pytest -x -q {path}"}, self._tests(path)
        if kind == 7:
            name = self._name()
            hits = [
                f"{file}:{n}:{line}"
                for file, text in self._files.items()
                for n, line in enumerate(text, 1)
                if name in line
            ]
            return "search", {"pattern": name, "path": "."}, "\n".join(hits[:25])
        if kind == 8:
            rows = [
                f"-rw-r--r-- 1 dev dev {rng.randrange(200, 90_000):6d} Nov {rng.randint(1, 30):2d} "
                f"{rng.randrange(24):02d}:{rng.randrange(60):02d} {self._name()}.py"
                for _ in range(rng.randint(4, 16))
            ]
            return "run_command", {"command": f"ls -l {path.rpartition('/')[0]}"}, "\n".join(rows)
        items = [
            {
                "id": f"{rng.getrandbits(128):032x}",
                "created_at": self._time(),
                "title": " ".join(self._words(rng.randint(2, 6))),
                "score": round(rng.random(), 6),
                "status": rng.choice(("open", "closed", "merged")),
                "url": f"https://example.org/{self._word()}/{rng.randrange(100_000)}",
            }
            for _ in range(rng.randint(2, 9))
        ]
        return "list_issues", {"query": " ".join(self._words(2))}, json.dumps({"items": items})

    def _tests(self, path: str) -> str:
        rng = self._rng
        count = rng.randint(3, 80)
        if rng.random() < 0.6:
            return f"{'.' * count}\n{count} passed in {rng.random() * 9:.2f}s"
        line = rng.choice(self._files[path])
        return (
            f"{'.' * (count // 2)}F\n{' FAILURES ':=^80}\n"
            f"{path}:{rng.randint(1, 200)}: in test_{self._name()}\n{line}\nE   AssertionError: assert "
            f"{self._value()} == {self._value()}\n"
            f"E    +  where 0x{rng.getrandbits(48):012x} = {self._value()}\n"
            f"{' short test summary info ':=^80}\n"
            f"FAILED {path}::test_{self._name()} - AssertionError\n"
            f"1 failed, {count} passed in {rng.random() * 9:.2f}s"
        )

    # -- messages -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the messages, without end."""
        rng = self._rng
        yield {"role": "system", "content": _PROMPTS[self._agent]}
        while True:
            if rng.random() < 0.2:
                self._turn_to_other_files()
            yield {"role": "user", "content": self._text()}
            for _ in range(rng.randint(1, 9)):
                name, arguments, output = self._use()
                call = self._id("call_")
                yield {
                    "role": "assistant",
                    "content": self._prose(rng.randint(1, 6)) if rng.random() < 0.8 else None,
                    "tool_calls": [
                        {
                            "id": call,
                            "type": "function",
                            "function": {"name": name, "arguments": json.dumps(arguments)},
                        }
                    ],
                }
                yield {"role": "tool", "tool_call_id": call, "name": name, "content": output}
            yield {"role": "assistant", "id": self._id("msg_"), "content": self._text()}


def _prompts() -> list[str]:
    _PROMPTS.extend([""] * 3)
    return [Conversation(-1 - place)._prose(14) for place in range(3)]  # noqa: SLF001 - its own


_PROMPTS: list[str] = []
_PROMPTS[:] = _prompts()


def conversation(number: int, count: int) -> list[dict[str, Any]]:
    """Return the first messages of one conversation, the same in each run."""
    found = iter(Conversation(number))
    return [next(found) for _ in range(count)]
