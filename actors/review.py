"""Reviewing: a task that lets an agent of its own, under instructions of its own, look at what the session did."""

from msgspec.structs import replace

from callboard.actors.children import CHILDREN, UNSETTLED, Child
from callboard.actors.errors import ToolError
from callboard.actors.events import Cause, NoteAdded, TurnEnded
from callboard.actors.facts import ReviewEnded
from callboard.actors.findings import INTERRUPTED, REVIEWER, UNUSABLE, WITHHELD, fragment, read, summary
from callboard.actors.receipts import clean_text
from callboard.actors.stage import SpawnRequest
from callboard.actors.tasks import Task
from callboard.actors.view import CallView


class Reviewing(Task):
    """Start the reviewer, wait for its end, and record what it found; cut off, it ends the reviewer too."""

    kind = "review"

    def prepare(self) -> None:
        """What is to be reviewed."""
        self._what = "" if self._message is None else self._message.text
        self._child = self._summary = ""

    async def run(self) -> None:
        """(Trio) One agent, one answer."""
        spawner = self._stage.spawner
        if spawner is None:
            self._error = "this runtime has no agents, so nobody can review."
            return
        request = SpawnRequest(
            self._log.session,
            self._free_name(),
            self._what,
            model=self._stage.limits.review_model,
            notify=False,
            system=REVIEWER,
            withheld=WITHHELD,
            mail=False,
        )
        try:
            self._child, _ = await spawner.spawn(request)
        except ToolError as error:
            self._error = clean_text(str(error))
            return
        with CallView(self._scene) as view:
            await view.until(lambda: self._reviewer().status not in UNSETTLED)

    def _free_name(self) -> str:
        """What the reviewer is called: the model may have called an agent of its own so."""
        taken, name = {child.path.rpartition("/")[2] for child in self._log[CHILDREN]}, f"review_{self._turn}"
        return next(one for one in (name, *(f"{name}_{n}" for n in range(2, len(taken) + 3))) if one not in taken)

    def _reviewer(self) -> Child:
        return next(child for child in self._log[CHILDREN] if child.id == self._child)

    def settle(self, cause: Cause | None) -> None:
        """The result, as a fact and as the model reads it."""
        ended = self._ended_as(cause)
        self._summary = summary(ended)
        self._log.append(
            ended,
            NoteAdded(fragment(self._what, ended), "user", "review"),
            NoteAdded(self._summary, "assistant", "review"),
        )

    def _ended(self, cause: Cause | None) -> TurnEnded:
        return replace(super()._ended(cause), last_message=self._summary)

    def _ended_as(self, cause: Cause | None) -> ReviewEnded:
        if cause is not None:
            return ReviewEnded(self._turn, self._child, "interrupted", (), INTERRUPTED)
        if self._error is not None:
            return ReviewEnded(self._turn, self._child, "failed", (), f"The review failed: {self._error}")
        reviewer = self._reviewer()
        if reviewer.status == "failed":
            self._error = f"the reviewer failed: {reviewer.text}"
            return ReviewEnded(self._turn, self._child, "failed", (), f"The review failed: {self._error}")
        if reviewer.status != "completed":
            return ReviewEnded(self._turn, self._child, "interrupted", (), INTERRUPTED)
        findings, explanation = read(reviewer.text)
        if not findings and not explanation:
            return ReviewEnded(self._turn, self._child, "failed", (), UNUSABLE)
        return ReviewEnded(self._turn, self._child, "completed", findings, explanation)

    def let_go(self) -> None:
        """The reviewer ends with its task: it has answered, or nobody waits for it any more."""
        spawner = self._stage.spawner
        if spawner is not None and self._child:
            spawner.dismiss(self._child)
