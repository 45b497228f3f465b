"""The tables of an index of a store's sessions.

They hold nothing that the logs do not, and may be emptied at any time. What each is for,
`index.sqlite_storage` says next to the same tables. Texts are `COLLATE "C"`: prefixes are ranges of ids, and
the boundary of a scope.
"""

from typing import Final

#: Takes version 1 of a store's tables to version 2.
#:
#: An id may have 4 KiB, more than a B-tree takes: a hash of it is unique.
INDEX: Final = """
ALTER TABLE {schema}.sessions ADD COLUMN marked boolean NOT NULL DEFAULT true;
CREATE INDEX sessions_marked ON {schema}.sessions (session) WHERE marked AND NOT internal;

CREATE TABLE {schema}.index_pending (pass uuid NOT NULL, id varchar COLLATE "C" NOT NULL);

CREATE TABLE {schema}.index_meta (key varchar COLLATE "C" PRIMARY KEY, value varchar COLLATE "C" NOT NULL);

CREATE TABLE {schema}.index_entry (
    id varchar COLLATE "C" NOT NULL,
    info varchar COLLATE "C" NOT NULL,
    crc bigint NOT NULL
);
CREATE UNIQUE INDEX index_entry_unique ON {schema}.index_entry (md5(id));
CREATE INDEX index_entry_id ON {schema}.index_entry USING hash (id);

CREATE TABLE {schema}.index_session (
    n bigint PRIMARY KEY,
    id varchar COLLATE "C" NOT NULL,
    stamp varchar COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    created varchar COLLATE "C" NOT NULL,
    updated varchar COLLATE "C" NOT NULL,
    title varchar COLLATE "C" NOT NULL,
    folded varchar COLLATE "C" NOT NULL,
    messages bigint NOT NULL,
    bytes bigint NOT NULL,
    tokens bigint NOT NULL,
    cost double precision NOT NULL,
    parent varchar COLLATE "C",
    parent_created varchar COLLATE "C" NOT NULL,
    archived boolean NOT NULL,
    damaged boolean NOT NULL,
    workspace varchar COLLATE "C",
    workspace_id varchar COLLATE "C" NOT NULL,
    unsettled bigint NOT NULL,
    state bytea
);
CREATE UNIQUE INDEX index_session_unique ON {schema}.index_session (md5(id));
CREATE INDEX index_session_id ON {schema}.index_session USING hash (id);
CREATE INDEX index_session_created ON {schema}.index_session (created);
CREATE INDEX index_session_updated ON {schema}.index_session (updated);
CREATE INDEX index_session_parent ON {schema}.index_session USING hash (parent) WHERE parent IS NOT NULL;
CREATE INDEX index_session_again ON {schema}.index_session (n) WHERE stamp = '';

CREATE TABLE {schema}.index_label (
    n bigint NOT NULL, key varchar COLLATE "C" NOT NULL, value varchar COLLATE "C" NOT NULL
);
CREATE INDEX index_label_value ON {schema}.index_label (value);
CREATE INDEX index_label_session ON {schema}.index_label (n);

CREATE TABLE {schema}.index_tally (
    n bigint PRIMARY KEY, seq bigint NOT NULL, bytes bigint NOT NULL, saved bigint NOT NULL,
    data varchar COLLATE "C" NOT NULL
);

CREATE TABLE {schema}.index_unread (id varchar COLLATE "C" NOT NULL);
CREATE UNIQUE INDEX index_unread_unique ON {schema}.index_unread (md5(id));

CREATE TABLE {schema}.index_log (
    log bigint PRIMARY KEY,
    id varchar COLLATE "C" NOT NULL,
    created varchar COLLATE "C" NOT NULL,
    living boolean NOT NULL,
    first bigint NOT NULL,
    parent varchar COLLATE "C",
    at bigint NOT NULL,
    seq bigint NOT NULL,
    stamp varchar COLLATE "C" NOT NULL,
    checked bigint NOT NULL,
    title varchar COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX index_log_unique ON {schema}.index_log (md5(id));
CREATE INDEX index_log_id ON {schema}.index_log USING hash (id);
CREATE INDEX index_log_parent ON {schema}.index_log USING hash (parent) WHERE parent IS NOT NULL;
CREATE INDEX index_log_deleted ON {schema}.index_log (log) WHERE NOT living;

CREATE TABLE {schema}.index_text (
    text bigint PRIMARY KEY, log bigint NOT NULL, seq bigint NOT NULL,
    stream varchar COLLATE "C" NOT NULL, time varchar COLLATE "C" NOT NULL,
    role varchar COLLATE "C" NOT NULL
);
CREATE INDEX index_text_place ON {schema}.index_text (log, seq);

CREATE TABLE {schema}.index_words (
    text bigint PRIMARY KEY, body varchar COLLATE "C" NOT NULL, words tsvector NOT NULL
);
CREATE INDEX index_words_words ON {schema}.index_words USING gin (words);
"""

_ID: Final = "(SELECT id FROM {schema}.sessions WHERE session = %(session)s::uuid)"
_LOG: Final = f"SELECT log FROM {{schema}}.index_log WHERE id = {_ID}"  # noqa: S608 - our own names
_TEXT: Final = f"SELECT text FROM {{schema}}.index_text WHERE log IN ({_LOG})"  # noqa: S608 - as above
_N: Final = f"SELECT n FROM {{schema}}.index_session WHERE id = {_ID}"  # noqa: S608 - as above

#: Removes the rows of a session that is purged, and notes that the tables must be written again (`residue`).
PURGE: Final = (
    f"DELETE FROM {{schema}}.index_words WHERE text IN ({_TEXT})",  # noqa: S608 - as above
    f"DELETE FROM {{schema}}.index_text WHERE log IN ({_LOG})",  # noqa: S608 - as above
    f"DELETE FROM {{schema}}.index_label WHERE n IN ({_N})",  # noqa: S608 - as above
    f"DELETE FROM {{schema}}.index_tally WHERE n IN ({_N})",  # noqa: S608 - as above
    *(
        f"DELETE FROM {{schema}}.{table} WHERE id = {_ID}"  # noqa: S608 - as above
        for table in ("index_log", "index_session", "index_entry", "index_unread")
    ),
    """
INSERT INTO {schema}.index_meta (key, value)
SELECT 'residue', '1' WHERE EXISTS (SELECT FROM {schema}.index_meta)
ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
)
