"""Mail as it is decided: what is written, under which id, and where an address leads."""

from typing import Any

import pytest

from callboard.actors import verbs
from callboard.actors.books import PARKED, QUEUE
from callboard.actors.checks import check_submit
from callboard.actors.errors import UsageError
from callboard.actors.events import MessagesClaimed, QueueParked, SessionOpened, TurnEnded, TurnStarted
from callboard.actors.messages import Accepted, Mail, Submit
from callboard.runtime.post import address

from .event_samples import log_of

OPEN = (SessionOpened(), TurnStarted(1))


def sent(author: str = "/root") -> Mail:
    """Mail under an id."""
    return Mail.signed(author, "hi", "x", trigger=True, reply=lambda _: None)


def test_mail_says_who_wrote_it_and_whether_it_wakes():
    """The author is the source, the model reads it in the first line, and `trigger` decides what it starts."""
    log = log_of(SessionOpened())
    events, answer = verbs.decide(log, Mail("hi", None, "/root/a", trigger=False), idle=True, joins=False)
    queued: Any = events[0]
    assert ("agent:/root/a", "Mail from agent /root/a:\nhi", False, False) == (
        queued.source,
        queued.text,
        queued.wake,
        queued.given,
    )
    assert Accepted(queued.seq) == answer


def test_an_id_is_its_senders_own():
    """The same id of the same sender is one message, whatever became of it; another sender's is another."""
    log = log_of(*OPEN)
    ids: list[str] = []
    events: Any
    for author in ("/root", "/root/a", "/root"):
        events, _ = verbs.decide(log, sent(author), idle=False, joins=True)
        if events:
            log.append(*events)
        ids += [event.id for event in events]
    assert ["mail:/root:x", "mail:/root/a:x"] == ids
    log.append(MessagesClaimed(tuple(ids)), TurnEnded(1, "completed"))
    assert ((), Accepted(3)) == verbs.decide(log, sent(), idle=True, joins=False)
    assert ((), Accepted(4)) == verbs.decide(log, sent("/root/a"), idle=True, joins=False)


def test_an_id_of_mail_is_no_id_of_a_message():
    """Input under the same id is a message of its own, and nobody may choose an id that mail has."""
    log = log_of(SessionOpened())
    log.append(*verbs.decide(log, sent(), idle=True, joins=False)[0])
    assert verbs.decide(log, Submit("hi", "x"), idle=True, joins=False)[0]
    with pytest.raises(UsageError, match="mail: are given by the session"):
        check_submit("x", "mail:/root:x", 100)


def test_mail_releases_nothing():
    """What waits for the user since an interrupt goes on waiting for the user."""
    log = log_of(SessionOpened(), QueueParked(parked=True))
    log.append(*verbs.decide(log, Mail("hi"), idle=True, joins=False)[0])
    assert (True, 1) == (log[PARKED], len(log[QUEUE]))


@pytest.mark.parametrize(
    ("to", "session"),
    [
        ("/root", "p.x"),
        ("/root/a", "p.x.a"),
        ("/root/a/b", "p.x.a.b"),
        ("p.x", "p.x"),
        ("p.x.a", "p.x.a"),
        *[(bad, None) for bad in ("p", "p.xy", "", "/", "/rooter", "/a", "a", None, 7)],
    ],
)
def test_an_address_leads_into_the_same_tree(to, session):
    """Paths and session ids below the sender's root are addresses; all else is refused before anything is opened."""
    if session is None:
        with pytest.raises(UsageError, match="mail goes to an agent of the same tree"):
            address("p.x", to)
    else:
        assert session == address("p.x", to)
