"""The fewest layers whose score on a task stays within a tolerance, found with few fine-tuning runs.

Binary search per strategy, starting above the best so far (a model with more layers dropped is taken to be no better);
a later strategy is tried only where it would beat the best so far. A seed is spent, on a candidate and on all layers,
only while the verdict is open; the winner gets every seed. The tolerance is a promise: a candidate passes where its
loss is within it by more than chance between seeds explains. What all seeds together cannot tell is reported as
undecided, and those layers stay.

Every score is recorded when its run ends, so a search that was stopped resumes where it was, down to the step of the
run that was interrupted.
"""

import dataclasses
import json
import logging
import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from litebert.cluster import IN_TURN, Placement, run_all
from litebert.errors import InputError
from litebert.parameters import format_duration
from litebert.runs import MODEL_FOLDER, RunLock, update_run, write_atomically
from litebert.shrinking.drop import count_parameters, kept_plan, sharing
from litebert.shrinking.strategies import Layers, Strategy, kept_of, layers_in_words, ranges
from litebert.shrinking.tuning import (
    TRIALS_FILE,
    TRIALS_FOLDER,
    USUAL,
    DropSchedule,
    Tuning,
    check_metric,
    comparable,
    device_here,
    inference_seconds,
    keeping_rules,
    note_runs,
    with_head,
)
from litebert.tasks.examples import TaskData
from litebert.tasks.finetune import check_folder
from litebert.tasks.prepare import FinetuneSettings, Prepared, prepare
from litebert.train.clock import StopSignal

log = logging.getLogger(__name__)

Reason = Literal["within the tolerance", "undecided", "too much is lost"]
Score = Callable[[Layers, int], float]  # layers kept and a seed to a score: higher is better
MOST_SEEDS = 1000  # that a search may use
CERTAIN = 1.645  # standard errors of a loss, where these are known well: 95% on one side
CERTAIN_OF_FEW = (6.314, 2.920, 2.353, 2.132)  # the same where they are estimated from 1, 2, 3, 4 differences
FIRST_SEEDS = 2  # of all layers: with fewer nothing is known of chance


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether layers can be dropped. Losses are of the score; ``noise``: how far chance may move one."""

    strategy: str
    kept: Layers
    dropped: int
    mean: float
    loss: float
    noise: float
    seeds: int
    fits: bool
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """``best`` drops most layers within the tolerance; without one, ``closest`` lost least of all that were tried."""

    whole: float  # the score of all layers, mean over the seeds
    noise: float  # of a loss when every seed is used
    seeds: int
    best: Verdict | None
    closest: Verdict
    verdicts: tuple[Verdict, ...]
    measured: int

    def sentences(self, tolerance: float) -> list[str]:
        """The result in words."""
        if self.best is None:
            first = (
                f"no layer is dropped for {tolerance:g}: the smallest loss was {self.closest.loss:.4g} ± "
                f"{self.closest.noise:.2g}, by dropping {self.closest.dropped} ({self.closest.strategy})"
            )
        else:
            first = (
                f"{layers_in_words(self.best.dropped)} can be dropped ({self.best.strategy}): the score is "
                f"{self.best.mean:.4g}, with all layers {self.whole:.4g}, so the loss is {self.best.loss:.4g} "
                f"± {self.best.noise:.2g}: {self.best.reason}"
            )
        if self.seeds == 1:
            return [first, "one seed does not show the noise: this loss may be chance; use three seeds or more"]
        open_ = [one for one in self.verdicts if one.reason == "undecided"]
        if self.best is not None:
            open_ = [one for one in open_ if one.dropped > self.best.dropped]
        if not open_:
            return [first]
        widest = max(open_, key=lambda one: (one.dropped, -one.loss))
        gap = abs(tolerance - widest.loss)
        enough = math.ceil(self.seeds * (widest.noise / gap) ** 2) if gap > 0 else MOST_SEEDS + 1
        advice = (
            f"about {enough} seeds would tell" if enough <= MOST_SEEDS else "more seeds than are practical would tell"
        )
        return [
            first,
            f"undecided: dropping {widest.dropped} ({widest.strategy}) lost {widest.loss:.4g} ± {widest.noise:.2g} "
            f"over {widest.seeds} seeds, so its layers stay; {advice}, or choose another tolerance",
        ]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One measurement."""

    kept: Layers
    seed: int
    score: float
    seconds: float
    resumed: bool = False  # then the seconds are of its last part only


class Trials:
    """All measurements so far. ``same`` names the model that layers make: with shared blocks many make one.

    Where several runs go at once (``place``), some are measured before they are asked for. A search counts only those
    that it asks for, so that it finds the same as one whose runs follow each other, or as one that was stopped.
    """

    def __init__(
        self,
        score: Score,
        *,
        file: Path | None = None,
        same: Callable[[Layers], Hashable] = lambda kept: kept,
        is_begun: Callable[[Layers, int], bool] | None = None,
        measured: Callable[[Trial], None] = lambda trial: None,
        place: Placement = IN_TURN,
        stop: object = False,
    ) -> None:
        self._score, self._file, self._same = score, file, same
        self._is_begun, self._told, self.place, self._stop = is_begun, measured, place, stop
        self._known: dict[Hashable, dict[int, Trial]] = {}
        self._asked: dict[Hashable, dict[int, float]] = {}
        self.measured = 0  # in this process; the others were read
        for trial in _read(file):
            self._known.setdefault(self._same(trial.kept), {})[trial.seed] = trial

    def knows(self, kept: Layers, seed: int) -> bool:
        return seed in self._known.get(self._same(kept), {})

    def scores(self, kept: Layers) -> list[float]:
        """What was asked for of these layers."""
        return [*self._asked.get(self._same(kept), {}).values()]

    def of_seeds(self, kept: Layers, seeds: Sequence[int]) -> list[float]:
        """The scores of these layers with these seeds, all of which were measured."""
        known = self._known[self._same(kept)]
        return [known[seed].score for seed in seeds]

    def measure(self, kept: Layers, seed: int) -> float:
        """The score of these layers with a seed, measured unless it is known."""
        self.measure_all([(kept, seed)])
        score = self._known[self._same(kept)][seed].score
        self._asked.setdefault(self._same(kept), {})[seed] = score
        return score

    def measure_all(self, work: Sequence[tuple[Layers, int]], needs: Mapping[int, Sequence[int]] | None = None) -> None:
        """Measure what is not known of layers and seeds, as many at once as fit; ``needs`` as of ``run_all``."""
        new: dict[tuple[Hashable, int], int] = {}
        for place, (kept, seed) in enumerate(work):
            if not self.knows(kept, seed):
                new.setdefault((self._same(kept), seed), place)
        jobs = [partial(timed, self._score, self._is_begun, *work[place]) for place in new.values()]
        places = {place: job for job, place in enumerate(new.values())}
        before = {
            places[place]: [places[other] for other in others if other in places]
            for place, others in (needs or {}).items()
            if place in places
        }
        run_all(
            jobs,
            on=self.place,
            needs=before,
            finished=lambda _, trial: self._add(trial),
            what="fine-tuning runs",
            stop=self._stop,
        )

    def _add(self, trial: Trial) -> None:
        self._known.setdefault(self._same(trial.kept), {})[trial.seed] = trial
        self.measured += 1
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(trial)) + "\n")
        self._told(trial)

    def seconds(self, layers: int) -> float:
        """How long a trial with this many layers may take, by those measured: time follows the number of layers."""
        every = [trial for known in self._known.values() for trial in known.values()]
        if not every:
            return 0.0
        return sum(trial.seconds / len(trial.kept) for trial in every) / len(every) * layers

    def fastest(self, layers: int) -> Trial:
        """The fastest trial with this number of layers kept; one that was resumed only where there is no other."""
        every = (trial for known in self._known.values() for trial in known.values() if len(trial.kept) == layers)
        return min(every, key=lambda trial: (trial.resumed, trial.seconds))


def timed(score: Score, is_begun: Callable[[Layers, int], bool] | None, kept: Layers, seed: int) -> Trial:
    """Measure these layers with a seed."""
    begun, resumed = time.monotonic(), is_begun is not None and is_begun(kept, seed)
    found = float(score(kept, seed))
    if not math.isfinite(found):
        raise InputError(f"layers {kept} with seed {seed} have a score of {found}; the measure must be a number")
    return Trial(kept=kept, seed=seed, score=found, seconds=time.monotonic() - begun, resumed=resumed)


def _read(file: Path | None) -> Iterator[Trial]:
    """The trials recorded so far; a last line cut by a kill is removed: it is a trial to do again."""
    if file is None or not file.is_file():
        return
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_atomically(file, whole)
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            row = json.loads(line)
            yield Trial(**{**row, "kept": tuple(row["kept"]), "score": float(row["score"])})
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{file}, line {number} is not a trial; remove the line and start again") from None


class Search:
    """One search. ``keeping[name](k)`` gives the layers a strategy keeps when it drops k; strategies in order.

    ``report`` gets each verdict, how many candidates may follow, and the seconds those may take. ``ahead``: places that
    the seeds of a candidate leave free measure candidates that may follow.
    """

    def __init__(
        self,
        depth: int,
        keeping: Mapping[str, Callable[[int], Layers]],
        trials: Trials,
        *,
        tolerance: float,
        seeds: Sequence[int],
        report: Callable[[Verdict, int, float], None] = lambda *_: None,
        ahead: bool = True,
    ) -> None:
        if not seeds or len(set(seeds)) != len(seeds):
            raise InputError(f"seeds are {list(seeds)} but must be one or more, without repetition")
        if tolerance < 0:
            raise InputError(f"tolerance is {tolerance} but must be 0 or more")
        if depth < 2 or not keeping:
            raise InputError(f"there is nothing to search in {depth} layers with {len(keeping)} strategies")
        self._depth, self._keeping, self._trials = depth, keeping, trials
        self._tolerance, self._seeds, self._report, self._ahead = tolerance, list(seeds), report, ahead
        self._verdicts: dict[tuple[str, int], Verdict] = {}
        self._everything: Layers = tuple(range(1, depth + 1))
        self._whole: list[float] = []  # scores of all layers, with the first seeds

    def run(self) -> SearchResult:
        """Search; scores that the trials know already cost nothing."""
        self._measure_whole(FIRST_SEEDS)
        while True:
            best = self._pass()
            if best is not None:
                best = self._confirm(best)
            if best is None or best.fits:
                break  # otherwise all seeds together rejected it: search again, knowing that
        closest = min(self._verdicts.values(), key=lambda verdict: (verdict.loss, -verdict.dropped))
        return SearchResult(
            whole=_mean(self._whole),
            noise=self._noise(self._whole),
            seeds=len(self._seeds),
            best=best,
            closest=closest,
            verdicts=tuple(self._verdicts.values()),
            measured=self._trials.measured,
        )

    def _measure_whole(self, count: int) -> None:
        """The scores of all layers with at least this number of seeds."""
        for seed in self._seeds[len(self._whole) : count]:
            self._measure_ahead(self._everything, seed, ((self._everything, number) for number in self._seeds))
            self._whole.append(self._trials.measure(self._everything, seed))

    def _measure_ahead(self, kept: Layers, seed: int, pairs: Iterable[tuple[Layers, int]]) -> None:
        """Measure these layers with a seed, unless they are known, and as many others of ``pairs`` as there is room."""
        if not self._trials.knows(kept, seed):
            others = (pair for pair in pairs if pair != (kept, seed) and not self._trials.knows(*pair))
            self._trials.measure_all([(kept, seed), *islice(others, self._trials.place.at_once - 1)])

    def _pass(self) -> Verdict | None:
        """The best over all strategies: binary search per strategy, starting above the best so far."""
        best: Verdict | None = None
        for place, name in enumerate(self._keeping):
            low, high = best.dropped if best else 0, self._depth
            others = len(self._keeping) - place - 1
            first = best is not None  # one candidate above the best shows whether this strategy can beat it
            while high - low > 1:
                middle = low + 1 if first else (low + high) // 2
                first = False
                known = (name, middle) in self._verdicts
                verdict = self._judge(name, middle, _middles((middle, high), (low, middle)))
                if verdict.fits:
                    best, low = verdict, middle
                else:
                    high = middle
                if not known:
                    beatable = low + 1 < self._depth
                    left = math.ceil(math.log2(high - low)) + (others if beatable else 0)
                    # estimated at half the layers and with every seed
                    self._report(verdict, left, left * len(self._seeds) * self._trials.seconds(self._depth // 2))
        return best

    def _judge(self, name: str, count: int, next_counts: Iterable[int]) -> Verdict:
        """The verdict on a strategy and a number; seeds are used until it is settled."""
        if (name, count) in self._verdicts:
            return self._verdicts[name, count]
        kept = self._keeping[name](count)
        assert len(kept) == self._depth - count, "a strategy keeps the number of layers it was asked for"
        follow = [self._keeping[name](count) for count in next_counts] if self._ahead else []
        for used, seed in enumerate(self._seeds, start=1):
            self._measure_whole(used)
            ready = [number for number in self._seeds if self._trials.knows(self._everything, number)]
            self._measure_ahead(kept, seed, ((layers, number) for layers in (kept, *follow) for number in ready))
            self._trials.measure(kept, seed)
            verdict = self._verdict(name, kept)
            if used < len(self._seeds) and self._is_settled(verdict):
                break
        self._verdicts[name, count] = verdict
        return verdict

    def _verdict(self, name: str, kept: Layers) -> Verdict:
        scores = self._trials.scores(kept)
        loss = _mean(self._whole) - _mean(scores)
        noise = self._noise(scores)
        reason: Reason = "undecided"
        if loss + noise <= self._tolerance:
            reason = "within the tolerance"
        elif loss - noise > self._tolerance:
            reason = "too much is lost"
        return Verdict(
            strategy=name,
            kept=kept,
            dropped=self._depth - len(kept),
            mean=_mean(scores),
            loss=loss,
            noise=noise,
            seeds=len(scores),
            fits=reason == "within the tolerance",
            reason=reason,
        )

    def _noise(self, scores: Sequence[float]) -> float:
        """How far chance may move the difference between all layers and a candidate with these scores.

        From the variation between the seeds of both, so that one that fails with some seeds does not gain by it.
        """
        groups = [group for group in (self._whole, scores) if len(group) > 1]
        if not groups:
            return 0.0
        squares = sum((score - _mean(group)) ** 2 for group in groups for score in group)
        differences = sum(len(group) - 1 for group in groups)
        return _certain(differences) * math.sqrt(squares / differences * (1 / len(self._whole) + 1 / len(scores)))

    def _is_settled(self, verdict: Verdict) -> bool:
        """Whether more seeds are unlikely to change the verdict, by all that was measured."""
        return verdict.reason != "undecided"

    def _confirm(self, verdict: Verdict) -> Verdict:
        """The verdict on a winner with every seed."""
        self._measure_whole(len(self._seeds))
        self._trials.measure_all([(verdict.kept, seed) for seed in self._seeds])
        for seed in self._seeds:
            self._trials.measure(verdict.kept, seed)
        final = self._verdict(verdict.strategy, verdict.kept)
        self._verdicts[verdict.strategy, verdict.dropped] = final
        return final


def _certain(differences: int) -> float:
    """Student's t for 95% on one side; beyond the table from its expansion, which is right to a hundredth there."""
    if differences <= len(CERTAIN_OF_FEW):
        return CERTAIN_OF_FEW[differences - 1]
    cube, fifth = CERTAIN**3, CERTAIN**5
    second = (5 * fifth + 16 * cube + 3 * CERTAIN) / 96
    return CERTAIN + (cube + CERTAIN) / (4 * differences) + second / differences**2


def _middles(*ranges: tuple[int, int]) -> Iterator[int]:
    """The numbers that binary searches between two numbers may come to, soonest first."""
    waiting = deque(ranges)
    while waiting:
        low, high = waiting.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            yield middle
            waiting += (middle, high), (low, middle)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A fine-tuned model: its cost on this machine, and its scores, one for each seed."""

    layers: int
    parameters: int
    milliseconds: float  # of inference per input, in batches
    scores: list[float]


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """The result of a search for a task."""

    model: str
    task: str
    metric: str
    tolerance: float
    layers: int
    dropped: list[int]
    kept: list[int]
    before: Standing
    after: Standing
    found: SearchResult
    sentences: list[str]
    output: str = ""  # the folder of the runs, with the model in model/


def shrink_for_task(
    settings: FinetuneSettings,
    data: TaskData,
    *,
    tolerance: float,
    seeds: Sequence[int],
    strategies: Sequence[Strategy] = USUAL,
    schedule: DropSchedule | None = None,
    place: Placement = IN_TURN,
) -> TaskReport:
    """Search, leave the smallest fine-tuned model that is good enough in OUT/model, and report."""
    check_metric(data)
    schedule = schedule or DropSchedule()
    check_folder(settings.out, settings.resume)
    prepared = prepare(settings, data)
    plan = prepared.source.network.config.encoder.plan
    stop = StopSignal()
    with RunLock(settings.out):
        note_runs(settings, comparable(settings, prepared, schedule), {"tolerance": tolerance, "seeds": list(seeds)})
        tuning = Tuning(settings, prepared, schedule)
        tuning.stop = stop
        reporter = _Reporter(data.metrics[0], tuning)
        trials = Trials(
            tuning.score,
            file=settings.out / TRIALS_FILE,
            same=lambda kept: (len(kept), kept_plan(plan, kept)),
            measured=reporter.measured,
            place=place,
            stop=stop,
        )
        names = strategies if sharing(plan) != "all" else ("top",)  # all strategies are equal
        keeping = keeping_rules(names, prepared, device_here(settings.device))
        ahead = schedule.when != "steps"  # where candidates begin with the same smaller ones
        search = Search(len(plan), keeping, trials, tolerance=tolerance, seeds=seeds, report=reporter, ahead=ahead)
        with stop:
            found = search.run()
        kept = found.best.kept if found.best else tuple(range(1, len(plan) + 1))
        if found.best is not None:
            tuning.put_best(kept, seeds, settings.out / MODEL_FOLDER, place)
        shutil.rmtree(settings.out / TRIALS_FOLDER, ignore_errors=True)
        before, after = _standings(prepared, kept, trials, device_here(settings.device))
        report = TaskReport(
            model=settings.model,
            task=data.name,
            metric=data.metrics[0],
            tolerance=tolerance,
            layers=len(plan),
            dropped=list(kept_of(len(plan), kept)),
            kept=list(kept),
            before=before,
            after=after,
            found=found,
            sentences=found.sentences(tolerance),
        )
        update_run(settings.out, status="finished", result=dataclasses.asdict(report))
    return report


def _standings(prepared: Prepared, kept: Layers, trials: Trials, device: str) -> tuple[Standing, Standing]:
    """All layers and those kept."""
    everything = tuple(range(1, prepared.source.network.config.encoder.num_layers + 1))
    networks = [with_head(prepared, layers) for layers in (everything, kept)]
    seconds = inference_seconds(networks, prepared, device)
    before, after = (
        Standing(
            layers=len(layers),
            parameters=count_parameters(network.config),
            milliseconds=1000 * each,
            scores=trials.scores(layers),
        )
        for layers, network, each in zip((everything, kept), networks, seconds, strict=True)
    )
    return before, after


class _Reporter:
    """Logs each score and verdict, and deletes the models of candidates that cannot win any more."""

    def __init__(self, metric: str, tuning: Tuning) -> None:
        self._metric, self._tuning = metric, tuning
        self._best = 0

    def measured(self, trial: Trial) -> None:
        log.info(f"layers {ranges(trial.kept)}, seed {trial.seed}: {self._metric} {trial.score:.4f}")

    def __call__(self, last: Verdict, left: int, seconds: float) -> None:
        if last.fits:
            self._best = max(self._best, last.dropped)
        log.info(
            f"{last.strategy}, {last.dropped} dropped: {self._metric} {last.mean:.4f} ({last.seeds} "
            f"seed{'' if last.seeds == 1 else 's'}), a loss of {last.loss:.4f}: {last.reason}; at most {left} more to "
            f"try, about {format_duration(seconds)}"
        )
        depth = last.dropped + len(last.kept)
        for folder in (self._tuning.settings.out / TRIALS_FOLDER).glob("*/"):
            dropped = depth - len(folder.name.split("-seed-")[0].split("-"))
            lost = folder.name.startswith(f"{'-'.join(map(str, last.kept))}-seed-") and not last.fits
            if (lost or dropped < self._best) and not self._tuning.is_needed(folder):
                shutil.rmtree(folder)
