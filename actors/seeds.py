"""seeded_run: a scenario under many seeds, in virtual time; what fails is made small and says how to repeat it."""

import inspect
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import attrs
import trio

from callboard.actors.choices import Choices, Fault, shrunk
from callboard.actors.errors import UsageError

SECONDS_MAX = 1_000_000.0  # of virtual time: whatever waits longer waits for ever
STEPS_MAX = 2_000_000
SHRINKS_MAX = 300
NO_SEEDS = "seeds are a number from 1, or a list of whole numbers, got {got!r:.80}."
UNSTABLE = "the same seed and choices did not fail again: {name} depends on something else, such as a set's order."
Scenario: TypeAlias = Callable[[], Awaitable[None]] | Callable[[Choices], Awaitable[None]]


class Hung(AssertionError):
    """A scenario did not come to its end."""


class _Watch(trio.abc.Instrument):
    """Counts the steps of all tasks; after so many it ends the scenario."""

    def __init__(self, scope: trio.CancelScope, steps_max: int) -> None:
        self._scope, self._max, self.steps = scope, steps_max, 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """(Trio) A task runs next."""
        del task
        self.steps += 1
        if self.steps > self._max:
            self._scope.cancel()


@attrs.frozen
class Bounds:
    """How long a scenario may take: seconds of virtual time, and steps of tasks."""

    seconds_max: float = SECONDS_MAX
    steps_max: int = STEPS_MAX

    async def run(self, scenario: Callable[..., Awaitable[None]], *given: Any) -> None:
        """(Trio) Run it; raises `Hung` when it takes longer."""
        with trio.CancelScope(deadline=trio.current_time() + self.seconds_max) as scope:
            watch = _Watch(scope, self.steps_max)
            trio.lowlevel.add_instrument(watch)
            try:
                await scenario(*given)
            finally:
                trio.lowlevel.remove_instrument(watch)
        if scope.cancelled_caught:
            if watch.steps > self.steps_max:
                raise Hung(f"no end after {self.steps_max:,} steps of its tasks.")
            raise Hung(f"no end after {self.seconds_max:,.0f} seconds of virtual time.")


@contextmanager
def scheduled(seed: int) -> Iterator[None]:
    """Trio orders its tasks by this seed, and `random` draws by it; both are as before afterwards."""
    run: Any = trio._core._run  # the scheduler's random order has no public switch
    before, state, drawn = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate(), random.getstate()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    run._r.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = before
        run._r.setstate(state)
        random.setstate(drawn)


def run_in_virtual_time(scenario: Callable[..., Awaitable[None]], *given: Any, seed: int = 0, bounds: Bounds) -> None:
    """One `trio.run` whose tasks are ordered by the seed and whose clock jumps when nothing happens."""
    from trio import (
        testing,
    )  # brings pytest along where there is one: 0.2 s that no other use of this module should pay

    with scheduled(seed):
        trio.run(bounds.run, scenario, *given, clock=testing.MockClock(autojump_threshold=0))


def name_of(scenario: Any) -> str:
    """What a person calls it."""
    return str(getattr(scenario, "__name__", None) or name_of(getattr(scenario, "func", None) or type(scenario)))


def _wants_choices(scenario: Scenario, faults: Collection[Fault]) -> bool:
    """Whether it has the one parameter; `UsageError` for what is no scenario, or has no use for faults."""
    if not callable(scenario):
        raise UsageError(f"a scenario is an async function, got {scenario!r:.80}.")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(scenario).parameters.values()
    wanted = [one.name for one in parameters if one.kind in kinds and one.default is inspect.Parameter.empty]
    if len(wanted) > 1:
        raise UsageError(f"a scenario takes Choices or nothing; {name_of(scenario)} wants {', '.join(wanted)[:80]}.")
    if faults and not wanted:
        raise UsageError(f"faults come by choices.store(), and {name_of(scenario)} takes no Choices.")
    return bool(wanted)


def _seeds_of(seeds: Any) -> Iterator[int]:
    """One after the other; `UsageError` for what is no seed, and where none came, since nothing run proves nothing."""
    some, seed = range(seeds) if isinstance(seeds, int) else seeds, None
    for seed in some if isinstance(some, Iterable) else [seeds]:
        if not isinstance(seed, int):
            raise UsageError(NO_SEEDS.format(got=seeds))
        yield seed
    if seed is None:
        raise UsageError(NO_SEEDS.format(got=seeds))


@attrs.frozen
class _Runner:
    """Runs one scenario, again and again."""

    scenario: Scenario
    bounds: Bounds
    faults: Collection[Fault]
    wants: bool

    def fails(self, seed: int, given: Sequence[int] | None = None) -> tuple[BaseException | None, Choices]:
        """What it raises under this seed, and what it chose."""
        choices = Choices(seed, given=given, faults=self.faults)
        try:
            run_in_virtual_time(self._play, *([choices] if self.wants else []), seed=seed, bounds=self.bounds)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return error, choices
        return None, choices

    async def _play(self, *given: Choices) -> None:
        playing: Any = self.scenario(*given)
        if not inspect.isawaitable(playing):
            raise UsageError(f"a scenario is an async function: write `async def {name_of(self.scenario)}`.")
        await playing

    def shrink(self, seed: int, error: BaseException, choices: Choices, runs_max: int) -> BaseException:
        """The same failure with fewer and lower choices, and a note about how to repeat it."""
        smallest, runs, wanted = (error, choices), 0, _place(error)

        def still(given: list[int]) -> Sequence[int] | None:
            nonlocal smallest, runs
            runs += 1
            found, chose = self.fails(seed, given)
            if found is None or _place(found) != wanted:
                return None
            if (len(chose.taken), chose.taken) <= (len(smallest[1].taken), smallest[1].taken):
                smallest = (found, chose)
            return chose.taken

        again, _ = self.fails(seed, choices.taken)
        best = shrunk(choices.taken, still, runs_max)
        raised, chose = smallest
        if again is None:
            raised.add_note(UNSTABLE.format(name=name_of(self.scenario)))
        faults = f", faults={tuple(self.faults)!r}" if self.faults else ""
        raised.add_note(
            f"with seed {seed}, which made {len(choices.taken)} choices; {len(best)} do after {runs} more runs: "
            f"{', '.join(chose.told)}: repeat it with "
            f"replay_choices({name_of(self.scenario)}, {best}, seed={seed}{faults})"
        )
        return raised


def _place(error: BaseException) -> tuple[object, ...]:
    """What is the same when the same thing went wrong: the kind of error, and where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace and (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def seeded_run(
    scenario: Scenario,
    seeds: int | Iterable[int],
    *,
    faults: Collection[Fault] = (),
    seconds_max: float = SECONDS_MAX,
    steps_max: int = STEPS_MAX,
    shrinks_max: int = SHRINKS_MAX,
) -> int:
    """Run `scenario` once for each seed in virtual time, the order of runnable tasks chosen by the seed; the count.

    `seeds` is how many, from 0, or which. A scenario with a parameter is given `Choices` drawn by the seed; its
    `choices.store()` has the `faults` ("fail", "stall", "tear") that are named here. One that takes more virtual time
    or steps than it may has failed. A failure is raised with a note that says its seed; of one with choices the
    smallest that was found in `shrinks_max` more runs, with its choices. Trio's scheduler and `random` are restored
    afterwards.
    `UsageError` for what is no scenario, seed or fault, and where nothing would run.
    """
    runner = _Runner(scenario, Bounds(seconds_max, steps_max), faults, _wants_choices(scenario, faults))
    count = 0
    for seed in _seeds_of(seeds):
        error, choices = runner.fails(seed)
        if error is not None and choices.taken:
            raise runner.shrink(seed, error, choices, shrinks_max)
        if error is not None:
            name = name_of(scenario)
            error.add_note(f"with seed {seed}: repeat it with seeded_run({name}, [{seed}])")
            raise error
        count += 1
    return count


def replay_choices(
    scenario: Callable[[Choices], Awaitable[None]],
    choices: Sequence[int],
    *,
    seed: int = 0,
    faults: Collection[Fault] = (),
    seconds_max: float = SECONDS_MAX,
    steps_max: int = STEPS_MAX,
) -> None:
    """Run a scenario once with these choices, as the note of a failure says them."""
    if not _wants_choices(scenario, faults):
        raise UsageError(f"{name_of(scenario)} takes no Choices: repeat it with seeded_run(..., [{seed}]).")
    runner = _Runner(scenario, Bounds(seconds_max, steps_max), faults, wants=True)
    error, _ = runner.fails(seed, choices)
    if error is not None:
        raise error
