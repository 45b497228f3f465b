"""Pages of a listing while sessions change between them."""

import random
from pathlib import Path

import pytest

import hansard
from hansard import Store
from tests.unit.index import reference_listing

IDS = [f"s{number:02}" for number in range(30)]


def filled(store: Store, rng: random.Random) -> None:
    """Create thirty sessions with a different order by each sort key."""
    for session_id in rng.sample(IDS, len(IDS)):
        change(store, session_id, rng)


def change(store: Store, session_id: str, rng: random.Random) -> None:
    """Change the position of a session in every order, except by id."""
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
def test_a_session_that_does_not_move_is_on_one_page(
    kind: str, order: str, tmp_path: Path, rng: random.Random
) -> None:
    """N-86: others move, are created or deleted, and the index is deleted: the rest is on one page each."""
    where = "memory:" if kind == "memory" else tmp_path / "store"
    with hansard.open(where, durability="os") as store:
        filled(store, rng)
        moving = IDS[::2]
        still = IDS[1::2]
        begun: list[str] = []

        def between() -> None:
            if len(begun) == 6:
                return  # sorted by time, a changed session is listed again and again
            for session_id in rng.sample(moving, 6):
                change(store, session_id, rng)
            store.sessions(order="-updated", limit=1)
            store.delete(moving.pop())
            if kind == "os" and len(begun) == 3:
                for path in (tmp_path / "store").glob("index*"):
                    path.unlink()
            begun.append(f"s{rng.randrange(30):02}/new{len(begun)}")
            change(store, begun[-1], rng)

        listed = [info.id for info in store.sessions(order=order).items]
        expected = [session_id for session_id in listed if session_id in still]
        found = [
            info.id
            for info in reference_listing.pages(store.sessions, 4, between, order=order)
            if info.id in expected
        ]
        assert found == expected


def test_a_page_token_reveals_nothing_about_other_sessions(tmp_path: Path) -> None:
    """Page tokens of a scoped store do not depend on what happens outside of it."""
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
