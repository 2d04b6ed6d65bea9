"""What tests of Plan mode share: a lab with its plugin, the verbs of its user, and what was written."""

from typing import Any

from callboard.actors.asked import QUESTIONS
from callboard.actors.events import Call
from callboard.actors.facts import QuestionAsked
from callboard.actors.messages import Accepted, AnswerQuestion, SetMode, UseCommand
from callboard.actors.model import Prompt, Reply
from callboard.actors.testing import Lab, LabSession, ScriptedModel

from .strict import until

PLAN = "# Move it\n- copy\n- delete"


def review(plan: str = PLAN, *more: Call) -> Reply:
    """The model's call of `exit_plan_mode`, and calls behind it."""
    return Reply("here it is", [Call("exit_plan_mode", {"plan": plan}), *more])


def plans(*then: Reply) -> ScriptedModel:
    """A model that presents its plan in turn 1, goes on there as scripted, and says done in any other."""

    def play(prompt: Prompt) -> Reply:
        script = (review(), *then) if prompt.turn == 1 else ()
        return script[prompt.step - 1] if 0 < prompt.step <= len(script) else Reply("done")

    return ScriptedModel(play)


async def set_mode(session: LabSession, *, active: bool) -> str:
    """Switch, and say what came of it."""
    answer = await session.ask(lambda reply: SetMode(active, reply=reply))
    found: str = answer.result
    return found


async def asked(session: LabSession) -> QuestionAsked:
    """The one question that is open, once it is."""
    await until(lambda: session.state(QUESTIONS))
    (one,) = session.state(QUESTIONS)
    found: QuestionAsked = one
    return found


async def answer(session: LabSession, *choices: str, text: str | None = None) -> Any:
    """Answer the open question."""
    one = await asked(session)
    return await session.ask(lambda reply: AnswerQuestion(one.id, choices, text, reply=reply))


async def presented(lab: Lab) -> LabSession:
    """A session in Plan mode whose model has presented its plan and waits."""
    session = await lab.session()
    assert "committed" == await set_mode(session, active=True)
    assert isinstance(await session.submit("plan it"), Accepted)
    await asked(session)
    return session


async def implement(session: LabSession, argument: Any, id: str | None = None) -> Any:
    """Carry out a proposal."""
    return await session.ask(lambda reply: UseCommand("implement", argument, id, reply=reply))
