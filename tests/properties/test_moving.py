"""Claims about moving every history: what was said, forked, streamed, redacted, in any order."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hansard
from hansard import Session, Store

NAMES = ["a", "b", "c", "d"]

#: Half as many as usual: each one is a store or two, and moved more than once.
EXAMPLES = settings().max_examples // 2

#: Whether a store is on files, which takes its time.
FILES = st.sampled_from([False, False, False, True])

TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.just("long " * 100)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)

#: What is done, to which session, with which number, text and JSON.
Op = tuple[str, str, int, str, Any]


def _stream(session: Session, text: str, number: int) -> None:
    stream = session.stream(role="assistant")
    for _ in range(number % 4):
        stream.write(text)
    if number % 2 and stream.text:
        stream.finish()


def _redact(session: Session, number: int) -> None:
    kinds = {"message.added", "message.part"}
    seqs = [event.seq for event in session.events() if event.kind in kinds]
    if seqs:
        session.redact(seqs[number % len(seqs)])


def _fork(session: Session, number: int) -> None:
    with suppress(hansard.SessionExists, hansard.SessionNotFound):
        session.fork(NAMES[number % len(NAMES)], at=number % (session.seq + 1))


ACTIONS: dict[str, Callable[[Session, int, str, Any], object]] = {
    "add": lambda s, _, text, value: s.add_message({"role": "user", "content": text, "x": value}),
    "batch": lambda s, n, *_: s.add_messages([{"n": n}] * (1 + n % 3), key=f"ü{n % 3}"),
    "append": lambda s, _, __, value: s.append("x.thing", {"data": value}),
    "stream": lambda s, n, text, _: _stream(s, text, n),
    "redact": lambda s, n, *_: _redact(s, n),
    "revert": lambda s, n, *_: s.seq and s.revert(n % s.seq),
    "fork": lambda s, n, *_: _fork(s, n),
    "title": lambda s, n, *_: s.set_metadata(title=f"title {n % 2}"),
    "snapshot": lambda s, *_: s.seq and s.snapshot("here"),
    "compact": lambda s, *_: s.seq and s.compact(),
}
OPS = st.tuples(
    st.sampled_from(list(ACTIONS)), st.sampled_from(NAMES), st.integers(0, 50), TEXT, JSON
)


def _run(store: Store, ops: list[Op]) -> None:
    for kind, name, number, text, value in ops:
        ACTIONS[kind](store.session(name), number, text, value)


def _stores(stack: ExitStack, *, local: bool) -> Store:
    path = stack.enter_context(tempfile.TemporaryDirectory()) if local else "memory:"
    return stack.enter_context(hansard.open(path, durability="os", auto_compact=False))


def _lines(session: Session, **options: Any) -> list[bytes]:
    return b"".join(session.export(redacted=False, **options)).splitlines(keepends=True)[1:-1]


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(st.lists(OPS, min_size=1, max_size=14), FILES, FILES, st.booleans())
def test_what_is_exported_is_imported_and_exported_the_same(
    ops: list[Op], local: bool, local_target: bool, parts: bool
) -> None:
    """N-50, N-88: any history, exported and imported, shows the same, and exports the same again."""
    with ExitStack() as stack:
        source = _stores(stack, local=local)
        _run(source, ops)
        target = _stores(stack, local=local_target)
        for info in source.sessions().items:
            session = source.session(info.id)
            target.import_session(session.export(redacted=False, parts=parts))
            moved = target.session(info.id)
            assert _lines(moved, parts=parts) == _lines(session, parts=parts)
            for view in ("model", "history"):
                assert moved.messages(view=view) == session.messages(view=view)
            assert moved.metadata == session.metadata
            assert moved.snapshots == session.snapshots
            again = target.import_session(session.export(redacted=False, parts=parts))
            assert again.already
        assert target.verify().ok


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(st.lists(OPS, max_size=10), st.lists(OPS, max_size=10), FILES, FILES)
def test_a_copy_that_goes_on_is_the_same_as_its_source(
    before: list[Op], after: list[Op], local: bool, local_target: bool
) -> None:
    """N-50, N-84: copied before and after any change, both stores are equal."""
    with ExitStack() as stack:
        source = _stores(stack, local=local)
        target = _stores(stack, local=local_target)
        for ops in (before, after, []):
            _run(source, ops)
            report = source.copy_to(target)
            assert report.failed == {}
            ids = [info.id for info in source.sessions().items]
            assert [info.id for info in target.sessions().items] == ids
            for name in ids:
                one, other = source.session(name), target.session(name)
                for view in ("model", "history"):
                    assert other.messages(view=view) == one.messages(view=view)
                assert other.state() == one.state()
                assert (other.parent, other.children()) == (one.parent, one.children())
                assert _lines(other) == _lines(one)
        assert report.events == 0
        assert target.verify().ok
