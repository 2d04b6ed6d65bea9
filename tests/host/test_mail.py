"""Mail through a whole runtime: from Python and from tools, to agents in memory or not, and never out of the tree."""

import asyncio

import pytest

from callboard.actors import Accepted, Call, MessageQueued, Reply, SessionNotFound, UsageError, User, View, tool
from callboard.actors.errors import MailboxFull
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime

from .hosted import SLACK_S, until
from .parents import of


def said(prompt) -> str:
    """What the model was told last."""
    return next(message.text for message in reversed(prompt.messages) if isinstance(message, User))


async def test_parent_and_child_write_to_each_other(tmp_path):
    """Mail from Python wakes the child, whose tool answers its parent by path; each reads who wrote."""

    @tool
    async def answer(view: View) -> str:
        """Writes to the parent."""
        await view.mail("/root", "it is 7", trigger=True)
        return "sent"

    def model(prompt):
        asked = "how much" in said(prompt) and prompt.step == 1
        return Reply(calls=[Call("answer")]) if asked else Reply(said(prompt))

    async with open_runtime(model=ScriptedModel(model), tools=[answer], store=f"sqlite:///{tmp_path / 's.db'}") as rt:
        parent = await rt.create("p")
        child = await rt.open(str(await rt.spawn("p", "kid", "wait for mail")))
        await child.wait_idle()
        await parent.wait_idle()
        assert isinstance(await parent.mail("/root/kid", "how much?"), Accepted)
        await until(lambda: any("it is 7" in e.text for e in of(MessageQueued, rt, "p")))
        await child.wait_idle()
        await parent.wait_idle()
        assert "Mail from agent /root:\nhow much?" in [e.text for e in of(MessageQueued, rt, "p.kid")]
        mail = [e for e in of(MessageQueued, rt, "p") if e.text == "Mail from agent /root/kid:\nit is 7"]
        assert ["agent:/root/kid"] == [e.source for e in mail]


async def test_mail_opens_an_agent_that_is_only_in_the_store(tmp_path):
    """An agent that ended in an earlier life of the program is opened for its mail, and reads it."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    async with open_runtime(model=ScriptedModel(), store=url) as rt:
        await rt.create("p")
        await (await rt.open(str(await rt.spawn("p", "kid", "task")))).wait_idle()
    model = ScriptedModel(lambda prompt: Reply(said(prompt)))
    async with open_runtime(model=model, store=url) as rt:
        parent = await rt.open("p")
        assert ["p"] == [s.id for s in rt.sessions()]
        await parent.mail("p.kid", "still there?", id="x")
        await parent.mail("p.kid", "still there?", id="x")
        await (await rt.open("p.kid")).wait_idle()
        assert ["Mail from agent /root:\nstill there?"] == [said(p) for p in model.prompts if p.session == "p.kid"]


@pytest.mark.parametrize(
    ("to", "error"),
    [("q", UsageError), ("/rooter", UsageError), ("", UsageError), (7, UsageError), ("/root/nobody", SessionNotFound)],
)
async def test_mail_that_leads_nowhere(to, error):
    """What is no agent of the sender's tree is the sender's error, and reaches nobody."""
    async with open_runtime(model=ScriptedModel()) as rt:
        parent, other = await rt.create("p"), await rt.create("q")
        with pytest.raises(error):
            await parent.mail(to, "hello")
        for bad in ("", "  "):
            with pytest.raises(UsageError):
                await parent.mail("/root", bad)
        assert (0, 0) == (parent.state()["seq"], other.state()["seq"])


@pytest.mark.parametrize("to", ["/root/x", "p.x"])
async def test_mail_stays_in_its_tree(to):
    """A root session whose id reads like that of an agent is a stranger: it hears nothing of the other's tree."""
    async with open_runtime(model=ScriptedModel()) as rt:
        parent, other = await rt.create("p"), await rt.create("p.x")
        with pytest.raises(UsageError, match="mail goes to an agent of the same tree"):
            await parent.mail(to, "hello")
        await other.stop()
        with pytest.raises(UsageError, match="mail goes to an agent of the same tree"):
            await parent.mail(to, "hello")
        assert 0 == (await rt.open("p.x")).state()["seq"]


@pytest.mark.parametrize("trigger", ["yes", None, 1])
async def test_a_trigger_that_is_no_bool_is_the_senders_error(trigger):
    """It reaches nobody: what the log could not be read back with would end the receiver, and in the end all."""
    async with open_runtime(model=ScriptedModel()) as rt:
        parent = await rt.create("p")
        for _ in range(5):
            with pytest.raises(UsageError, match="mail takes trigger=True or False"):
                await parent.mail("/root", "hello", trigger=trigger)
        assert 0 == parent.state()["seq"]
        assert "completed" == (await parent.run("go on")).reason


@pytest.mark.parametrize(
    ("text", "read"),
    [("\ud800", "completed"), (5, "failed"), ("", "failed")],
)
async def test_mail_of_a_tool_is_checked_as_a_users_is(text, read):
    """Half a surrogate pair is replaced, and what is no text is the tool's error; the receiver never ends over it."""

    @tool(effect="none")
    async def write(view: View) -> str:
        """Write to the session itself."""
        await view.mail("/root", text, trigger=False)
        return "sent"

    def play(prompt):
        return Reply("", [Call("write")]) if prompt.step == 1 else Reply("done")

    async with open_runtime(model=ScriptedModel(play), tools=[write]) as rt:
        s = await rt.create()
        ended = await s.run("go")
        assert ("completed", [read]) == (ended.reason, [one.receipt for one in ended.receipts])
        with pytest.raises(UsageError):
            await rt.spawn(s.id, "kid", 5)  # type: ignore[arg-type]


async def test_a_full_mailbox_is_told_at_once():
    """The sender does not wait for room."""
    config = RuntimeConfig()
    config = RuntimeConfig(runtime=type(config.runtime)(mailbox_max=3))
    async with open_runtime(config, model=ScriptedModel()) as rt:
        parent = await rt.create("p")
        for _ in range(2):
            await parent.mail("/root", "hello", trigger=False)
        async with asyncio.timeout(SLACK_S):
            with pytest.raises(MailboxFull):
                await parent.mail("/root", "hello", trigger=False)
