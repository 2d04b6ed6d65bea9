"""SessionHandle: a session as people hold it; works from asyncio and from Trio, and never holds the actor itself."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from callboard.actors.checks import check_answer, check_approve, check_id, check_schema, check_steer, check_submit
from callboard.actors.children import CHILDREN
from callboard.actors.errors import SessionClosed, UsageError
from callboard.actors.events import TurnEnded
from callboard.actors.messages import (
    Accepted,
    AnswerQuestion,
    Approve,
    Ask,
    Await,
    Compact,
    Edit,
    Edited,
    Idle,
    Inject,
    Interrupt,
    Interrupting,
    ModeAnswer,
    Refused,
    Replace,
    ResumeQueue,
    Review,
    SetMode,
    Shell,
    Steer,
    Steered,
    StopOnce,
    Stopped,
    Submit,
    SubmitOrSteer,
    Told,
    UseCommand,
    UserDecision,
    Withdraw,
    Withdrawn,
)
from callboard.actors.stage import SpawnRequest, Stage
from callboard.runtime.arguments import new_session_id
from callboard.runtime.fork import Forks, Rewound
from callboard.runtime.lines import parse
from callboard.runtime.lookup import Lookup, is_turn
from callboard.runtime.outside import first_turn, request_of, start
from callboard.runtime.reading import QUEUE_MAX, Reading, check_reading
from callboard.runtime.registry import Registry
from callboard.runtime.shown import state_of
from callboard.runtime.spawn import Spawner
from callboard.runtime.waiting import Pending

MODES = ("plan", "default")


class Home(Protocol):
    """The runtime, as a handle needs it."""

    stage: Stage
    registry: Registry
    forks: Forks
    spawner: Spawner

    @property
    def lookup(self) -> Lookup:
        """What the store knows."""
        ...

    async def stop_session(self, session_id: str) -> None:
        """Stop a session and its children."""
        ...

    async def spawn(self, request: SpawnRequest) -> str:
        """Start a subagent; its id."""
        ...


class SessionHandle:
    """One session, from asyncio or from Trio. Control verbs answer with values.

    Raised are `UsageError`, `MailboxFull`, `SessionClosed` and `LogError`. Who waits and is cancelled leaves only the
    waiting: what was asked is done all the same.
    """

    __slots__ = ("_home", "_text_max_chars", "id", "parent", "path")

    def __init__(self, home: Home, session_id: str, parent: str | None, path: str, text_max_chars: int) -> None:
        self._home, self.id, self.parent, self.path = home, session_id, parent, path
        self._text_max_chars = text_max_chars

    def __repr__(self) -> str:
        return f"<session {self.id} {self.path}>"

    async def _ask(self, make: Callable[[Callable[[Any], None]], Ask]) -> Any:
        pending = Pending()
        letter: Any = make(pending.reply)
        self._home.registry.tell(self.id, letter)
        return await pending.get()

    async def submit(self, text: str, id: str | None = None, *, schema: Any = None) -> Accepted | Refused:
        """A turn of its own: now if idle, else queued in order. Accepted is durable; the same id is accepted once.

        `schema` is the JSON schema of its final answer: the model gets it with each prompt, and an answer that is no
        JSON is asked for once more.
        """
        text, schema = check_submit(text, id, self._text_max_chars), check_schema(schema)
        answer: Accepted | Refused = await self._ask(lambda reply: Submit(text, id, schema=schema, reply=reply))
        return answer

    async def steer(
        self, text: str, expected_turn: int | None = None, *, id: str | None = None, schema: Any = None
    ) -> Steered | Refused:
        """Join the running turn at its next model request; with `expected_turn` only that turn.

        Steered is durable; the same `id` gets the same answer. A `schema` of the final answer has to be the turn's.
        """
        text, schema = check_steer(text, id, self._text_max_chars), check_schema(schema)
        if expected_turn is not None and not is_turn(expected_turn):
            raise UsageError(f"steer takes a turn number from 1, or none, got {expected_turn!r:.80}.")
        answer: Steered | Refused = await self._ask(lambda reply: Steer(text, id, expected_turn, schema, reply=reply))
        return answer

    async def submit_or_steer(self, text: str, *, id: str | None = None) -> Accepted | Steered | Refused:
        """Join the running turn, or start one when none takes input; of two at once exactly one starts."""
        text = check_steer(text, id, self._text_max_chars, "submit_or_steer")
        answer: Accepted | Steered | Refused = await self._ask(lambda reply: SubmitOrSteer(text, id, reply=reply))
        return answer

    async def inject(self, text: str, *, id: str | None = None) -> Accepted | Refused:
        """Leave text for the next step, in this turn or a later one: it starts none, and keeps none going."""
        text = check_submit(text, id, self._text_max_chars, "inject")
        answer: Accepted | Refused = await self._ask(lambda reply: Inject(text, id, reply=reply))
        return answer

    async def mail(self, to: str, text: str, *, trigger: bool = True, id: str | None = None) -> Accepted | Refused:
        """Send mail in this session's name to another of its tree, by path (`/root/name`) or session id.

        It joins the receiver's next step, and with `trigger` starts a turn if the receiver is idle and not in Plan
        mode. Accepted is durable at the receiver; the same `id` is taken once. `Refused("limit_reached")`: an agent's
        turn would exceed a limit of the tree.
        """
        text = check_submit(text, id, self._text_max_chars, "mail")
        post = self._home.stage.post
        assert post is not None, "a runtime that has sessions has a post"
        return await post.send(self.id, to, text, trigger=trigger, id=id)

    async def replace(self, text: str, *, id: str | None = None, schema: Any = None) -> Accepted | Refused:
        """End the running task, and be the next turn, before all that is queued; when idle, start at once.

        Several that wait for the same end are one turn, with their texts in order.
        """
        text, schema = check_submit(text, id, self._text_max_chars, "replace"), check_schema(schema)
        answer: Accepted | Refused = await self._ask(lambda reply: Replace(text, id, schema, reply=reply))
        return answer

    async def compact(self, *, id: str | None = None) -> Accepted | Refused:
        """End the running task, and make what the model has to read shorter."""
        check_submit("compact", id, self._text_max_chars, "compact")
        answer: Accepted | Refused = await self._ask(lambda reply: Compact("", id, reply=reply))
        return answer

    async def review(self, what: str, *, id: str | None = None) -> Accepted | Refused:
        """End the running task, and have something reviewed in a session of its own."""
        what = check_steer(what, id, self._text_max_chars, "review")
        answer: Accepted | Refused = await self._ask(lambda reply: Review(what, id, reply=reply))
        return answer

    async def shell(self, command: str, *, id: str | None = None) -> Accepted | Refused:
        """Run a command of your own in the session's folder, without the model; the model reads what it printed.

        It is a turn of its own, or runs beside the turn that is running; an interrupt ends it. At most an hour.
        """
        command = check_steer(command, id, self._text_max_chars, "shell")
        answer: Accepted | Refused = await self._ask(lambda reply: Shell(command, id, reply=reply))
        return answer

    async def command(self, line: str, *, id: str | None = None) -> Any:
        """Do what a line says that begins with `/` or `!`, and answer as that verb does; any other is submitted."""
        return await parse(line, self._home.stage.commands).do(self, id)

    async def use(self, name: str, argument: Any = "", *, id: str | None = None) -> Any:
        """Have a plugin's command act, as `/NAME ARGUMENT` does; answers `Told`, `Accepted` or `Refused`."""
        if not isinstance(name, str):
            raise UsageError(f"use takes the name of a command, got {name!r:.80}.")
        if isinstance(argument, str):
            argument = check_steer(argument, None, self._text_max_chars, f"/{name:.40}")
        check_id(id)
        return await self._ask(lambda reply: UseCommand(name, argument, id, reply=reply))

    async def run(self, text: str, id: str | None = None, *, schema: Any = None) -> TurnEnded:
        """Submit, and wait for the end of the turn that takes the text."""
        text, schema = check_submit(text, id, self._text_max_chars), check_schema(schema)
        accepted, ended = Pending(), Pending()
        letter = Submit(text, id, ended=ended.reply, schema=schema, reply=accepted.reply)
        self._home.registry.tell(self.id, letter)
        answer = await accepted.get()
        if isinstance(answer, Refused):
            raise SessionClosed(f"session {self.id!r} refused the text: {answer.reason}: {answer.detail}.")
        found: TurnEnded | None = await ended.get()
        return found if found is not None else await self._sent_before(id, answer.turn)

    async def _sent_before(self, id: str | None, turn: int | None) -> TurnEnded:
        """The end of the turn that took a message, which was sent once before and answered then."""
        if turn is None and id is not None:
            turn = await self._home.lookup.find_taker(self.id, id)
        if turn is None:
            raise SessionClosed(f"message {id!r} was withdrawn before a turn took it.")
        return await self.wait(turn)

    async def wait(self, turn: int | None) -> TurnEnded:
        """The end of a turn; at once when it ended long ago."""
        if not is_turn(turn):
            raise UsageError(
                f"wait takes a turn number from 1, got {turn!r:.80}; a queued message has none yet: use run()."
            )
        found: TurnEnded | None = None
        if self._home.registry.is_passivated(self.id):  # all of its turns that ever began are over, and in the store
            found = await self._home.lookup.find_ended(self.id, turn)
        if found is None:
            found = await self._ask(lambda reply: Await(turn, reply=reply))
        if found is None:
            found = await self._home.lookup.find_ended(self.id, turn)
        if found is None:
            raise UsageError(f"session {self.id!r} has no ended turn {turn}.")
        return found

    async def wait_idle(self) -> None:
        """Return when nothing runs and nothing is about to; a `UsageError` inside a turn that would wait for itself."""
        if self._home.registry.is_passivated(self.id):
            return
        await self._ask(lambda reply: Await(reply=reply))

    async def interrupt(self, turn: int | None = None, *, id: str | None = None) -> Interrupting | Idle | Refused:
        """Abort the running turn; with `turn` only that one. Harmless when idle, and when repeated.

        So do agents below it, also where it rests itself (`Idle.agents`), and commands of your own, in a turn or not.
        The same `id` again, as from a client that tries twice, gets the same answer and aborts nothing more.
        """
        check_id(id)
        if turn is not None and not is_turn(turn):
            raise UsageError(f"interrupt takes a turn number from 1, or none, got {turn!r:.80}.")
        if turn is None and id is None and self._home.registry.is_passivated(self.id):
            return Idle()
        answer: Interrupting | Idle | Refused = await self._ask(lambda reply: Interrupt(turn, id=id, reply=reply))
        return answer

    async def withdraw(self, id: str, *, verb_id: str | None = None) -> Withdrawn | Refused:
        """Take back a message that no turn has claimed; `verb_id` is the id of this verb itself."""
        if not isinstance(id, str):
            raise UsageError(f"withdraw takes the id that submit was given, got {id!r:.80}.")
        check_id(verb_id)
        answer: Withdrawn | Refused = await self._ask(lambda reply: Withdraw(id, verb_id, reply=reply))
        return answer

    async def edit(self, id: str, text: str, *, verb_id: str | None = None) -> Edited | Refused:
        """Change the text of a message that no turn has claimed; it keeps its place in the queue."""
        if not isinstance(id, str):
            raise UsageError(f"edit takes the id that submit was given, got {id!r:.80}.")
        text = check_submit(text, None, self._text_max_chars, "edit")
        check_id(verb_id)
        answer: Edited | Refused = await self._ask(lambda reply: Edit(id, text, verb_id, reply=reply))
        return answer

    async def resume_queue(self, *, id: str | None = None) -> Accepted | Refused:
        """Release messages that wait since an interrupt or an error."""
        check_id(id)
        answer: Accepted | Refused = await self._ask(lambda reply: ResumeQueue(id, reply=reply))
        return answer

    async def set_mode(self, mode: str, *, id: str | None = None) -> ModeAnswer | Refused:
        """Switch to `plan` or `default`: at once between turns, at the next step inside one."""
        if mode not in MODES:
            raise UsageError(f"set_mode takes 'plan' or 'default', got {mode!r:.80}.")
        check_id(id)
        answer: ModeAnswer | Refused = await self._ask(lambda reply: SetMode(mode == "plan", id, reply=reply))
        return answer

    async def implement(self, plan_id: str, clear: bool = False, *, id: str | None = None) -> Accepted | Told | Refused:
        """Carry out a plan that the model proposed: here, in the default mode, or `clear` in a new session.

        A plan is carried out once, and whoever asks again gets the same answer. To stay in Plan mode, do nothing.
        """
        given: tuple[Any, Any] = (plan_id, clear)
        if not isinstance(given[0], str) or not isinstance(given[1], bool):
            raise UsageError(f"implement takes the id of a plan, and clear=True or False, got {given!r:.80}.")
        answer: Accepted | Told | Refused = await self.use("implement", {"plan": plan_id, "clear": clear}, id=id)
        return answer

    async def answer(
        self, question_id: str, choices: Sequence[str] = (), text: str | None = None, *, id: str | None = None
    ) -> Accepted | Refused:
        """Settle a question that `state()["questions"]` shows: by the label of one choice, a text of your own, or both.

        With neither it is dismissed. The first valid answer counts, a later one is `not_pending`; after an
        `invalid_answer` it stays open. Accepted is durable, also where the turn that asked is over: then the answer
        starts a turn.
        """
        check_id(id)
        checked = check_answer(question_id, choices, text)
        answer: Accepted | Refused = await self._ask(
            lambda reply: AnswerQuestion(question_id, checked, text, id, reply=reply)
        )
        return answer

    async def approve(
        self, call_id: str, decision: UserDecision, feedback: str | None = None, *, id: str | None = None
    ) -> Accepted | Refused:
        """Decide whether a call may run that `state()["approvals"]` shows, by its id or that of its call.

        `allow_session` holds for the tool, whatever its arguments, until the session ends or leaves Plan mode; the
        model reads the `feedback` of a `deny`. The first decision counts, a later one is `not_pending`.
        """
        check_id(id)
        check_approve(call_id, decision, feedback)
        answer: Accepted | Refused = await self._ask(
            lambda reply: Approve(call_id, decision, feedback, id, reply=reply)
        )
        return answer

    async def stop(self, *, id: str | None = None) -> Stopped | Refused:
        """Interrupt, stop the children, flush, end the actor; harmless when repeated. The log stays in the store.

        The same `id` again stops nothing that was opened since.
        """
        check_id(id)
        if id is not None:
            try:
                asked: Accepted | Stopped | Refused = await self._ask(lambda reply: StopOnce(id, reply=reply))
            except SessionClosed:
                return Stopped()
            if isinstance(asked, Stopped) or (isinstance(asked, Refused) and asked.reason == "id_taken"):
                return asked
        await self._home.stop_session(self.id)  # also where the store is too slow to note the id
        return Stopped()

    async def fork(self, at: int | None = None, *, session_id: str | None = None) -> "SessionHandle":
        """A new root session that begins as this one does, up to event `at`; durable when it is returned.

        `at` is the end of a turn or an event between turns; None is the last of them. History, plan, mode, goal and
        todos come along; what is queued, asked or scheduled, subagents and commands stay here. Its id is random unless
        chosen.
        """
        forked: SessionHandle = await self._home.forks.fork(self.id, at, new_session_id(session_id))
        return forked

    async def rewind(self, at: int | None = None) -> Rewound:
        """Go on from event `at`: a fork takes this id, the old log is read under `.old`; its agents and readers end."""
        return await self._home.forks.rewind(self.id, at)

    def state(self) -> dict[str, Any]:
        """What is known of the session: every fold by its key, as plain values, and the number they are true for.

        A root's also has `tree`, as `Trees.account` tells of it, and its `limits`.
        Of a session that left memory the log is read for it, here and now: a millisecond for each two hundred events.
        """
        log, phase = self._home.registry.log(self.id)
        trees = self._home.spawner.trees
        tree = {} if self.parent is not None else {"tree": {"limits": trees.limits_shown(), **trees.account(self.id)}}
        return {"seq": log.seq - 1, "phase": phase.value, **state_of(log, self._home.stage.folds.projections), **tree}

    async def spawn(
        self,
        name: str,
        task: str,
        *,
        role: str | None = None,
        model: str | None = None,
        fork_turns: str | int | None = "none",
        background: bool = True,
        detach: bool = False,
        notify: bool = True,
    ) -> "SessionHandle | Refused":
        """Start a subagent of this session, as its `spawn_agent` would: same checks, same limits of the whole tree.

        `fork_turns` of what was said here are copied for it: `none`, `all` or a number. It works beside this session;
        with `background` false this returns when its first turn has ended, and whoever is cancelled before takes that
        turn along. An interrupt here leaves a `detach`ed one alone. Its end is mail here in any case; with `notify`
        false it wakes nobody. `Refused("limit_reached")` names the limit of the tree, what else is wrong is a
        `UsageError`.
        """
        how = {"role": role, "model": model, "fork_turns": fork_turns}
        how |= {"background": background, "detach": detach, "notify": notify}
        child_id = await start(self._home, request_of(self.id, name, task, how))
        if isinstance(child_id, Refused):
            return child_id
        child = SessionHandle(self._home, child_id, self.id, f"{self.path}/{name}", self._text_max_chars)
        if not background:
            await first_turn(self._home, child)
        return child

    def children(self) -> tuple[str, ...]:
        """The ids of the subagents this session started."""
        return tuple(child.id for child in self._home.registry.log(self.id)[0][CHILDREN])

    def events(self, after: int = -1, *, deltas: bool = False, queue_max: int = QUEUE_MAX) -> Reading:
        """Follow the log: `async for item in s.events(after=seq)` gives what is durable, first old, then live."""
        check_reading(after, queue_max)
        return self._home.registry.read(self.id, after, deltas=deltas, queue_max=queue_max)
