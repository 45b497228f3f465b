"""The lines of a cursor's file: what they say, what is torn, and what is damage."""

import re
import zlib

import pytest

from hansard.backend.local import LocalBackend
from hansard.errors import Damaged, UnknownFormat
from tests.format.grammar import PAGE, grammar, pattern
from tests.unit.log.cursor_files import beside, file_of, keep, kept

SECTION = re.search(r"^## 14\. .*?(?=^## |\Z)", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
assert SECTION is not None
PARTS = re.findall(r"^```\w*\n(.*?)^```$", SECTION[0], re.DOTALL | re.MULTILINE)
EXAMPLE = PARTS[1].encode()


def by_hand(*bodies: str) -> bytes:
    """Return a cursor's file of these lines, made from the page and nothing else."""
    data = b""
    for body in bodies:
        data += body.encode()
        data += b',"crc":"%08x"}\n' % zlib.crc32(data)
    return data


START = '{"cursor":"c","version":1,"time":"2026-01-01T12:00:00.000000Z"'


def line(places: str, more: str = "") -> str:
    """Return a move without its trailer."""
    return f'{{"move":{{{places}}},"time":"2026-01-01T12:00:00.000000Z"{more}'


# -- what it says -----------------------------------------------------------------------------------


def test_the_worked_example_says_what_the_page_says(backend: LocalBackend) -> None:
    """F-48 to F-51: the cursor on the page is read as the positions beside it, and goes on from there."""
    assert SECTION is not None
    assert f"{len(EXAMPLE)} bytes" in SECTION[0]
    keep(backend, {"s": 1}, "mail/out")
    file_of(backend, "mail/out").write_bytes(EXAMPLE)
    assert kept(backend, "mail/out") == {"support/42": 4}
    assert 'positions are `{"support/42": 4}`' in SECTION[0]
    keep(backend, {"demo": 6}, "mail/out")
    assert file_of(backend, "mail/out").read_bytes().startswith(EXAMPLE)
    assert kept(backend, "mail/out") == {"support/42": 4, "demo": 6}


def test_real_files_are_what_the_grammar_says(backend: LocalBackend) -> None:
    """F-49: files with every kind of line fit the page's grammar, written by appending or anew."""
    rules = grammar()
    rules |= dict(re.findall(r"^(\w+) += (.*)$", PARTS[0], re.MULTILINE))
    whole = re.compile(pattern("cursor", rules))
    assert whole.fullmatch(EXAMPLE)
    with backend.cursor('na"me\n\u2028') as cursor:
        cursor.move({"s": 0, 'quo"te': 3, "\u2028\x85\r": 2**63 - 1})
        cursor.move({"t": 5})
        cursor.forget("s", "t")
        assert whole.fullmatch(file_of(backend, cursor.name).read_bytes())
        cursor.move({f"s{n}": n for n in range(10_000)})
        anew = file_of(backend, cursor.name).read_bytes()
        assert anew.count(b"\n") == 1 + 11  # 1,000 positions in a line
        assert whole.fullmatch(anew)
        cursor.forget(*cursor.positions())
    assert kept(backend, 'na"me\n\u2028') == {}
    assert not whole.fullmatch(EXAMPLE.replace(b":3}", b": 3}"))


def test_a_file_made_by_hand_is_read(backend: LocalBackend) -> None:
    """F-49 to F-51: later moves supersede earlier ones, null forgets, and unknown members are passed over."""
    newer = ',"by":{"newer":[1,null]}'
    data = by_hand(
        START + newer,
        line('"s":9,"t":9'),
        line('"s":4', newer),
        line(""),
        line('"t":null,"u":1,"never":null'),
    )
    keep(backend, {"s": 1})
    file_of(backend).write_bytes(data)
    assert kept(backend) == {"s": 4, "u": 1}


# -- what is torn, and what is damage ---------------------------------------------------------------


def moved(backend: LocalBackend) -> list[dict[str, int]]:
    """Move a cursor in several ways; return its positions after each line."""
    states = [{}, {"s": 1}]
    with backend.cursor("c") as cursor:
        for move in ({"s": 1}, {"s": 2, "tü/\n": 7}, {"u": 10**12}):
            cursor.move(move)
            states.append(cursor.positions())
        cursor.forget("s")
        states.append(cursor.positions())
    return [states[0], *states[2:]]


def test_a_file_cut_at_any_byte_has_the_moves_that_are_whole(backend: LocalBackend) -> None:
    """F-52, F-53, N-33: cut anywhere, a cursor is where its last whole move left it, and goes on."""
    states = moved(backend)
    file = file_of(backend)
    data = file.read_bytes()
    first = data.index(b"\n") + 1
    reader = beside(backend)
    for cut in range(len(data) + 1):
        file.write_bytes(data[:cut])
        if cut < first:
            with pytest.raises(Damaged, match="byte 0: no whole first line"):
                backend.cursor("c")
            assert file.read_bytes() == data[:cut]
            continue
        expected = states[data[:cut].count(b"\n") - 1]
        with backend.cursor("c") as cursor:
            assert cursor.positions() == expected
            assert file.read_bytes() == data[:cut], "reading must not mend"
            cursor.move({"new": 3})
            cursor.move({"new": 4})
        assert kept(backend) == {**expected, "new": 4}
        assert reader.positions() == {**expected, "new": 4}


def test_nul_bytes_at_the_end_are_a_torn_tail(backend: LocalBackend) -> None:
    """F-52: a power cut that grew the file without its bytes costs the last moves, and no more."""
    states = moved(backend)
    file = file_of(backend)
    data = file.read_bytes()
    last = data.rindex(b"\n", 0, -1) + 1
    for torn in (data + bytes(100), data[:last] + bytes(len(data) - last)):
        file.write_bytes(torn)
        assert kept(backend) == (states[-1] if torn.startswith(data) else states[-2])


def test_a_changed_byte_is_reported(backend: LocalBackend) -> None:
    """F-52, N-34: any byte but the last newline, changed in three ways, is an error that says where."""
    states = moved(backend)
    file = file_of(backend)
    data = file.read_bytes()
    reader = beside(backend)
    starts = [0, *(match.end() for match in re.finditer(rb"\n", data))]
    for place in range(len(data)):
        for mask in (0x01, 0x20, 0x80):
            changed = bytearray(data)
            changed[place] ^= mask
            file.write_bytes(changed)
            if place == len(data) - 1:
                # Without its newline the last move is unfinished: its events come again.
                assert kept(backend) == states[-2]
                continue
            with pytest.raises((Damaged, UnknownFormat)) as caught:
                backend.cursor("c")
            assert str(file) in str(caught.value)
            if isinstance(caught.value, Damaged):
                assert caught.value.offset == max(start for start in starts if start <= place)
            assert file.read_bytes() == changed, "nothing may be changed"
            with pytest.raises((Damaged, UnknownFormat)):
                reader.positions()


def test_lines_that_are_missing_doubled_or_swapped_are_damage(backend: LocalBackend) -> None:
    """F-49, F-52: the checksum runs on, so each line is good only where it was written."""
    moved(backend)
    file = file_of(backend)
    lines = file.read_bytes().splitlines(keepends=True)
    a, b, c, d, e = lines
    wrong = [
        [a, c, d, e],
        [a, b, b, c, d, e],
        [a, c, b, d, e],
        [a, b, c, e],
        [b, c, d, e],
        [a, b, a],
    ]
    for order in wrong:
        file.write_bytes(b"".join(order))
        with pytest.raises(Damaged):
            backend.cursor("c")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (line('"s":-1'), "not a move"),
        (line('"s":1.5'), "not a move"),
        (line('"s":"1"'), "not a move"),
        (line('"s":true'), "not a move"),
        ('{"moved":{}', "not a move"),
        ('[{"move":{}', "not a move"),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "not a move"),
    ],
)
def test_a_line_that_is_no_move_is_damage(body: str, reason: str, backend: LocalBackend) -> None:
    """F-51, F-52: what has a good checksum and says no positions is refused, with its offset."""
    keep(backend, {"s": 1})
    good = by_hand(START, line('"s":3'))
    data = good + body.encode("latin-1")
    data += b',"crc":"%08x"}\n' % zlib.crc32(data)
    data += line('"s":4').encode()
    data += b',"crc":"%08x"}\n' % zlib.crc32(data)
    file_of(backend).write_bytes(data)
    with pytest.raises(Damaged, match=reason) as caught:
        backend.cursor("c")
    assert caught.value.offset == len(good)


def test_an_unknown_version_is_refused(backend: LocalBackend) -> None:
    """F-50, N-44: a cursor of a version not known here is neither read nor moved, and stays as it is."""
    keep(backend, {"s": 1})
    data = by_hand(START.replace('"version":1', '"version":2'), line('"s":3'))
    file_of(backend).write_bytes(data)
    for read in (lambda: backend.cursor("c"), beside(backend).positions):
        with pytest.raises(UnknownFormat, match="version 2"):
            read()
    assert file_of(backend).read_bytes() == data
    assert backend.cursors() == ["c"]


def test_a_file_of_another_cursor_is_refused(backend: LocalBackend) -> None:
    """F-50, N-8: a cursor's file copied over another's name is damage, not the other's positions."""
    keep(backend, {"s": 1}, "a")
    keep(backend, {"s": 9}, "b")
    file_of(backend, "b").write_bytes(file_of(backend, "a").read_bytes())
    with pytest.raises(Damaged, match="the file of cursor 'a'"):
        backend.cursor("b")
