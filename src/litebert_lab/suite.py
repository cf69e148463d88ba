"""How good a pretrained model is, whatever its objective was: ``litebert-lab suite MODEL``.

Losses of two objectives do not compare; these figures do. Minimal pairs (BLiMP): which of two sentences, alike but for
their grammar, does the model find likelier, each token masked once? Similarity (STS12 to 16 and STS-B): does the cosine
of two sentences' mean states, without any training, follow what people say? A few small tasks of GLUE, fine-tuned with
several seeds. And masked words of held-out text, at several depths. Each part runs where its data is given.

N sentences of one length L, P places asked about, V vocabulary, H width.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from litebert.errors import InputError
from litebert_lab.bench.commands import Cores, On

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.cluster import Placement
    from litebert.model import Model

BATCH_TOKENS = {"cpu": 8_192, "cuda": 131_072}
QUICK_TASKS = ("cola", "stsb", "rte")
Judge = Literal["masked", "replaced"]
Figures = dict[str, Any]


def suite(
    model: Annotated[str, typer.Argument(help="A model folder, or the name of a shipped model.")],
    blimp: Annotated[Path | None, typer.Option(help="Folder with BLiMP's .jsonl files.")] = None,
    pairs: Annotated[int, typer.Option(help="Pairs of each BLiMP paradigm; 0: all.")] = 0,
    depths: Annotated[
        list[int] | None, typer.Option("--depth", help="Also after this many layers (BLiMP, held-out text).")
    ] = None,
    sts: Annotated[Path | None, typer.Option(help="Folder with STS12-en-test to STS16-en-test, STSBenchmark.")] = None,
    against: Annotated[list[str] | None, typer.Option(help="Other models beside it in the table of STS.")] = None,
    glue: Annotated[Path | None, typer.Option(help="Folder of GLUE's tasks.")] = None,
    tasks: Annotated[list[str] | None, typer.Option("--task", help="Tasks of GLUE; cola, stsb and rte.")] = None,
    seeds: Annotated[int, typer.Option(min=2, help="Seeds of each task.")] = 3,
    corpus: Annotated[Path | None, typer.Option(help="A token store, whose held-out text is scored.")] = None,
    device: Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")] = "auto",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A JSON file for the figures.")] = None,
    on: On = "here",
    cores: Cores = 0,
) -> None:
    """Measure a pretrained model: minimal pairs, sentence similarity, quick fine-tunings, held-out text."""
    import litebert
    from litebert.cluster import place_runs
    from litebert.system import usable_device

    if not any((blimp, sts, glue, corpus)):
        raise InputError("there is nothing to measure; give one or more of blimp, sts, glue and corpus")
    where, found = usable_device(device), Figures(model=model)
    loaded = litebert.load(model, device=where)
    begun = time.monotonic()

    def add(name: str, figures: Figures, line: str) -> None:
        nonlocal begun
        found[name] = {**figures, "seconds": round(time.monotonic() - begun, 1)}
        begun = time.monotonic()
        typer.echo(line)
        if out:
            out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    layers = loaded.config.num_layers
    if blimp:
        judges: list[tuple[Judge, int]] = [("masked", depth) for depth in (layers, *(depths or ()))]
        judges += [("replaced", layers)] if "replaced" in loaded.network.heads else []
        for judge, depth in judges:
            shares = blimp_scores(loaded, read_blimp(blimp, pairs), judge=judge, depth=depth)
            mean = statistics.fmean(shares.values())
            low = ", ".join(f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=lambda p: p[1])[:3])
            line = f"BLiMP by {judge} tokens at depth {depth}: {mean:.2%} (lowest: {low})"
            add(f"blimp_{judge}_{depth}", {"mean": mean, "paradigms": shares}, line)
    if sts:
        sets = read_sts(sts)
        for name in (model, *(against or ())):
            by_set = sts_scores(loaded if name == model else litebert.load(name, device=where), sets)
            mean = statistics.fmean(by_set.values())
            line = ", ".join(f"{part} {100 * value:.1f}" for part, value in by_set.items())
            key = "sts" if name == model else f"sts of {name}"
            add(
                key,
                {"mean": mean, "sets": by_set},
                f"STS of {name} by cosine: mean of {len(by_set)} {100 * mean:.1f} ({line})",
            )
    if corpus:
        by_depth = held_out_scores(loaded, corpus, depths or ())
        for depth, figures in by_depth.items():
            line = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in figures.items())
            add(f"held_out_{depth}", dict(figures), f"held-out text at depth {depth}: {line}")
    if glue:
        for task in tasks or QUICK_TASKS:
            figures = glue_scores(model, glue, task, seeds, place_runs(on, device, cores))
            low, high = min(figures["scores"]), max(figures["scores"])
            line = (
                f"{task}, {figures['metric']} of {seeds} seeds: median {figures['median']:.4f}, {low:.4f} to {high:.4f}"
            )
            add(task, figures, line)


# BLiMP


def read_blimp(folder: Path, pairs: int = 0) -> dict[str, list[tuple[str, str]]]:
    """(good, bad) sentences by paradigm, the first ``pairs`` of each (0: all)."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise InputError(f"there are no .jsonl files in {folder}; name the folder data of alexwarstadt/blimp")
    found = {}
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in (lines[:pairs] if pairs else lines)]
        found[file.stem] = [(row["sentence_good"], row["sentence_bad"]) for row in rows]
    return found


def blimp_scores(
    model: "Model", paradigms: Mapping[str, Sequence[tuple[str, str]]], *, judge: Judge, depth: int
) -> dict[str, float]:
    """The share of each paradigm's pairs whose good sentence scores higher."""
    texts = [text for rows in paradigms.values() for pair in rows for text in pair]
    scores = iter(sentence_scores(model, texts, judge=judge, depth=depth))
    return {name: statistics.fmean(next(scores) > next(scores) for _ in rows) for name, rows in paradigms.items()}


def sentence_scores(model: "Model", texts: Sequence[str], *, judge: Judge, depth: int) -> list[float]:
    """The log-likelihood of each sentence.

    ``masked``: the sum over its tokens, each masked once while the others are seen. ``replaced``: the sum of the
    logarithms of the probability that a token was not replaced, out of one pass.
    """
    import torch

    from litebert.train import precision

    assert model.tokenizer is not None
    head = "masked_lm" if judge == "masked" else "replaced"
    if head not in model.network.heads:
        raise InputError(f"this model has no {head} head, by which sentences would be judged")
    ids = [one.ids for one in model.tokenizer.encode_batch(list(texts))]
    by_length: dict[int, list[int]] = {}
    for index, one in enumerate(ids):
        by_length.setdefault(len(one), []).append(index)
    scores = torch.zeros(len(ids), dtype=torch.float64)
    kind = precision.training_precision(model.device, model.config.width)
    with torch.no_grad(), precision.cast(kind, model.device):
        for length, members in sorted(by_length.items()):
            copies = length - 2 if judge == "masked" else 1
            size = max(1, BATCH_TOKENS[model.device.type] // (length * max(copies, 1)))
            for begin in range(0, len(members), size):
                some = members[begin : begin + size]
                rows = torch.tensor([ids[index] for index in some], device=model.device)
                found = _masked(model, rows, depth) if judge == "masked" else _not_replaced(model, rows, depth)
                scores[some] = found.double().cpu()
    return scores.tolist()


def _masked(model: "Model", rows: "Tensor", depth: int) -> "Tensor":
    """(N) sums over the text's tokens of rows (N, L), each masked in a copy of its row."""
    import torch

    number, length = rows.shape
    inner = length - 2
    assert model.tokenizer is not None and model.tokenizer.mask_id is not None
    begin = 0 if rows[0, -1] == model.tokenizer.cls_id else 1  # XLNet's special tokens are both at the end
    places = torch.arange(begin, begin + inner, device=rows.device)
    copies = rows[:, None, :].repeat(1, inner, 1)
    copies[:, places - begin, places] = model.tokenizer.mask_id
    if model.network.encoder.embeddings.mask is None:
        flat = torch.arange(number * inner, device=rows.device) * length + places.repeat(number)
        states = _states(model, copies.view(-1, length), depth)[flat]
    else:
        states = _query_states(model, copies.view(-1, length), places.repeat(number)[:, None], depth)
    logits = model.network.masked_lm_at(states).float()
    wanted = rows[:, begin : begin + inner].reshape(-1, 1)
    return (logits.gather(1, wanted).squeeze(1) - logits.logsumexp(-1)).view(number, inner).sum(-1)


def _not_replaced(model: "Model", rows: "Tensor", depth: int) -> "Tensor":
    """(N) sums of the logarithms of "not replaced" over the tokens between the first and the last."""
    import torch.nn.functional as F

    logits = model.network.heads["replaced"](_states(model, rows, depth)).float()
    return F.logsigmoid(-logits).view(rows.shape)[:, 1:-1].sum(-1)


def _states(model: "Model", rows: "Tensor", depth: int) -> "Tensor":
    """(N * L, H) states of rows (N, L)."""
    from litebert.nn.layout import Layout

    layout = Layout.of([rows.shape[1]] * rows.shape[0], rows.device)
    states: Tensor = model.network.encoder(rows.flatten(), layout, depth=depth)
    return states


def _query_states(model: "Model", rows: "Tensor", places: "Tensor", depth: int) -> "Tensor":
    """(N, H) states of the query stream of rows (N, L), each at its one place (N, 1)."""
    import torch

    from litebert.nn.layout import Layout

    layout = Layout.of([rows.shape[1]] * rows.shape[0], rows.device)
    ranks = torch.full_like(rows, -1).scatter(1, places, 0).flatten()
    states = model.network.encoder.two_streams(rows.flatten(), layout, ranks, places=places, depth=depth)[1]
    return states.squeeze(1)


# Similarity

Rated = list[tuple[str, str, float]]


def read_sts(folder: Path) -> dict[str, Rated]:
    """Pairs of sentences with the mean of people's ratings: STS12 to STS16 with all of a year's parts, STS-B's test."""
    found: dict[str, Rated] = {}
    for year in range(12, 17):
        rows: Rated = []
        for file in sorted((folder / f"STS{year}-en-test").glob("STS.input.*.txt")):
            ratings = file.with_name(file.name.replace(".input.", ".gs.")).read_text(encoding="utf-8").splitlines()
            for line, rating in zip(_lines(file), ratings, strict=False):
                if rating.strip():  # a part of the later years' pairs was never rated
                    left, right = line.split("\t")[:2]
                    rows.append((left, right, float(rating)))
        found[f"STS{year}"] = rows
    cells = [line.split("\t") for line in _lines(folder / "STSBenchmark" / "sts-test.csv")]
    found["STS-B"] = [(row[5], row[6], float(row[4])) for row in cells]
    if not all(found.values()):
        raise InputError(f"{folder} lacks some of STS12-en-test to STS16-en-test; name the folder that holds them")
    return found


def _lines(file: Path) -> list[str]:
    """Not ``splitlines``, which also parts at characters that are inside of sentences."""
    return file.read_text(encoding="utf-8").rstrip("\n").split("\n")


def sts_scores(model: "Model", sets: Mapping[str, Rated]) -> dict[str, float]:
    """Spearman's correlation of cosines with ratings, over all pairs of a set."""
    import numpy as np

    from litebert.tasks.metrics import spearman

    found = {}
    for name, rows in sets.items():
        left, right = mean_vectors(model, [row[0] for row in rows]), mean_vectors(model, [row[1] for row in rows])
        cosines = (left * right).sum(-1) / (np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1))
        found[name] = spearman([row[2] for row in rows], cosines.tolist())
    return found


def mean_vectors(model: "Model", texts: Sequence[str]) -> Any:
    """(texts, H) the mean of each text's states after all layers, its special tokens among them."""
    from litebert.train import precision

    kind, size = precision.training_precision(model.device, model.config.width), BATCH_TOKENS[model.device.type]
    with precision.cast(kind, model.device):
        return model.encode(texts, pooling="mean", normalize=False, progress=False, batch_tokens=size)


# Held-out text and fine-tuning


def held_out_scores(model: "Model", corpus: Path, depths: Sequence[int]) -> dict[int, Mapping[str, float]]:
    """Masked words and order on all held-out text, in inputs of 128 tokens."""
    from litebert.corpus.store import Store
    from litebert.pretraining.held_out import score_depths

    store = Store.open(corpus)
    tokens = store.split("held_out").num_tokens
    found = score_depths(model.network, store, depths, 128, "sop", tokens, model.device, lambda _: None)
    return {score.depth: score.figures for score in found}


def glue_scores(model: str, folder: Path, task: str, seeds: int, place: "Placement") -> Figures:
    """The scores of several seeds with the ``budget`` settings; no model is kept."""
    from litebert.cluster import HERE
    from litebert.tasks.finetune import finetune_seeds
    from litebert.tasks.prepare import FinetuneSettings
    from litebert.tasks.recipes import read_finetune_recipe
    from litebert.tasks.sources import read_task

    data = read_task(task, folder)
    # All machines of a cluster see the working folder.
    with tempfile.TemporaryDirectory(dir=None if place.on == HERE else Path.cwd()) as temporary:
        asked = FinetuneSettings(
            model=model,
            out=Path(temporary) / task,
            recipe=read_finetune_recipe("budget", data.name, data.kind, ()),
            device=place.device,
            watched=False,
        )
        summary, _ = finetune_seeds(asked, data, seeds, place)
    return {"metric": summary.metric, "median": summary.median, "scores": list(summary.scores)}
