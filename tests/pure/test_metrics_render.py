"""The text of a registry: in small pieces, the same as whole, kept for a while, in the format that was asked for."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from callboard.actors import events as core
from callboard.metrics.recorder import Recorder
from callboard.metrics.render import OPENMETRICS, PIECE_SERIES_MAX, PLAIN, Exposition, choose

from .metrics_samples import full, series


@pytest.mark.parametrize(("chosen", "whole"), [(PLAIN, generate_latest), (OPENMETRICS, openmetrics.generate_latest)])
def test_text_in_pieces_is_the_text(chosen, whole):
    """What is rendered piece by piece is what prometheus-client renders at once, times of creation left out."""

    class WithoutCreated:
        def collect(self):
            for family in full_registry.collect():
                family.samples = [s for s in family.samples if not s.name.endswith("_created")]
                yield family

    full_registry = full()
    page = Exposition(full_registry, lambda: 0.0).page(chosen.media_type)
    assert (chosen.content_type, whole(WithoutCreated())) == (page.content_type, page.body)


def test_no_piece_is_large():
    """Between two steps at most a bounded number of series is written."""
    registry = full()
    steps = list(Exposition(registry, lambda: 0.0).steps())
    assert len(steps) >= series(registry) / PIECE_SERIES_MAX


def drain(steps):
    """Run steps to the end and take the page."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return done.value


def test_text_is_kept_for_a_while():
    """Within a second the same page is given out without asking anybody, and after it a new one."""
    now = [100.0]
    registry = CollectorRegistry()
    recorder = Recorder(registry, ["shell"])
    exposition = Exposition(registry, lambda: now[0])
    first = exposition.page()
    recorder.event(core.StepStarted(1, 1))
    now[0] += 0.999
    assert [] == list(exposition.steps())
    assert first is exposition.page()
    now[0] += 0.001
    assert b"callboard_steps_total 1.0\n" in exposition.page().body
    assert exposition.page() is not exposition.page(OPENMETRICS.media_type)


def test_one_render_at_a_time():
    """Who asks while another renders waits for that page; if the other gave up, it renders its own."""
    exposition = Exposition(full(), lambda: 0.0)
    first, second = exposition.steps(), exposition.steps()
    next(first)
    for _ in range(10):
        next(second)
    assert drain(first) is drain(second)
    third = Exposition(full(), lambda: 0.0)
    given_up = third.steps()
    next(given_up)
    given_up.close()
    assert drain(third.steps()).body


def test_stuck_render_blocks_nobody_for_ever():
    """A render that was begun and never goes on holds others up for a bounded number of steps."""
    exposition = Exposition(full(), lambda: 0.0)
    stuck = exposition.steps()
    next(stuck)
    assert drain(exposition.steps()).body
    stuck.close()


PROMETHEUS_ASKS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain", PLAIN),
        ("application/openmetrics-text", OPENMETRICS),
        ("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.9", PLAIN),
        (PROMETHEUS_ASKS, OPENMETRICS),
        ("application/openmetrics-text;q=0", PLAIN),
        ("application/openmetrics-text;q=nonsense", PLAIN),
        (";;;,,,=q", PLAIN),
    ],
)
def test_accept_header_chooses_the_format(accept, expected):
    """OpenMetrics is given to who asks for it by name and prefers it."""
    assert expected is choose(accept)
