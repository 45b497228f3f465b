"""Google's Agent Development Kit: its runner, its rewind, and its own service for comparison."""

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.platform import time as kit_time
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import hansard
from hansard.adapters.adk import HansardSessionService
from hansard.message import origin
from tests.adapters.table import Adapter, alike
from tests.crashlab import faults

# The kit warns that some of its features are experimental.
pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")

WHO: dict[str, Any] = {"app_name": "shop", "user_id": "u7"}

#: Prefix of the session ids of conversations.
PREFIX = "adk/shop/u7/"


class Calls(Adapter):
    """Append events, which count in the state; read again after a conflict."""

    ours = HansardSessionService
    theirs = staticmethod(lambda _: InMemorySessionService())
    needs = ("adk.HansardSessionService", "google.adk", "google-adk", "google-adk")
    prefix = PREFIX

    async def _get(self, name: str, **config: Any) -> Any:
        given = GetSessionConfig(**config) if config else None
        return await self.kept.get_session(**WHO, session_id=name, config=given)

    async def _append(self, name: str, **told: Any) -> None:
        while True:
            with suppress(StaleSessionError, AlreadyExistsError):
                session = await self._get(name)
                session = session or await self.kept.create_session(**WHO, session_id=name)
                changes = {"n": session.state.get("n", 0) + 1, "said": str(told["content"])}
                event = Event(author="user", actions=EventActions(state_delta=changes), **told)
                await self.kept.append_event(session, event)
                return

    async def say(self, name: str, *texts: str) -> None:
        """Append an event of several parts."""
        parts = [types.Part(text=one) for one in texts]
        await self._append(name, content=types.Content(role="user", parts=parts))

    async def read(self, name: str) -> list[Any]:
        """Return the texts; the state is that of the last event."""
        found = await self._get(name)
        for count in (3, 20):
            recent = await self._get(name, num_recent_events=count)
            assert (recent.state, recent.events) == (found.state, found.events[-count:])
        listed = (await self.kept.list_sessions(**WHO)).sessions
        assert found.state == {one.id: one.state for one in listed}[name]
        assert found.state == found.events[-1].actions.state_delta
        return [part.text for event in found.events for part in event.content.parts]

    async def keep(self, given: list[Any]) -> list[Any]:
        """Store values in calls, states of all scopes and metadata."""
        scopes = ("", "app:", "user:")
        first = {f"{scope}first": given for scope in scopes}
        session = await self.kept.create_session(**WHO, session_id="s", state=first)
        call = types.Part(function_call=types.FunctionCall(id="c", name="f", args={"v": given}))
        blob = types.Part(inline_data=types.Blob(data=b"\xfb\xff", mime_type="image/png"))
        content = types.Content(role="model", parts=[types.Part(text="said"), call, blob])
        actions = EventActions(state_delta={f"{scope}v": given for scope in scopes})
        made: Any = {"content": content, "long_running_tool_ids": {"c"}}
        for told in (made, {"custom_metadata": {"v": given}}):
            await self.kept.append_event(session, Event(author="a", actions=actions, **told))
        session = await self._get("s")
        event, other = session.events
        assert event.content.parts[2].inline_data.data == b"\xfb\xff"
        assert event.long_running_tool_ids == {"c"}
        found = event.content.parts[1].function_call.args["v"]
        assert alike(other.custom_metadata["v"], found)
        for scope in scopes:
            assert alike(event.actions.state_delta[f"{scope}v"], found)
            assert alike(session.state[f"{scope}first"], found)
            assert alike(session.state[f"{scope}v"], found)
        return list(found)

    async def answer(self, number: int) -> None:
        """Append an event of the model."""
        session = await self._get("s")
        session = session or await self.kept.create_session(**WHO, session_id="s")
        used = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=9,
            tool_use_prompt_token_count=1,
            cached_content_token_count=4,
            candidates_token_count=1,
            thoughts_token_count=2,
        )
        content = types.Content(role="model", parts=[types.Part(text="answer")])
        told: Any = {"id": f"{number}", "timestamp": 1.0, "model_version": "m"}
        event = Event(author="a", content=content, usage_metadata=used, **told)
        await self.kept.append_event(session, event)

    async def change(self) -> None:
        """Read a user's state, and delete the conversation."""
        await self.kept.get_user_state(**WHO)
        await self.kept.delete_session(**WHO, session_id="s")

    async def names(self) -> list[str]:
        """Return the names of the user's conversations."""
        return [one.id for one in (await self.kept.list_sessions(**WHO)).sessions]


def said(text: str, at: float = 1.0, *, role: str = "user", **changes: Any) -> Event:
    """Return an event with a text and changes of the state."""
    return Event(
        id=Event.new_id(),
        author=role,
        invocation_id=f"i-{text}",
        timestamp=at,
        content=types.Content(role=role, parts=[types.Part(text=text)]),
        actions=EventActions(state_delta=changes.get("changes", {})),
    )


def texts(session: Session | None) -> list[str]:
    """Return the texts of a session's events."""
    assert session is not None
    contents = [event.content for event in session.events]
    return [
        part.text for content in contents if content for part in content.parts or () if part.text
    ]


async def got(service: BaseSessionService, session_id: str = "s", **more: Any) -> Session:
    """Return a session, which must exist."""
    found = await service.get_session(**{**WHO, "session_id": session_id, **more})
    assert found is not None
    return found


class Script:
    """Random operations, done alike on the kit's own service and on ours."""

    def __init__(self, rng: random.Random, store: hansard.Store) -> None:
        self.rng = rng
        self.both = (InMemorySessionService(), HansardSessionService(store))
        # Names that would be one path, joined by `/`, are different sessions.
        names = [
            *[("shop", "u", "s"), ("a", "b/c", "d"), ("a/b", "c", "d"), ("a", "b", "c/d")],
            *[("a%2Fb", "c", "d"), ("shop", "u%2F1", "s"), ("shop", "u", "s/../t"), ("", "", "d")],
        ]
        keys = ("app_name", "user_id", "session_id")
        self.names: list[Any] = [dict(zip(keys, name, strict=True)) for name in names]
        self.now = 1_000.0
        self.last: Event | None = None

    async def step(self) -> None:
        """Do one operation on both, and compare the answers."""
        kinds = ["create", "append", "get", "list", "delete", "user", "again"]
        kind = self.rng.choices(kinds, [6, 40, 6, 3, 1, 2, 3])[0]
        # Some grow long, and some are deleted and created again.
        name = self.rng.choice(self.names[: 8 if kind in {"create", "delete"} else 3])
        self.now += self.rng.choice([-2.0, 0.0, 0.25, 1.0])
        kit_time.set_time_provider(lambda: self.now)
        choice, state, event = self.rng.random(), self.changes(), self.event()
        answers = []
        for service in self.both:
            self.rng.seed(choice)
            try:
                answers.append(await self.answer(kind, service, name, state, event))
            except (AlreadyExistsError, SessionNotFoundError) as error:
                answers.append(type(error).__name__)
        self.rng.seed(choice + 1)
        assert answers[0] == answers[1], (kind, name)

    def changes(self) -> dict[str, Any]:
        """Return random changes of the state, in random scopes."""
        values = [None, 0, 1.5, "text", True, [1, {"a": None}], {"b": {"c": "d"}}, "é\u2028"]
        scopes = ["", "app:", "user:", "temp:"]
        return {
            self.rng.choice(scopes) + self.rng.choice("xyz"): self.rng.choice(values)
            for _ in range(self.rng.randrange(4))
        }

    def event(self) -> Event:
        """Return a random event: a text, a call, an answer, bytes, or only changes."""
        call = types.FunctionCall(id="c1", name="look", args={"where": "here", "n": None})
        answer = types.FunctionResponse(id="c1", name="look", response={"result": "18 °C " * 9})
        kinds = [
            types.Part(text="something that was said, in more words than a few"),
            types.Part(text="hm", thought=True, thought_signature=b"\x00\xfe"),
            types.Part(function_call=call),
            types.Part(function_response=answer),
            types.Part(inline_data=types.Blob(data=b"\x00\xff", mime_type="image/png")),
        ]
        parts = [self.rng.choice(kinds), types.Part(text="and")][: self.rng.randrange(3)]
        content = types.Content(role=self.rng.choice(["user", "model", None]), parts=parts)
        return Event(
            id=str(self.rng.random()),
            author=self.rng.choice(["user", "agent"]),
            invocation_id="i",
            timestamp=self.now,
            content=content if self.rng.random() < 0.8 else None,
            partial=self.rng.choice([None, None, None, True]),
            long_running_tool_ids={"c1", "c0"} if self.rng.random() < 0.2 else None,
            actions=EventActions(state_delta=self.changes(), artifact_delta={"f": 1}),
        )

    async def answer(self, kind: str, service: Any, name: Any, state: Any, event: Event) -> Any:
        """Do one operation, and return all that it answers."""
        if kind == "create":
            return (await service.create_session(**name, state=state)).model_dump()
        if kind == "append" or (kind == "again" and self.last is not None):
            if kind == "again":
                assert self.last is not None
                event = self.last  # perhaps of another session
            session = await service.get_session(**name)
            if session is None:
                app_name, user_id, session_id = name.values()
                session = Session(id=session_id, app_name=app_name, user_id=user_id)
            self.last = await service.append_event(session, event.model_copy(deep=True))
            return session.model_dump(), self.last.model_dump()
        if kind == "list":
            user = self.rng.choice([None, name["user_id"]])
            found = await service.list_sessions(app_name=name["app_name"], user_id=user)
            return [session.model_dump() for session in found.sessions]
        if kind == "delete":
            await service.delete_session(**name)
        elif kind == "user":
            return await service.get_user_state(app_name=name["app_name"], user_id=name["user_id"])
        config = GetSessionConfig(
            num_recent_events=self.rng.choice([None, None, 0, 1, 3, 50]),
            after_timestamp=self.rng.choice([None, None, self.now - 3, self.now + 9]),
        )
        found = await service.get_session(**name, config=self.rng.choice([None, config]))
        return None if found is None else found.model_dump()


async def test_it_answers_as_the_kits_own_service(store: hansard.Store, rng: random.Random) -> None:
    """N-2, N-3, N-57, N-63: on a random script, every answer is that of `InMemorySessionService`."""
    script = Script(rng, store)
    for _ in range(400):
        await script.step()
    # The script was not only refusals.
    kinds = {
        event.kind for info in store.sessions().items for event in store.session(info.id).events()
    }
    assert {"message.added", "x.adk.event", "x.adk.intended", "x.adk.settled"} <= kinds


async def test_a_stale_session_is_told_by_seq(store: hansard.Store) -> None:
    """N-18, N-22: a session read before another writer's event is refused, regardless of clocks."""
    service = HansardSessionService(store)
    mine = await service.create_session(**WHO, session_id="s")
    theirs = await got(service)
    # Its timestamp is earlier than that of the session, and of the next event.
    await service.append_event(theirs, said("theirs", at=1.0))
    with pytest.raises(StaleSessionError, match="get it again"):
        await service.append_event(mine, said("mine", at=9e9, changes={"app:x": 1, "user:y": 2}))
    assert texts(await got(service)) == ["theirs"]
    assert not mine.events
    again = await got(service)
    assert "app:x" not in again.state
    await service.append_event(again, said("mine", at=0.5))
    assert texts(await got(service)) == ["theirs", "mine"]
    stored = store.session(PREFIX + "s")
    stored.revert(stored.seq - 1)
    with pytest.raises(StaleSessionError):
        await service.append_event(again, said("reverted"))


@pytest.mark.parametrize("count", range(3))
async def test_a_session_that_was_created_again_is_another_one(
    store: hansard.Store, count: int
) -> None:
    """N-18: a session object of a deleted conversation is refused, also if the new one is as long."""
    service = HansardSessionService(store)
    old = await service.create_session(**WHO, session_id="s")
    await service.append_event(old, said("old"))
    await service.delete_session(**WHO, session_id="s")
    new = await service.create_session(**WHO, session_id="s")
    for number in range(count):
        await service.append_event(new, said(f"{number}"))
    with pytest.raises(StaleSessionError, match="get it again"):
        await service.append_event(old, said("late"))
    assert texts(await got(service)) == [f"{number}" for number in range(count)]


async def test_metadata_makes_no_session_stale(store: hansard.Store) -> None:
    """A concurrent title, snapshot name or usage record does not make a session stale."""
    service = HansardSessionService(store)
    session = await service.create_session(**WHO, session_id="s")
    stored = store.session(PREFIX + "s")
    for number in range(3):
        stored.set_title(f"title {number}")
        stored.snapshot(f"label {number}")
        stored.record_usage(model="m", input_tokens=1)
        await service.append_event(session, said(f"{number}", changes={"app:n": number}))
    assert texts(await got(service)) == ["0", "1", "2"]
    assert (await got(service)).state == {"app:n": 2}


async def test_a_session_created_by_hand_must_have_the_last_event(store: hansard.Store) -> None:
    """A session object that no service created is accepted only if it has the last event."""
    service = HansardSessionService(store)
    session = await service.create_session(**WHO, session_id="s")
    by_hand = Session(id="s", **WHO)
    await service.append_event(by_hand, said("one"))
    with pytest.raises(StaleSessionError):
        await service.append_event(Session(id="s", **WHO), said("two"))
    with pytest.raises(StaleSessionError):
        await service.append_event(session, said("two"))
    copied = Session(id="s", **WHO, events=list(by_hand.events))
    await service.append_event(copied, said("two"))
    with pytest.raises(SessionNotFoundError):
        await service.append_event(Session(id="none", **WHO), said("lost"))
    assert texts(await got(service)) == ["one", "two"]


async def test_tasks_share_a_session_object(store: hansard.Store) -> None:
    """Branches of one invocation append to one session object concurrently; all events are stored."""
    service = HansardSessionService(store)
    session = await service.create_session(**WHO, session_id="s")
    events = [said(f"{number}", changes={f"app:{number}": number}) for number in range(20)]
    await asyncio.gather(*(service.append_event(session, event) for event in events))
    found = await got(service)
    assert sorted(texts(found), key=int) == [f"{number}" for number in range(20)]
    assert found.events == session.events
    assert found.state == session.state


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_leaves_all_scopes_changed_or_none(tmp_path: Path, when: faults.When) -> None:
    """N-39: after a kill at any disk call, an event and its changes of all scopes are stored, or none is."""
    ends = set()
    for at in itertools.count(1):
        path = tmp_path / f"{at}"
        with hansard.open(path, durability="os") as store:
            service = HansardSessionService(store)
            session = asyncio.run(
                service.create_session(
                    **WHO, session_id="s", state={"app:n": 0, "user:n": 0, "n": 0}
                )
            )
            asyncio.run(service.create_session(**WHO, session_id="other"))
            event = said("changes", changes={"app:n": 1, "user:n": 1, "n": 1})
            with faults.kill(at=at, when=when) as fault:
                try:
                    asyncio.run(service.append_event(session, event))
                except faults.Killed:
                    acknowledged = False
                else:
                    acknowledged = True
        with hansard.open(path, durability="os") as store:
            service = HansardSessionService(store)
            # First another conversation of the same user, which does not read this one.
            shared = asyncio.run(got(service, "other")).state
            found = asyncio.run(got(service))
            happened = texts(found) == ["changes"]
            number = int(happened)
            assert shared == {"app:n": number, "user:n": number}
            assert found.state == {"app:n": number, "user:n": number, "n": number}
            assert happened or not acknowledged
            # A second attempt, after reading again, stores it once.
            if not happened:
                asyncio.run(service.append_event(found, event))
            assert asyncio.run(got(service)).state == {"app:n": 1, "user:n": 1, "n": 1}
            assert len(asyncio.run(got(service)).events) == 1
        ends.add((happened, acknowledged))
        if not fault.fired:
            break
    assert ends == {(False, False), (True, False), (True, True)}


async def test_an_unsettled_change_does_not_undo_a_later_one(store: hansard.Store) -> None:
    """Changes that a killed writer left unsettled are settled before later ones."""
    service = HansardSessionService(store)
    session = await service.create_session(**WHO, session_id="s", state={"app:n": 0})
    other = await service.create_session(**WHO, session_id="other")
    await service.append_event(session, said("first", changes={"app:n": 1}))
    shared = store.session(service.id_of("shop"))
    last = list(shared.events())[-1]
    assert last.kind == "x.adk.settled"
    # As if the writer were killed before that event.
    shared.revert(last.seq - 1)
    await service.append_event(other, said("second", changes={"app:n": 2}))
    assert (await got(service)).state == {"app:n": 2}


class Scripted(BaseLlm):
    """A model that calls a tool for the weather, and then reports its result."""

    model: str = "scripted"

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT002 - as the kit's
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer the last content."""
        assert not stream
        last = (llm_request.contents[-1].parts or [types.Part()])[-1]
        if last.function_response is not None:
            answer = types.Part(text=f"heard {last.function_response.response}")
        elif last.text is not None and last.text.startswith("weather"):
            call = types.FunctionCall(name="look", args={"where": "here"})
            answer = types.Part(function_call=call)
        else:
            answer = types.Part(text=f"{len(llm_request.contents)} contents")
        yield LlmResponse(content=types.Content(role="model", parts=[answer]))


def runner_of(service: BaseSessionService, look: Any) -> Runner:
    """Return a runner whose agent has one tool."""
    agent = LlmAgent(name="agent", model=Scripted(), tools=[look], output_key="answer")
    return Runner(app_name="shop", agent=agent, session_service=service)


async def turn(runner: Runner, text: str) -> str:
    """Run a turn, and return the id of its invocation."""
    content = types.Content(role="user", parts=[types.Part(text=text)])
    invocation = ""
    async for event in runner.run_async(user_id="u7", session_id="s", new_message=content):
        invocation = event.invocation_id
    return invocation


def look(where: str) -> dict[str, str]:
    """Return the weather."""
    return {"result": f"18 °C {where}"}


def test_the_runner_rewinds(store: hansard.Store) -> None:
    """N-49: `Runner.rewind_async` has the effect that it has on the kit's own service; nothing is erased."""

    async def run(service: BaseSessionService) -> tuple[list[str], dict[str, Any]]:
        await service.create_session(**WHO, session_id="s")
        runner = runner_of(service, look)
        await turn(runner, "one")
        second = await turn(runner, "weather")
        await runner.rewind_async(user_id="u7", session_id="s", rewind_before_invocation_id=second)
        await turn(runner, "three")
        found = await got(service)
        return texts(found), found.state

    ours = asyncio.run(run(HansardSessionService(store)))
    assert ours == asyncio.run(run(InMemorySessionService()))
    # The model saw "one", its answer, and "three".
    assert ours[0][-1] == "3 contents"
    assert store.search("weather")


async def test_others_read_it_and_it_reads_others(store: hansard.Store) -> None:
    """Every reader sees a conversation as messages, and messages of others are events of it."""
    service = HansardSessionService(store)
    await service.create_session(**WHO, session_id="s")
    await turn(runner_of(service, look), "weather")
    stored = store.session(PREFIX + "s")
    chat = origin.conversation(stored.messages())
    assert [one["role"] for one in chat] == ["user", "assistant", "tool", "assistant"]
    assert chat[2]["tool_call_id"] == chat[1]["tool_calls"][0]["id"]
    assert chat[3]["content"] == "heard {'result': '18 °C here'}"
    assert not stored.pairing()
    stored.add_message({"role": "user", "content": "from elsewhere"})
    assert texts(await got(service))[-1] == "from elsewhere"
    assert await turn(runner_of(service, look), "and now")
    assert texts(await got(service))[-1] == "6 contents"
    stored.add_message({**chat[1], "content": "Let me look."})
    stored.add_message({"role": "tool", "tool_call_id": "c9", "content": "dry"})
    found = await got(service)
    assert texts(found)[-1] == "Let me look."
    assert found.events[-2].get_function_calls()[0].args == {"where": "here"}
    assert found.events[-1].get_function_responses()[0].response == {"result": "dry"}
    last = stored.seq
    stored.redact(2, reason="private")
    assert stored.seq == last + 1
    assert "weather" not in texts(await got(service))
