"""Measure a store in PostgreSQL against bare statements on the same server, and two other systems.

Server and clients share one machine, so the time of a network is not included.
"""

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hansard
from tools.bench.conversation import conversation
from tools.bench.result import Result, claim_of

if TYPE_CHECKING:
    from tests.postgres.server import Server

APPENDS: Final = 1_000
EVENTS: Final = 10_000
WRITERS: Final = 16
SECONDS: Final = 4.0
#: Sessions that are created one by one, and how often SQL then copies each.
MADE: Final = 1_000
TIMES: Final = 100
LISTED: Final = 1_000
TURNS: Final = 100

_clock = time.perf_counter


@contextmanager
def _server() -> "Iterator[Server]":
    # Imported here, as psycopg below: only this group's environment has the packages.
    from tests.postgres.server import Server

    settings = {"fsync": "on", "shared_buffers": "128MB", "autovacuum": "on"}
    with Server(18, settings=settings) as server:
        yield server


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _timed(do: Callable[[], object]) -> float:
    begin = _clock()
    do()
    return _clock() - begin


def pg_append(directory: Path) -> Result:
    """One `append` against a bare single-row INSERT with its commit, one after the other, p50."""
    del directory
    import psycopg

    messages = conversation(1, 200)
    with _server() as server:
        url = server.database()
        with hansard.open(url) as store, psycopg.connect(url, autocommit=True) as bare:
            session = store.session("s")
            bare.execute(
                "CREATE TABLE bare (session uuid, seq bigint, stamp varchar, kind varchar, data text, "
                "PRIMARY KEY (session, seq))"
            )
            query = (
                "INSERT INTO bare VALUES ('00000000-0000-0000-0000-000000000001', %s, %s, %s, %s)"
            )
            cursor = bare.cursor()
            ours, theirs = [], []
            for number in range(APPENDS):
                message = messages[number % 200]
                data = str(message)
                ours.append(_timed(lambda: session.add_message(message)))  # noqa: B023 - called now
                params = (number, "2026-01-01T00:00:00.000000Z", "message.added", data)
                theirs.append(_timed(lambda: cursor.execute(query, params, prepare=True)))  # noqa: B023
    mine, bare_time = statistics.median(ours), statistics.median(theirs)
    return Result(
        "pg_append",
        claim_of(pg_append),
        _milliseconds(mine),
        _milliseconds(bare_time),
        mine / bare_time,
        1.3,
    )


def _per_second(store: hansard.Store, writers: int) -> float:
    """Return the appends a second of some threads, all to one session."""
    counts = [0] * writers
    stop = threading.Event()
    session = store.session("hot")
    message = {"role": "user", "content": "x" * 300}

    def write(place: int) -> None:
        while not stop.is_set():
            session.add_message(message)
            counts[place] += 1

    threads = [threading.Thread(target=write, args=(place,)) for place in range(writers)]
    begin = _clock()
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (_clock() - begin)


def pg_writers(directory: Path) -> Result:
    """16 writers of one process on one session against one writer, appends a second."""
    del directory
    with _server() as server, hansard.open(server.database()) as store:
        _per_second(store, 1)
        one = _per_second(store, 1)
        many = _per_second(store, WRITERS)
    return Result(
        "pg_writers",
        claim_of(pg_writers),
        f"{many:,.0f}/s",
        f"{one:,.0f}/s",
        many / one,
        3.0,
        more=True,
    )


def pg_load(directory: Path) -> Result:
    """10,000 events read against a bare SELECT of the same rows."""
    del directory
    import psycopg

    messages = conversation(2, 200)
    with _server() as server:
        url = server.database()
        with hansard.open(url) as store, psycopg.connect(url, autocommit=True) as bare:
            session = store.session("s")
            for start in range(0, EVENTS, 500):
                session.add_messages([messages[(start + n) % 200] for n in range(500)])
            query = (
                "SELECT seq, stamp, kind, key, append_count, data FROM hansard.events "
                "WHERE session = (SELECT session FROM hansard.sessions WHERE id = 's') ORDER BY seq"
            )
            ours, theirs, loaded = [], [], []
            for _ in range(9):
                ours.append(_timed(lambda: list(session.events())))
                cursor = bare.cursor(binary=True)
                theirs.append(_timed(lambda: cursor.execute(query).fetchall()))  # noqa: B023 - called now
                loaded.append(_timed(session.messages))
    mine, bare_time = statistics.median(ours), statistics.median(theirs)
    return Result(
        "pg_load",
        claim_of(pg_load),
        _milliseconds(mine),
        _milliseconds(bare_time),
        mine / bare_time,
        1.5,
        note=f"as messages, decoded: {_milliseconds(statistics.median(loaded))}.",
    )


_REPEAT: Final = """
INSERT INTO hansard.sessions (session, before, last_seq, bytes, id, created, updated, marked)
SELECT md5(s.id || '-' || k)::uuid, s.before, s.last_seq, s.bytes, s.id || '-' || k, s.created, s.updated,
       false
FROM hansard.sessions s, generate_series(2, {times}) k WHERE s.id <> '';
INSERT INTO hansard.index_entry
SELECT s.id || '-' || k, replace(e.info, '"' || s.id || '"', '"' || s.id || '-' || k || '"'), 0
FROM hansard.index_session s JOIN hansard.index_entry e ON e.id = s.id, generate_series(2, {times}) k;
INSERT INTO hansard.index_session
    (n, id, stamp, seq, created, updated, title, folded, messages, bytes, state, tokens, cost,
     parent_created, archived, damaged, held, workspace_id, unsettled)
SELECT s.n + k * 1000000, s.id || '-' || k, s.stamp, s.seq, s.created,
       left(s.updated, 20) || lpad(k::text, 6, '0') || 'Z', s.title, s.folded, s.messages,
       s.bytes, s.state, s.tokens, s.cost, s.parent_created, s.archived, s.damaged, s.held,
       s.workspace_id, s.unsettled
FROM hansard.index_session s, generate_series(2, {times}) k;
ANALYZE hansard.sessions, hansard.index_entry, hansard.index_session"""


def pg_listing(directory: Path) -> Result:
    """1,000 of 100,000 sessions listed, the latest first, against 100 ms."""
    from tests.postgres.server import sql

    del directory
    with _server() as server:
        url = server.database()
        with hansard.open(url, durability="os") as store:
            for number in range(MADE):
                session = store.session(f"s{number}")
                session.add_messages([{"role": "user", "content": f"hello {number}"}] * 3)
            first = _timed(store.count)
            script = _REPEAT.replace("{times}", str(TIMES))
            for statement in script.split(";\n"):
                sql(url, statement)
            store.sessions(order="-updated", limit=10)
            latest = []
            for _ in range(9):
                store.session("s1").add_message({"role": "user", "content": "one more"})
                latest.append(_timed(lambda: store.sessions(order="-updated", limit=LISTED)))
            by_id = statistics.median(
                _timed(lambda: store.sessions(limit=LISTED)) for _ in range(9)
            )
            count = statistics.median(_timed(store.count) for _ in range(5))
            assert store.count() == MADE * TIMES
    mine = statistics.median(latest)
    note = (
        f"each time one session had changed. By id: {_milliseconds(by_id)}; to count all: "
        f"{_milliseconds(count)}; to describe a session the first time: {_milliseconds(first / MADE)}."
    )
    return Result(
        "pg_listing",
        claim_of(pg_listing),
        _milliseconds(mine),
        "100 ms",
        mine / 0.1,
        1.0,
        note=note,
    )


def pg_and_langgraph(directory: Path) -> Result:
    """A turn of 2 messages appended, compared with LangGraph's PostgresSaver that saves the state, p50."""
    del directory
    from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint
    from langgraph.checkpoint.postgres import PostgresSaver

    from tests.postgres.server import sql

    messages = conversation(3, 2 * TURNS)
    with _server() as server:
        url = server.database()
        # In a separate database: the role of this server is called `hansard`, so its tables would be found
        # in the schema of that name.
        other = server.database()
        with PostgresSaver.from_conn_string(other) as saver, hansard.open(url) as store:
            saver.setup()
            session = store.session("s")
            config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            checkpoint = empty_checkpoint()
            said: list[Any] = []
            ours, theirs = [], []
            for turn in range(TURNS):
                some = messages[2 * turn : 2 * turn + 2]
                ours.append(_timed(lambda: session.add_messages(some)))  # noqa: B023 - called now
                said = [*said, *some]

                begin = _clock()
                version = f"{turn + 1:032}"
                checkpoint = create_checkpoint(checkpoint, None, turn)
                checkpoint["channel_values"] = {"messages": said}
                checkpoint["channel_versions"] = {"messages": version}
                config = saver.put(config, checkpoint, {"step": turn}, {"messages": version})
                theirs.append(_clock() - begin)
            mine_load = statistics.median(_timed(session.messages) for _ in range(5))
            their_load = statistics.median(
                _timed(lambda: saver.get_tuple(config)) for _ in range(5)
            )
            sizes = [
                sql(
                    place,
                    f"SELECT sum(pg_total_relation_size(t::regclass)) FROM unnest(array{tables}) t",  # noqa: S608
                )[0][0]
                for place, tables in (
                    (url, ["hansard.events", "hansard.sessions"]),
                    (other, ["checkpoints", "checkpoint_blobs", "checkpoint_writes"]),
                )
            ]
    mine, its = statistics.median(ours), statistics.median(theirs)
    note = (
        f"{TURNS} turns; to load them: {_milliseconds(mine_load)} against {_milliseconds(their_load)}; "
        f"on disk: {int(str(sizes[0])):,} bytes against {int(str(sizes[1])):,}."
    )
    return Result(
        "pg_and_langgraph",
        claim_of(pg_and_langgraph),
        _milliseconds(mine),
        _milliseconds(its),
        mine / its,
        1.0,
        note=note,
    )


def pg_and_agents(directory: Path) -> Result:
    """A turn of 2 messages appended, compared with the Agents SDK's SQLAlchemySession, p50."""
    del directory
    from agents.extensions.memory import SQLAlchemySession

    messages = conversation(4, 2 * TURNS)
    items: list[Any] = [
        {"role": str(message["role"]), "content": str(message)} for message in messages
    ]
    with _server() as server:
        url = server.database()
        place = url.replace("postgresql://", "postgresql+psycopg://")

        async def measure() -> tuple[list[float], list[float], float, float]:
            other = SQLAlchemySession.from_url("s", url=place, create_tables=True)
            await other.get_items()
            ours, theirs = [], []
            async with await hansard.aio.open(url) as store:
                session = store.session("s")
                for turn in range(TURNS):
                    some = items[2 * turn : 2 * turn + 2]
                    begin = _clock()
                    await session.add_messages(some)
                    ours.append(_clock() - begin)
                    begin = _clock()
                    await other.add_items(some)
                    theirs.append(_clock() - begin)
                loads = []
                for load in (session.messages, other.get_items):
                    times = []
                    for _ in range(5):
                        begin = _clock()
                        await load()
                        times.append(_clock() - begin)
                    loads.append(statistics.median(times))
            await other.engine.dispose()
            return ours, theirs, loads[0], loads[1]

        ours, theirs, mine_load, their_load = asyncio.run(measure())
    mine, other_time = statistics.median(ours), statistics.median(theirs)
    return Result(
        "pg_and_agents",
        claim_of(pg_and_agents),
        _milliseconds(mine),
        _milliseconds(other_time),
        mine / other_time,
        1.0,
        note=f"{TURNS} turns, both async; to load them: {_milliseconds(mine_load)} against "
        f"{_milliseconds(their_load)}.",
    )


def pg_copy(directory: Path) -> Result:
    """10,000 events copied from files to PostgreSQL and compared, against adding them one by one."""
    messages = conversation(5, 200)
    with _server() as server:
        url = server.database()
        with (
            hansard.open(directory / "s", durability="os") as here,
            hansard.open(url) as there,
            hansard.open(directory / "b", durability="os") as back,
        ):
            for number in range(20):
                here.session(f"s{number}").add_messages((messages * 3)[:500])
            mine = _timed(lambda: here.copy_to(there))
            returned = _timed(lambda: there.copy_to(back))
            again = _timed(lambda: here.copy_to(there))
            session = there.session("single")
            alone = _timed(lambda: [session.add_message(message) for message in messages]) * 50
    note = f"back again: {returned:.2f} s; again, with nothing new: {again:.2f} s."
    return Result(
        "pg_copy",
        claim_of(pg_copy),
        f"{mine:.2f} s",
        f"{alone:.2f} s",
        mine / alone,
        0.5,
        note=note,
    )


ALL: Final[list[Callable[[Path], Result]]] = [
    pg_append,
    pg_writers,
    pg_load,
    pg_listing,
    pg_copy,
    pg_and_langgraph,
    pg_and_agents,
]
