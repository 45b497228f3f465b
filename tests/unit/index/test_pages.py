"""Claims about the pages of a listing while sessions change between them."""

import random
from collections import Counter
from pathlib import Path

import pytest

import hansard
from hansard import Store
from tests.unit.index import reference_listing

IDS = [f"s{number:02}" for number in range(30)]


def filled(store: Store, rng: random.Random) -> None:
    """Make thirty sessions that are in another order by each of their properties."""
    for session_id in rng.sample(IDS, len(IDS)):
        change(store, session_id, rng)


def change(store: Store, session_id: str, rng: random.Random) -> None:
    """Do something to a session that gives it another place in every order but that of ids."""
    session = store.session(session_id)
    session.add_messages([{"content": "x" * rng.randrange(200)}] * rng.randrange(1, 5))
    session.set_title(f"title {rng.randrange(1000)}")
    session.record_usage(model="m", input_tokens=rng.randrange(100), cost=rng.random())


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        *[("os", sign + name) for name in reference_listing.ORDERS for sign in ("", "-")],
        ("memory", "-updated"),
        ("memory", "title"),
    ],
)
def test_pages_show_what_does_not_move_once(
    kind: str, order: str, tmp_path: Path, rng: random.Random
) -> None:
    """Whatever a listing is sorted by, each session that keeps its place is on one page, in order."""
    where = "memory:" if kind == "memory" else tmp_path / "store"
    with hansard.open(where, durability="os") as store:
        filled(store, rng)
        moving = IDS[::2]
        begun: list[str] = []

        def between() -> None:
            if len(begun) == 6:
                return  # sorted by time, what is written to comes again and again
            for session_id in rng.sample(moving, 6):
                change(store, session_id, rng)
            store.sessions(order="-updated", limit=1)
            begun.append(f"s{rng.randrange(30):02}/new{len(begun)}")
            change(store, begun[-1], rng)

        listed = [info.id for info in store.sessions(order=order).items]
        expected = [session_id for session_id in listed if session_id not in moving]
        found = [
            info.id
            for info in reference_listing.pages(store.sessions, 4, between, order=order)
            if info.id in expected
        ]
        assert found == expected


def test_a_page_token_tells_nothing_of_other_sessions(tmp_path: Path) -> None:
    """Tokens of a scoped store are equal, whatever was done outside of it."""
    tokens = []
    for others in (0, 5):
        with hansard.open(tmp_path / f"{others}", durability="os") as store:
            for number in range(others):
                store.session(f"other/{number}").add_message({"content": "x"})
                store.sessions()
            for name in ("a", "b", "c"):
                store.session(f"mine/{name}").set_title(name)
                store.sessions()
            mine = store.scoped("mine/")
            tokens.append([mine.sessions(order=key, limit=2).next for key in ("id", "title")])
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("order", ["-updated", "title"])
def test_what_is_deleted_meanwhile_hides_no_other(
    order: str, tmp_path: Path, rng: random.Random
) -> None:
    """A session that is deleted between two pages hides none that keeps its place."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        filled(store, rng)
        gone = rng.sample(IDS, 8)
        left = list(gone)
        moved: set[str] = set()

        def between() -> None:
            if left:
                store.delete(left.pop())
            moved.add(rng.choice([found for found in IDS if found not in gone]))
            change(store, max(moved), rng)

        found = Counter(
            info.id for info in reference_listing.pages(store.sessions, 3, between, order=order)
        )
        assert set(found) >= set(IDS) - set(gone) - moved


def test_a_page_shows_sessions_as_they_are_now(store: Store) -> None:
    """A page has each session at its place of now: one that moves ahead of the page token is not on it."""
    for session_id in ("a", "b", "c"):
        store.session(session_id).set_title(session_id)
    page = store.sessions(order="title", limit=1)
    store.session("b").set_title("d")
    store.session("c").set_title("A new one")
    rest = store.sessions(order="title", cursor=page.next)
    assert [(info.id, info.title) for info in rest.items] == [("b", "d")]


def test_pages_go_on_when_the_index_was_deleted_between_them(
    tmp_path: Path, rng: random.Random
) -> None:
    """N-86: a cursor is good for an index that was made anew, where nothing has changed meanwhile."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        filled(store, rng)
        store.sessions()
        change(store, "s03", rng)
        expected = [info.id for info in store.sessions(order="cost").items]

        def between() -> None:
            for path in root.glob("index*"):
                path.unlink()

        found = [
            info.id for info in reference_listing.pages(store.sessions, 7, between, order="cost")
        ]
        assert found == expected
