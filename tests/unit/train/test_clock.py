"""The clock of a run: where it starts, how long scores may take, and what is left for the end."""

import pytest

from litebert.train import clock as clock_module
from litebert.train.clock import SCORING_SHARE, Clock


@pytest.fixture
def now(monkeypatch):
    """A clock to set by hand."""

    class Time:
        value = 100.0

        def monotonic(self) -> float:
            return self.value

    made = Time()
    monkeypatch.setattr(clock_module, "time", made)
    return made


def test_it_counts_from_the_command_and_goes_on_from_an_earlier_process(now):
    clock = Clock(begun=96.0)
    clock.start(before=50.0)
    now.value = 110.0
    assert clock.seconds() == 64.0
    unsaid = Clock()
    unsaid.start(before=50.0)
    assert unsaid.seconds() == 50.0


def test_scores_may_take_a_small_share_of_the_time(now):
    clock = Clock()
    clock.start(0.0)
    for _ in range(2):
        with clock.timing("score"):
            now.value += 1.0
    with clock.timing("save"):
        now.value += 10.0
    assert clock.may_score(2.0 / SCORING_SHARE) and not clock.may_score(1.9 / SCORING_SHARE)


def test_the_end_is_left_time_for_the_longest_score_and_save_and_a_picture(now):
    clock = Clock(begun=92.0)
    clock.start(0.0)
    assert clock.reserve(None) == 0.0
    assert clock.reserve(1000.0) == 2.0  # a quarter of the eight seconds that the start took,
    assert clock.reserve(10.0) == pytest.approx(0.2)  # but little of the budget
    for seconds in (3.0, 1.0):
        with clock.timing("score"):
            now.value += seconds
        with clock.timing("save"):
            now.value += seconds / 2
    assert clock.reserve(1000.0) == 2.0 + 3.0 + 2 * 1.5
