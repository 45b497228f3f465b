"""An agent with a scripted model: it streams, is killed, resumes and forks. Run `agent.py STORE` twice."""

import os
import signal
import sys

import hansard

SCRIPT = {"Plan a trip.": "Gladly. By train or by plane?", "By plane.": "Booked."}
SCRIPT["By train."] = "A seat by the window."


def answer(session, dies=False):
    question = session.messages(repair=True)[-1]["content"]  # here a real agent calls its model
    with session.stream(role="assistant") as message:
        for word in SCRIPT[question].split(" "):
            if dies and message.text:
                os.kill(os.getpid(), signal.SIGKILL)  # no warning, no clean-up
            message.write(word if not message.text else " " + word)


def turn(session, text, **how):
    session.add_message({"role": "user", "content": text})
    session.snapshot("asked")
    answer(session, **how)


session = hansard.open(sys.argv[1]).session("trip")
if session.seq == 0:
    turn(session, "Plan a trip.", dies=True)  # the first run ends here
print("resumed:", session.messages()[-1])
session.revert("asked")  # the half answer stays in the history
answer(session)
crossroads = session.seq
turn(session, "By plane.")
other = session.fork("trip-by-train", at=crossroads)
turn(other, "By train.")
for either in (session, other):
    print(either.id, [message["content"] for message in either.messages()])
