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

Op = Callable[[Store], object]


def _on(name: str, act: Callable[[Session], object]) -> Op:
    def run(store: Store) -> object:
        return act(store.session(name))

    return run


def _stream(session: Session, texts: list[str], *, ends: bool) -> None:
    stream = session.stream(role="assistant")
    stream.__enter__()
    for text in texts:
        stream.write(text)
    if ends:
        stream.__exit__(None, None, None)


def _redact(session: Session, place: int) -> None:
    seqs = [
        event.seq for event in session.events() if event.kind in {"message.added", "message.part"}
    ]
    if seqs:
        session.redact(seqs[place % len(seqs)])


def _back(session: Session, place: int) -> None:
    if session.seq:
        session.revert(place % session.seq)


def _fork(session: Session, name: str, place: int) -> None:
    if session.seq:
        with suppress(hansard.SessionExists):
            session.fork(name, at=place % (session.seq + 1))


OPS = st.one_of(
    st.builds(
        lambda name, content, extra: _on(
            name, lambda s: s.add_message({"role": "user", "content": content, "extra": extra})
        ),
        st.sampled_from(NAMES),
        TEXT,
        JSON,
    ),
    st.builds(
        lambda name, key, count: _on(
            name,
            lambda s: s.add_messages([{"role": "user", "n": n} for n in range(count)], key=key),
        ),
        st.sampled_from(NAMES),
        st.sampled_from(["k1", "k2", "ü"]),
        st.integers(1, 3),
    ),
    st.builds(
        lambda name, data: _on(name, lambda s: s.append("x.thing", {"data": data})),
        st.sampled_from(NAMES),
        JSON,
    ),
    st.builds(
        lambda name, texts, ends: _on(name, lambda s: _stream(s, texts, ends=ends)),
        st.sampled_from(NAMES),
        st.lists(TEXT, max_size=3),
        st.booleans(),
    ),
    st.builds(
        lambda name, place: _on(name, lambda s: _redact(s, place)),
        st.sampled_from(NAMES),
        st.integers(0, 50),
    ),
    st.builds(
        lambda name, place: _on(name, lambda s: _back(s, place)),
        st.sampled_from(NAMES),
        st.integers(0, 50),
    ),
    st.builds(
        lambda name, child, place: _on(name, lambda s: _fork(s, child, place)),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.integers(0, 50),
    ),
    st.builds(
        lambda name, title: _on(name, lambda s: s.set_metadata(title=title)),
        st.sampled_from(NAMES),
        st.sampled_from(["one", "two"]),
    ),
    st.builds(
        lambda name: _on(name, lambda s: s.seq and s.snapshot("here")), st.sampled_from(NAMES)
    ),
    st.builds(lambda name: _on(name, lambda s: s.seq and s.compact()), st.sampled_from(NAMES)),
)


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
        for op in ops:
            op(source)
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
            for op in ops:
                op(source)
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
