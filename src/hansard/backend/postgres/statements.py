"""The statements that are run again and again, each written once.

Above: `append`, `log`, `reads`.  Below: nothing.
An append is one statement. Its first part moves the session's row on by as many seqs as there are events,
or makes it; the row's lock is held until the commit, so the order of commits is the order of seqs, and
whoever reads `seq > n` misses nothing. Its second part adds the events at the seqs that the first one gave.
If the first one does not find the session as it should be, it gives nothing, and there is no second.
"""

from functools import lru_cache
from typing import Final, NamedTuple

#: The time as `log.format` writes it. After the row's lock was had: so times go up as seqs do.
_CLOCK: Final = """to_char({clock} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')::varchar"""
_NOW: Final = _CLOCK.format(clock="now()")
LATER: Final = _CLOCK.format(clock="clock_timestamp()")

_MAKE: Final = """
INSERT INTO {schema}.sessions AS s (session, internal, id, before, last_seq, bytes, created, updated)
VALUES (%(session)s::uuid, {internal}, %(id)b, {before}, {before} + {count}, %(bytes)s::bigint,
        {first}, {last})
ON CONFLICT (session)"""

_ADVANCE: Final = """
SET last_seq = s.last_seq + {count}, bytes = s.bytes + %(bytes)s::bigint, marked = true,
    updated = {later}
WHERE s.deleted_at IS NULL"""

_UPDATE: Final = f"""
UPDATE {{schema}}.sessions AS s{_ADVANCE} AND s.session = %(session)s::uuid"""

_EXPECTED: Final = " AND s.last_seq = %(expected)s::bigint"

#: Only where somebody may have been before: keys that a caller gave.
_UNKNOWN: Final = """
AND NOT EXISTS (SELECT FROM {schema}.events AS k
                WHERE k.session = %(session)s::uuid AND k.append_id = ANY(%(keys)b::varchar[]::uuid[]))"""

_UNKNOWN_ONE: Final = _UNKNOWN.replace("ANY(%(keys)b::varchar[]::uuid[])", "%(append_id)s::uuid")

#: Run by `direct`: what it is given are bytes, and what is marked `b` is sent as it is.
_ONE: Final = """
INSERT INTO {schema}.events
    (session, seq, append_id, append_count, control, stamp, kind, key, data)
SELECT %(session)s::uuid, s.last_seq, %(append_id)s::uuid, 1, {control}, s.updated, %(kind)b::varchar,
       {key}, %(data)b::text
FROM s"""

_MANY: Final = """
INSERT INTO {schema}.events
    (session, seq, append_id, append_count, control, stamp, kind, key, data)
SELECT %(session)s::uuid, s.last_seq - {count} + e.place, e.append_id::uuid, e.append_count, e.control,
       coalesce(e.stamp, s.updated), e.kind, e.key, e.data
FROM s, unnest(%(append_ids)b::varchar[], %(append_counts)b::integer[], %(controls)b::boolean[],
               %(stamps)b::varchar[], %(kinds)b::varchar[], %(keys_given)b::varchar[], %(datas)b::text[])
     WITH ORDINALITY AS e (append_id, append_count, control, stamp, kind, key, data, place)"""

#: For the transaction that this statement is, and no longer.
_LIGHT: Final = ", set_config('synchronous_commit', 'off', true)"

_COLUMNS: Final = "seq, stamp, kind, key, append_count, data"

_RANGE: Final = """
SELECT seq, stamp, kind, key, append_count, data
FROM (SELECT *, sum(octet_length(data)) OVER (ORDER BY seq {way} ROWS UNBOUNDED PRECEDING)
                - octet_length(data) AS passed
      FROM (SELECT * FROM {schema}.events
            WHERE session = %(session)s::uuid AND seq > %(after)s AND seq <= %(upto)s
              AND (SELECT life FROM {schema}.sessions WHERE session = %(session)s::uuid) = %(life)s
            ORDER BY seq {way} LIMIT %(rows)s) AS e) AS e
WHERE passed < %(most)s
ORDER BY seq {way}"""


class Shape(NamedTuple):
    """Which of its forms an append takes: what it does not need is not sent, and not looked at."""

    #: One event.
    one: bool = False
    #: … which is a control event.
    control: bool = False
    #: The events have times of their own.
    timed: bool = False
    #: The session is known to exist.
    exists: bool = False
    #: … and must be at a seq.
    expected: bool = False
    #: The session must not exist.
    new: bool = False
    #: If it does not exist, it begins behind a seq.
    placed: bool = False
    #: Some appends have keys that callers gave.
    keyed: bool = False
    #: It is an internal log.
    internal: bool = False
    #: Need not be durable when it returns.
    light: bool = False


@lru_cache
def append(schema: str, shape: Shape) -> bytes:
    """Return the statement for an append."""
    unknown = _UNKNOWN_ONE if shape.one else _UNKNOWN
    conditions = (_EXPECTED if shape.expected else "") + (unknown if shape.keyed else "")
    if shape.exists:
        session = _UPDATE + conditions
    elif shape.new:
        session = f"{_MAKE} DO NOTHING"
    else:
        session = f"{_MAKE} DO UPDATE{_ADVANCE}{conditions}"
    events = _ONE if shape.one else _MANY
    light = _LIGHT if shape.light else ""
    text = (
        f"WITH s AS ({session}\nRETURNING s.last_seq, s.updated),\ne AS ({events})\n"
        f"SELECT last_seq, updated{light} FROM s"
    )
    parts = {
        "schema": schema,
        "count": "1" if shape.one else "%(count)s::bigint",
        "before": "%(before)s::bigint" if shape.placed else "0",
        "first": "%(first)b::varchar" if shape.timed else _NOW,
        "last": "%(last)b::varchar" if shape.timed else _NOW,
        "later": "%(last)b::varchar" if shape.timed else LATER,
        "internal": "true" if shape.internal else "false",
        "control": "true" if shape.control else "false",
        "key": "%(key)b::varchar" if shape.keyed else "NULL",
    }
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text.encode()


@lru_cache
def statement(schema: str, text: str) -> bytes:
    """Return any other statement."""
    return text.replace("{schema}", schema).replace("{columns}", _COLUMNS).encode()


FORWARDS: Final = _RANGE.replace("{way}", "ASC")
BACKWARDS: Final = _RANGE.replace("{way}", "DESC")

#: A session's row, with its first event: its data only if that is needed to read the session.
STANDING: Final = """
       s.last_seq, s.created, s.updated, s.bytes, s.deleted_at IS NOT NULL, s.before, s.life, s.rewritten,
       e.seq, e.stamp, e.kind, CASE e.kind WHEN 'session.forked' THEN e.data ELSE '{}' END, e.key
FROM {schema}.sessions AS s
LEFT JOIN {schema}.events AS e ON e.session = s.session AND e.seq = s.before + 1"""

HEAD: Final = f"SELECT{STANDING} WHERE s.session = %(session)s::uuid"

CONTROLS: Final = """
SELECT e.seq, e.stamp, e.kind, e.key, e.append_count, e.data
FROM {schema}.sessions AS s
LEFT JOIN {schema}.events AS e
    ON e.session = s.session AND e.control AND e.seq > %(after)s AND e.seq <= %(upto)s
WHERE s.session = %(session)s::uuid AND s.life = %(life)s
ORDER BY e.seq"""

EVENTS: Final = """
SELECT {columns} FROM {schema}.events
WHERE session = %(session)s::uuid AND seq >= %(first)s AND seq < %(first)s + %(count)s
ORDER BY seq"""

KNOWN: Final = """
SELECT replace(append_id::varchar, '-', ''), seq, append_count FROM {schema}.events
WHERE session = %(session)s::uuid AND append_id = ANY(%(keys)b::varchar[]::uuid[])"""

SURVIVORS: Final = """
SELECT {columns} FROM {schema}.events
WHERE session = %(session)s::uuid AND seq > %(after)s ORDER BY seq LIMIT 200"""
