"""Threads of LangGraph are imported from the files of its `SqliteSaver`, and the graph continues them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

import hansard
from hansard.adapters.langgraph import HansardSaver
from tests.importers.sources import KEY, import_new, problems, texts

THREAD: Any = {"configurable": {"thread_id": "t1"}}


class State(MessagesState):
    """Messages, and values that JSON cannot hold."""

    seen: set[str]
    blob: bytes


def step(state: State) -> dict[str, Any]:
    """Return messages, as an agent with a tool does."""
    count = len(state["messages"])
    call = {"name": "weather", "args": {"city": "Ulm"}, "id": f"c{count}"}
    usage = UsageMetadata(input_tokens=10, output_tokens=3, total_tokens=13)
    said = [
        AIMessage(content="I look.", tool_calls=[call], usage_metadata=usage),
        ToolMessage("dry", tool_call_id=f"c{count}"),
    ]
    return {"messages": said, "seen": {str(count)}, "blob": b"\xff\x00"}


def graph(saver: Any) -> Any:
    """Return a graph of one step, with a saver."""
    builder = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_edge("step", END)
    return builder.compile(checkpointer=saver)


@contextmanager
def written(path: Path, turns: int = 3) -> Iterator[tuple[SqliteSaver, Any]]:
    """Let LangGraph write a thread, and keep its file open."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        made = graph(saver)
        for turn in range(turns):
            made.invoke({"messages": [HumanMessage(f"ask {turn}")]}, THREAD)
        yield saver, made


def test_the_saver_has_every_checkpoint_and_the_graph_continues(tmp_path: Path) -> None:
    """N-14, N-62, N-66: checkpoints and writes are equal through the adapter, imported from an open file."""
    path = tmp_path / "graph.db"
    with written(path) as (saver, made):
        # A message of the graph looks like a credential.
        made.invoke({"messages": [HumanMessage(KEY)]}, THREAD)
        wanted = list(saver.list(None))
        store, report = import_new("langgraph", path)
    assert report.skipped == []
    ours = HansardSaver(store)
    assert list(ours.list(None)) == wanted
    session = store.session("t1")
    assert texts(store, session.id, "model")[:3] == ["ask 0", "I look.", "dry"]
    assert session.usage["unknown"] == hansard.Usage(calls=4, input_tokens=40, output_tokens=12)
    assert session.messages()[1]["tool_calls"][0]["function"]["arguments"] == '{"city": "Ulm"}'
    answer = graph(ours).invoke({"messages": [HumanMessage("more")]}, THREAD)
    # The adapter finds the marks of mirrored messages, and adds only new ones.
    assert [one.content for one in answer["messages"]] == texts(store, session.id, "model")
    assert len(session.messages()) == len(session.messages(view="history")) == 15
    assert session.usage["unknown"].calls == 5


def test_continuing_an_earlier_checkpoint_is_a_revert(tmp_path: Path) -> None:
    """N-49: a branch leaves the other turns out of the model view only; all checkpoints are stored."""
    path = tmp_path / "graph.db"
    with written(path) as (saver, made):
        earlier = [one for one in made.get_state_history(THREAD) if one.metadata["step"] == 4]
        made.invoke({"messages": [HumanMessage("branch")]}, earlier[0].config)
        wanted = list(saver.list(None))
        state = made.get_state(THREAD).values["messages"]
        store, _ = import_new("langgraph", path)
    assert list(HansardSaver(store).list(None)) == wanted
    session = store.session("t1")
    assert texts(store, session.id, "model") == [one.content for one in state]
    assert "ask 2" in texts(store, session.id)


def test_what_cannot_be_decoded_is_reported(tmp_path: Path) -> None:
    """N-34, N-81: damaged and encrypted checkpoints are reported and left out."""
    path = tmp_path / "graph.db"
    with written(path) as (saver, _):
        wanted = list(saver.list(None))
    broken, sealed = wanted[2].checkpoint["id"], wanted[5].checkpoint["id"]
    with closing(sqlite3.connect(path)) as connection:
        update = "UPDATE checkpoints SET type = ?, checkpoint = ? WHERE checkpoint_id = ?"
        connection.execute(update, ("msgpack", b"\x81\xa1", broken))
        connection.execute(update, ("msgpack+aes", b"cipher", sealed))
        connection.commit()
    store, report = import_new("langgraph", path)
    where = {place.rpartition(":")[2] for place in problems(report)}
    assert {broken, sealed} == where
    names = [one.checkpoint["id"] for one in HansardSaver(store).list(None)]
    assert names == [one.checkpoint["id"] for one in wanted if one.checkpoint["id"] not in where]
