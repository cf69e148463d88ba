"""The search for the fewest layers: planted cases found exactly, few measurements, noise, and going on after a stop."""

import json
import random
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.analyse.inputs import batches, text_lines
from litebert.analyse.layer_statistics import contribution
from litebert.checkpoints.folder import load_model
from litebert.cluster import IN_TURN, Placement, run_all
from litebert.errors import InputError
from litebert.shrinking import search
from litebert.shrinking.drop import drop_layers
from litebert.shrinking.search import Search, Trials, _certain
from litebert.shrinking.strategies import FIXED, drop_similar, kept_of


def rules(depth: int, idle: set[int] | None = None):
    """The fixed strategies and, first, one that knows which layers are idle."""
    fixed = {name: (lambda k, rule=rule: kept_of(depth, rule(depth, k))) for name, rule in FIXED.items()}
    if idle is None:
        return fixed
    cosines = [1.0 if layer in idle else 0.5 + layer / 1000 for layer in range(1, depth + 1)]
    return {"contribution": lambda k: kept_of(depth, drop_similar(cosines, k)), **fixed}


def planted(depth: int, idle: set[int], noise: float = 0.0):
    """A score that falls by 5 for every layer that was needed, and by chance."""

    def score(kept, seed):
        lost = len(set(range(1, depth + 1)) - set(kept) - idle)
        return 90 - 5 * lost + random.Random(f"{kept} {seed}").gauss(0, noise)

    return score


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 24), st.data())
def test_planted_layers_are_found_exactly(depth, data):
    idle = data.draw(st.sets(st.integers(1, depth), min_size=1, max_size=depth - 1))
    trials = Trials(planted(depth, idle))
    found = Search(depth, rules(depth, idle), trials, tolerance=1.0, seeds=[0]).run()
    assert found.best is not None
    assert set(found.best.kept) == set(range(1, depth + 1)) - idle
    assert found.best.reason == "within the tolerance" and found.best.loss == pytest.approx(0)


def test_binary_search_needs_few_measurements():
    depth, idle = 24, set(range(5, 15))
    trials = Trials(planted(depth, idle))
    found = Search(depth, rules(depth, idle), trials, tolerance=1.0, seeds=[0]).run()
    # The whole model, five halvings, and one look for each of the five other strategies.
    assert found.best.dropped == 10 and trials.measured <= 1 + 5 + 5


@pytest.mark.parametrize("draw", range(20))
def test_planted_layers_are_found_in_noise_far_below_their_worth(draw):
    depth, idle = 12, {3, 4, 8, 11}
    score = planted(depth, idle, noise=0.3)
    trials = Trials(lambda kept, seed: score(kept, seed + 1000 * draw))
    found = Search(depth, rules(depth, idle), trials, tolerance=1.0, seeds=range(6)).run()
    assert set(found.best.kept) == set(range(1, 13)) - idle
    assert found.best.seeds == 6 and found.noise > 0
    assert trials.measured < 3 * len(found.verdicts)  # clear cases took one seed


def test_what_seeds_cannot_tell_is_reported_as_undecided_and_not_dropped():
    swing = {0: -2.0, 1: 0.0, 2: 2.0}

    def score(kept, seed):
        return 80 + swing[seed] - (0.5 if len(kept) == 3 else 0.0) - 50 * (len(kept) < 3)

    found = Search(4, {"top": rules(4)["top"]}, Trials(score), tolerance=0.1, seeds=[0, 1, 2]).run()
    assert found.best is None and "undecided" in {one.reason for one in found.verdicts}
    said = found.sentences(0.1)
    assert said[0].startswith("no layer is dropped for 0.1: the smallest loss was 0.5")
    assert "undecided: dropping 1 (top) lost 0.5" in said[1] and "over 3 seeds, so its layers stay" in said[1]


@pytest.mark.parametrize("truth", [0.4, 1.1, 2.3])
def test_a_tolerance_is_a_promise(truth):
    """Over many searches with other seeds, layers whose true loss is above the tolerance go in one of ten at most."""

    def dropped(draw: int) -> bool:
        def score(kept, seed):
            noise = random.Random(f"{draw} {kept} {seed}").gauss(0, 0.6)
            return 90 + noise - truth * (len(kept) == 3) - 50 * (len(kept) < 3)

        return Search(4, {"top": rules(4)["top"]}, Trials(score), tolerance=1.0, seeds=range(6)).run().best is not None

    share = sum(dropped(draw) for draw in range(200)) / 200
    assert share <= 0.1 if truth > 1.0 else share > 0.3


@pytest.mark.parametrize("seeds", [2, 4])
def test_few_seeds_keep_the_promise_too(seeds):
    """With few seeds the noise itself is known badly: as if it were known well, 12% would pass with two."""

    def passes(draw: int) -> bool:
        def score(kept, seed):
            noise = random.Random(f"{draw} {kept} {seed}").gauss(0, 0.6)
            return 90 + noise - 1.001 * (len(kept) == 3) - 50 * (len(kept) < 3)

        search = Search(4, {"top": rules(4)["top"]}, Trials(score), tolerance=1.0, seeds=range(seeds))
        return search.run().best is not None

    assert sum(map(passes, range(600))) <= 0.08 * 600


def test_all_layers_get_only_the_seeds_that_are_needed():
    used = []

    def score(kept, seed):
        used.append((len(kept), seed))
        return 90 - 20 * (4 - len(kept)) + seed / 10

    found = Search(4, {"top": rules(4)["top"]}, Trials(score), tolerance=1.0, seeds=range(6)).run()
    assert found.best is None and {seed for layers, seed in used if layers == 4} == {0, 1}
    assert all(verdict.reason == "too much is lost" for verdict in found.verdicts)


def test_bounds_for_few_seeds_are_those_of_student():
    stats = pytest.importorskip("scipy.stats")
    for differences in (*range(1, 20), 50, 1000):
        assert _certain(differences) == pytest.approx(stats.t.ppf(0.95, differences), abs=0.01)


def test_the_closest_candidate_is_reported_when_none_fits():
    found = Search(12, rules(12), Trials(planted(12, set())), tolerance=1.0, seeds=[0, 1]).run()
    assert found.best is None
    assert (found.closest.dropped, found.closest.loss) == (1, pytest.approx(5))
    assert found.sentences(1.0)[0].startswith("no layer is dropped for 1: the smallest loss was 5")


def test_a_later_strategy_wins_where_it_is_better():
    depth, idle = 12, {1, 2, 3}
    keeping = {"top": rules(depth)["top"], "bottom": rules(depth)["bottom"]}
    found = Search(depth, keeping, Trials(planted(depth, idle)), tolerance=1.0, seeds=[0]).run()
    assert (found.best.strategy, found.best.dropped) == ("bottom", 3)


def test_a_lucky_first_seed_does_not_win():
    """One seed alone would let two layers go; all three say no, and the search steps back."""

    def score(kept, seed):
        lost = 4 - len(kept)
        wobble = {0: -0.2, 1: 0.0, 2: 0.2}[seed] if not lost else 0.0
        if lost == 2:
            return 90 if seed == 0 else 80
        return 90 + wobble - 20 * (lost > 2)

    found = Search(4, {"top": rules(4)["top"]}, Trials(score), tolerance=1.0, seeds=[0, 1, 2]).run()
    assert found.best.dropped == 1


def test_equal_models_are_measured_once():
    measured = []

    def score(kept, seed):
        measured.append(kept)
        return 90.0 if len(kept) >= 8 else 0.0

    trials = Trials(score, same=len)  # all layers shared: only their number counts
    found = Search(12, rules(12), trials, tolerance=1.0, seeds=[0]).run()
    assert found.best.dropped == 4 and len(measured) == len({len(kept) for kept in measured})


def test_a_stopped_search_resumes(tmp_path):
    file = tmp_path / "trials.jsonl"
    score = planted(12, {2, 5, 6}, noise=0.1)
    left = 4

    def dies(kept, seed):
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return score(kept, seed)

    keeping = rules(12, {2, 5, 6})
    with pytest.raises(KeyboardInterrupt):
        Search(12, keeping, Trials(dies, file=file), tolerance=1.0, seeds=[0, 1]).run()
    with file.open("a") as end:
        end.write('{"kept": [1, 2')  # killed in the middle of a line
    whole = Trials(score)
    expected = Search(12, keeping, whole, tolerance=1.0, seeds=[0, 1]).run()
    again = Trials(score, file=file)
    found = Search(12, keeping, again, tolerance=1.0, seeds=[0, 1]).run()
    assert found.best == expected.best and again.measured == whole.measured - 4
    assert len([json.loads(line) for line in file.read_text().splitlines()]) == whole.measured
    third = Trials(score, file=file)
    assert Search(12, keeping, third, tolerance=1.0, seeds=[0, 1]).run().best == expected.best
    assert third.measured == 0


def test_progress_never_runs_out_before_the_end():
    reports = []
    trials = Trials(planted(12, {3, 4}))
    report = lambda *one: reports.append(one)  # noqa: E731
    found = Search(12, rules(12, {3, 4}), trials, tolerance=1.0, seeds=[0], report=report).run()
    assert tuple(verdict for verdict, _, _ in reports) == found.verdicts
    assert reports[-1][1] == 0 and all(seconds >= 0 for _, _, seconds in reports)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 12), st.integers(2, 9), st.integers(0, 10**6), st.booleans())
def test_runs_at_once_find_what_runs_in_turn_find(depth, places, draw, ahead):
    """More is measured, but only what a search in turn asks for counts."""
    score = planted(depth, {1, depth - 1}, noise=2.0)
    found = []
    for place in (IN_TURN, Placement(at_once=places)):
        trials = Trials(lambda kept, seed: score(kept, seed + draw), place=place)
        with pytest.MonkeyPatch.context() as patched:  # no processes: which runs go at once, not how
            patched.setattr(search, "run_all", lambda jobs, *, on, **how: run_all(jobs, on=IN_TURN, **how))
            searched = Search(depth, rules(depth), trials, tolerance=6.0, seeds=range(4), ahead=ahead)
            found.append(replace(searched.run(), measured=0))
    assert found[0] == found[1]


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_idle_layers_planted_in_a_real_network_are_found(family, model_folder, text):
    """The score: how often the small model's [CLS] is nearest to the whole one's of the same text."""
    idle = {2, 4, 5}
    loaded = load_model(model_folder(family, tuple(idle), ()))
    config = loaded.network.config.encoder
    inputs = list(batches(text_lines([str(text)]), loaded.tokenizer, config))
    cosines = contribution(loaded.network.encoder, inputs)

    def vectors(network):
        with torch.no_grad():
            return torch.cat([network.pooled(network.encoder(i.ids, i.layout, i.segments), i.layout) for i in inputs])

    wanted = vectors(loaded.network)

    def score(kept, seed):
        nearest = torch.cdist(vectors(drop_layers(loaded.network, kept)), wanted).argmin(-1)
        return float((nearest == torch.arange(len(wanted))).double().mean() * 100)

    keeping = {"contribution": lambda k: kept_of(6, drop_similar(cosines, k)), **rules(6)}
    found = Search(6, keeping, Trials(score), tolerance=1.0, seeds=[0]).run()
    assert set(found.best.kept) == {1, 3, 6} and found.best.mean == 100


@pytest.mark.parametrize(
    ("depth", "seeds", "tolerance", "said"),
    [
        (12, [], 1.0, "without repetition"),
        (12, [1, 1], 1.0, "without repetition"),
        (12, [1], -1.0, "tolerance is -1.0"),
        (1, [1], 1.0, "nothing to search in 1 layers"),
    ],
)
def test_impossible_searches(depth, seeds, tolerance, said):
    with pytest.raises(InputError, match=said):
        Search(depth, rules(12), Trials(planted(12, set())), tolerance=tolerance, seeds=seeds)


def test_nan_score_is_an_error():
    with pytest.raises(InputError, match="score of nan"):
        Search(4, rules(4), Trials(lambda kept, seed: float("nan")), tolerance=1.0, seeds=[0]).run()


def test_times_are_of_runs_that_were_not_resumed_where_there_are_any(tmp_path):
    cut = {((1, 2), 0), ((1,), 0)}
    trials = Trials(
        lambda kept, seed: time.sleep(0.02 * seed) or 0.5,
        file=tmp_path / "trials.jsonl",
        is_begun=lambda kept, seed: (kept, seed) in cut,
    )
    for kept, seed in [((1, 2), 0), ((1, 2), 1), ((1, 2), 2), ((1,), 0)]:
        trials.measure(kept, seed)
    assert trials.fastest(2).seed == 1 and not trials.fastest(2).resumed and trials.fastest(1).seed == 0
    again = Trials(lambda kept, seed: 0.5, file=tmp_path / "trials.jsonl")
    assert again.fastest(2) == trials.fastest(2)
