"""Claims about `hansard.log.names`: F-5 to F-11 of docs/format.md, and N-1 to N-7 and N-10."""

import itertools
import os
import signal
import threading
import time
import unicodedata
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hansard.errors import HansardError, InvalidSessionId
from hansard.log import names

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def shown(value: str) -> str:
    """Return a short id for a case."""
    return ascii(value)[:30]


GRIN = "\N{GRINNING FACE}"
DEVICES = ["con", "prn", "aux", "nul"] + [
    f"{port}{n}" for port in ("com", "lpt") for n in range(10)
]

# Format version 1. A line here may be added; none may ever be changed or removed.
FROZEN = {
    # F-6
    "s1": "s1",
    "experiment.meta": "experiment.meta",
    "a_b-c.d": "a_b-c.d",
    "a..b": "a..b",
    "-": "-",
    "019a8b2e-5c00-7abc-8def-0123456789ab": "019a8b2e-5c00-7abc-8def-0123456789ab",
    # F-6: capitals
    "Foo": "^foo",
    "foo": "foo",
    "00G": "00^g",
    "00a": "00a",
    # F-6: slashes
    "support/42": "support+42",
    "a/b": "a+b",
    "a_b": "a_b",
    "/etc/x": "+etc+x",
    # F-6: other bytes
    "x ": "x%20",
    "a\nb": "a%0ab",
    "..\\x": "%2e.%5cx",
    "1+1": "1%2b1",
    "50%": "50%25",
    "^foo": "%5efoo",
    "~": "%7e",
    "user@example.com": "user%40example.com",
    "telegram:42": "telegram%3a42",
    "caf\u00e9": "caf%c3%a9",
    "cafe\u0301": "cafe%cc%81",
    "\u0130": "%c4%b0",
    GRIN: "%f0%9f%98%80",
    "\x7f": "%7f",
    # F-10
    ".": "%2e",
    "..": "%2e%2e",
    "...": "%2e.%2e",
    "../../x": "%2e.+..+x",
    "a/../b": "a+..+b",
    ".hidden": "%2ehidden",
    "x.": "x%2e",
    "con": "%63on",
    "con.txt": "%63on.txt",
    "con.": "con%2e",
    "con.a.": "%63on.a%2e",
    "CON": "^c^o^n",
    "console": "console",
    "nul": "%6eul",
    "aux.d": "%61ux.d",
    "com0": "%63om0",
    "lpt9.x.y": "%6cpt9.x.y",
    "com10": "com10",
    # F-11
    "a" * 200: "a" * 200,
    "a" * 201: "a" * 100 + "%~a92efd82109373e58f9a2056dee01e807e216ce6075f7051207c0a9f7d666e50",
    "A" * 100: "^a" * 100,
    "A" * 101: "^a" * 50 + "%~aac76dab773c00c8ad4bb128147945c70798eae5a2511fef01e853c6e3051ab9",
    "a" * 99 + "A" * 100: "a" * 99 + "%~d8832a9deced061f81953d3654ed026e56cba816e25ce86247ed5dd94c8e7801",
    "a" * 98 + "%" * 100: "a" * 98 + "%~2dea115f0a31d3551fc2d10d4c652980e7d577fa2cce1dd19bee78def190578f",
    "a" * 50 + "." * 200 + "a": "a" * 50
    + "%~a6926bfa0b6190e549e283391126f38270a7daaad2dfe8e0676d1c5b3c8fd3b3",
    "." * 500: "%2e%~b33b7afea5b04e511062b0c07f5c220465eccf04c3fad98011d245623f2731d6",
    "con" + "." * 500 + "x": "%63on" "%~9317482f83120464213c00e3ba55786923ff50a22823d1914e142097d57f7120",
    GRIN * 1024: "%f0%9f%98%80" * 8
    + "%f0%~cab5f314010847f1ffbd390d27debbb0e41d9c6000568afb78c48e8b1f5c44c7",
}  # fmt: skip

# Every character that the rules treat in its own way, and pieces that meet them.
TRICKY = [*"aAbcon./\\+^%~ _-02e", "\u00e9", "e\u0301", "\u212b", "\u0130", "\u017f", "\ufb01"]
TRICKY += ["\u2024", "\uff0f", "\n", GRIN, "con"]

any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=80)
tricky_text = st.lists(st.sampled_from(TRICKY), min_size=1, max_size=8).map("".join)
long_text = st.builds(
    lambda piece, times, end: (piece * times + end)[: names.MAX_ID_CHARACTERS],
    tricky_text,
    st.integers(20, 1024),
    any_text,
)
ids = any_text | tricky_text | long_text
name_like = st.text("aA.%26e^+~-\u00e9 ", max_size=8) | st.builds(
    "{}%~{}".format,
    st.text("a.%26e^+", max_size=102) | st.integers(1, 102).map("a".__mul__),
    st.text("0af", min_size=64, max_size=64) | st.text("0aF", max_size=66),
)

FOLDS: list[Callable[[str], str]] = [str, str.lower, str.upper, str.casefold]
FOLDS += [
    lambda name, form=form: unicodedata.normalize(form, name)  # type: ignore[misc]
    for form in ("NFC", "NFD", "NFKC", "NFKD")
]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (None, "must be a str, not NoneType; convert it"),
        (b"s1", "must be a str, not bytes; convert it"),
        (42, "must be a str, not int; convert it"),
        ("", "is empty; pass a string"),
        ("a" * 1025, "has 1025 characters; use at most 1024"),
        (GRIN * 1025, "has 1025 characters; use at most 1024"),
        ("a\0b", "has a NUL at index 1; remove it"),
        ("ab\ud800", "has a lone surrogate at index 2, which UTF-8 cannot hold; decode"),
        ("\udc80" + "x" * 300, "has a lone surrogate at index 0, which UTF-8 cannot hold; decode"),
    ],
)
def test_an_id_that_no_backend_could_keep_is_refused_with_a_reason(bad: object, said: str) -> None:
    """F-5, N-1: every function that refuses an id names the error and the remedy."""
    for function in (names.check_id, names.encode):
        with pytest.raises(InvalidSessionId) as caught:
            function(bad)  # type: ignore[arg-type]
        assert said in str(caught.value)
        assert len(str(caught.value)) < 400
        assert isinstance(caught.value, HansardError)


@pytest.mark.parametrize(("session_id", "name"), FROZEN.items(), ids=shown)
def test_the_map_of_version_1_never_changes(session_id: str, name: str) -> None:
    """F-6 to F-11: each of these ids has this name permanently, or sessions would move on disk."""
    assert names.encode(session_id) == name
    assert names.decode(name) == (None if "%~" in name else session_id)


def test_ids_over_tricky_characters_never_share_a_name() -> None:
    """N-2, N-5, N-6: no two of 25,000 short ids share a name, on any folding file system."""
    made = {
        "".join(parts) for size in (1, 2, 3) for parts in itertools.product(TRICKY, repeat=size)
    }
    for fold in FOLDS:
        assert len({fold(names.encode(session_id)) for session_id in made}) == len(made)


@given(ids)
def test_a_name_is_safe_on_every_file_system(session_id: str) -> None:
    """F-6 to F-11, N-1, N-6: a name is short, plain, visible, and one component of a path."""
    name = names.encode(session_id)
    assert 1 <= len(name.encode("ascii")) <= 200
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.^+%~")
    assert not name.startswith(".")
    assert not name.endswith((".", " "))
    assert name.split(".")[0] not in DEVICES
    assert not names.is_temporary(name)


@given(ids)
def test_decode_is_the_inverse_of_encode(session_id: str) -> None:
    """F-6 to F-11, N-3: a name returns its id, or is marked as hashed."""
    name = names.encode(session_id)
    assert names.decode(name) == (None if names.is_hashed(name) else session_id)
    assert names.is_hashed(name) == ("%~" in name)


@given(name_like)
@example("")
def test_decode_accepts_only_what_encode_makes(name: str) -> None:
    """F-6 to F-11, N-2: what decodes to an id is that id's one name; all else is refused."""
    try:
        session_id = names.decode(name)
    except ValueError:
        assert not names.is_hashed(name)
        return
    if session_id is None:
        assert names.is_hashed(name)
    else:
        assert names.encode(session_id) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        *("Foo", "^Foo", "^1", "^", "a^", "^^a"),  # upper case
        *("%61", "a%2eb", "%2f", "%41", "%2d", "%5f", "%30"),  # escapes of what needs none
        *("%2E", "%C3%A9", "%c3%A9", "%", "%2", "a%2", "%zz", "%00", "a%00"),  # no escapes
        *("%ff", "%c3", "%a9", "%ed%a0%80", "%c0%80", "%f5%80%80%80"),  # not UTF-8
        *(".", "..", ".a", "a.", ".tmp-a", "a..", "+."),  # bare first and last dots
        *("con", "con.txt", "nul", "com1.a", "%63onsole", "%43on", "%63on%2e"),  # devices
        *("a b", "a/b", "a\\b", "a\n", "a\0", "\u00e9", "a~", "~", "\n", "a:b", "\u0661"),
        *("a" * 201, "a" * 199 + "%20", "^a" * 101),  # these should have been hashed
        "%~" + "0" * 64,  # some unit is always left
        "a%~",
        "a%~" + "0" * 63,
        "a%~" + "0" * 65,
        "a%~" + "A" * 64,
        "a%~" + "0" * 64 + "\n",
        "a%~%~" + "0" * 64,
        "../a%~" + "0" * 64,
        "a" * 101 + "%~" + "0" * 64,
        ".a%~" + "0" * 64,
        "A%~" + "0" * 64,
    ],
    ids=shown,
)
def test_a_name_that_no_id_has_is_refused(name: str) -> None:
    """F-6 to F-11: a stray file is not listed as a session, nor a name that leads out of its directory."""
    with pytest.raises(ValueError, match=r"session|name|UTF-8"):
        names.decode(name)
    assert not names.is_hashed(name)


@pytest.fixture
def fresh() -> Iterator[None]:
    """Draw ids as a new process would, and let the tests that follow do so too."""
    names._last_id.after_fork()
    yield
    names._last_id.after_fork()


@pytest.fixture
def frozen(fresh: None, monkeypatch: pytest.MonkeyPatch) -> int:
    """Stop the clock, and return the time that it shows."""
    stopped = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: stopped)
    return stopped


def _in_a_child(work: Callable[[], str]) -> str:
    """Fork, run the work in the child, and return its result."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover
        try:
            signal.alarm(60)  # a child that hangs ends, and its answer is empty
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="ascii") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.usefixtures("frozen")
def test_a_thousand_ids_in_one_frozen_second_are_unique_and_sorted() -> None:
    """N-10: neither uniqueness nor order depends on the clock moving."""
    made = [names.new_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert made == sorted(made)


def test_a_new_id_is_a_uuid_of_version_7_and_its_own_name(frozen: int) -> None:
    """N-10, F-6: other tools can read the time from a generated id; its directory has its name."""
    made = names.new_id()
    parsed = uuid.UUID(made)
    assert str(parsed) == made
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert parsed.int >> 80 == frozen // 10**6
    assert names.encode(made) == made


@pytest.mark.usefixtures("fresh")
def test_ids_stay_sorted_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-10: a corrected clock does not put later ids before earlier ones."""
    start = time.time_ns()
    made = []
    for back in range(100):
        monkeypatch.setattr(time, "time_ns", lambda back=back: start - back * 10**9)
        made.append(names.new_id())
    assert made == sorted(set(made))


@pytest.mark.usefixtures("frozen")
def test_ids_stay_sorted_when_the_random_bits_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-10: the largest random bits carry into the time, and the id stays a version 7 UUID."""
    monkeypatch.setattr(os, "urandom", lambda size: b"\xff" * size)
    made = [names.new_id() for _ in range(100)]
    assert made == sorted(set(made))
    assert {uuid.UUID(one).version for one in made} == {7}
    assert {uuid.UUID(one).variant for one in made} == {uuid.RFC_4122}


@needs_fork
@pytest.mark.usefixtures("frozen")
def test_a_forked_child_draws_ids_of_its_own() -> None:
    """N-10: parent and child do not continue from the same value, even in one millisecond."""
    before = names.new_id()
    childs = _in_a_child(lambda: " ".join(names.new_id() for _ in range(500))).split()
    parents = [before] + [names.new_id() for _ in range(500)]
    assert len(set(childs + parents)) == 1001
    assert childs == sorted(childs)
    # 500 steps from a shared value would change the last 11 digits at most.
    assert childs[0][:-11] != before[:-11]


@needs_fork
@pytest.mark.usefixtures("fresh")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_a_thread_draws_an_id_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N-10, N-23: the child has no use for a lock that a thread of its parent held."""
    drawing, forked = threading.Event(), threading.Event()
    stopped = time.time_ns()

    def clock() -> int:
        if threading.current_thread() is thread:
            drawing.set()
            forked.wait(60)
        return stopped

    thread = threading.Thread(target=names.new_id)
    monkeypatch.setattr(time, "time_ns", clock)
    thread.start()
    try:
        assert drawing.wait(60)
        answer = _in_a_child(names.new_id)
    finally:
        forked.set()
        thread.join()
    assert uuid.UUID(answer).version == 7


@pytest.mark.parametrize("base", [names.LOG, names.MARKER, "a-b", "a" * 200, "x\ny"], ids=shown)
def test_each_temporary_has_a_name_of_its_own(base: str) -> None:
    """N-27, N-38: two writers never share a temporary, and a sweep knows one by its name."""
    made = {names.temporary(base) for _ in range(1000)}
    assert len(made) == 1000
    assert all(map(names.is_temporary, made))
    assert all(name.startswith(f".tmp-{base}-{os.getpid()}-") for name in made)
    assert max(map(len, made)) <= 255


@pytest.mark.parametrize(
    "name",
    [
        *(
            ".tmp",
            ".tmp-",
            ".tmp-log.jsonl",
            "tmp-a-1-0123456789abcdef",
            ".tmp--1-0123456789abcdef",
        ),
        *(".tmp-a-1-0123456789abcde", ".tmp-a-1-0123456789ABCDEF", ".tmp-a-1-0123456789abcdef0"),
        *(
            ".tmp-a-x-0123456789abcdef",
            ".tmp-a-1-0123456789abcdef\n",
            ".tmp-a-\u0661-0123456789abcdef",
        ),
        *(names.encode(".tmp-a-1-0123456789abcdef"), "x.tmp"),
    ],
    ids=shown,
)
def test_a_file_that_only_looks_like_a_temporary_is_none(name: str) -> None:
    """N-38, N-87: a sweep of temporaries leaves what others put there."""
    assert not names.is_temporary(name)


@given(st.integers(1, 10**20 - 1), st.integers(1, 10**20 - 1))
@example(9, 10)
@example(1, 2**63)
def test_the_order_of_sealed_segments_is_the_order_of_their_names(one: int, other: int) -> None:
    """format.md, section 1: sorted by name is sorted by seq, and each name gives its seq back."""
    assert names.sealed(one) == f"{one:020}.jsonl.zst"
    assert names.unpacked(one) == f"{one:020}.jsonl"
    assert {names.sealed_first_seq(name(one)) for name in (names.sealed, names.unpacked)} == {one}
    assert (names.sealed(one) < names.sealed(other)) == (one < other)


@pytest.mark.parametrize("first_seq", [0, -1, 10**20])
def test_a_segment_begins_at_a_seq(first_seq: int) -> None:
    """format.md, section 1: a seq that no event can have names no segment."""
    with pytest.raises(ValueError, match="seqs begin at 1"):
        names.sealed(first_seq)


@pytest.mark.parametrize(
    "name",
    [
        *("log.jsonl", "1.jsonl.zst", "0" * 20 + ".jsonl.zst", "0" * 19 + "1.json"),
        *("0" * 20 + "1.jsonl.zst", "0" * 19 + "1.jsonl.zst\n", "0" * 19 + "1.JSONL.ZST"),
        *("\u0661" * 20 + ".jsonl.zst", "-" + "0" * 18 + "1.jsonl.zst"),
    ],
    ids=shown,
)
def test_what_is_no_sealed_segment_has_no_first_seq(name: str) -> None:
    """N-87: a file by another hand is not taken for a segment."""
    assert names.sealed_first_seq(name) is None
