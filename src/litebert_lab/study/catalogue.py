"""The studies: those of the ALBERT paper (section 4 and its appendix), scaled to a preset, and some of our own.

A study has rows, each a pretraining run (or another row's model, scored at a smaller depth), and findings, each a claim
about figures of rows. Sizes follow the preset as the paper's follow its own: embedding sizes are shares of the width,
depths are shares of the depth, widths are multiples. The published figures are averages over fine-tuned tasks after
125,000 steps; here every row has the same minutes and is judged by held-out masked words, so the order of rows
compares, not the figures. No torch here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from litebert.errors import InputError, nearest
from litebert.nn.config import EncoderConfig

STUDIES = (
    *("embedding", "sharing", "order", "depth", "width", "dropout", "time"),  # the paper's
    *("recipe", "elastic", "mining", "objectives", "attention"),
)

CHANCE = 0.5
UNEVEN = 0.02  # how much more than half of the pairs that are scored may have one answer; always giving it is no skill
NEAR_CHANCE = 0.05  # the paper's NSP model has 52.0% on SOP; five points above chance still count as chance
YES_OR_NO = ("yes", "no")
WITHIN = 0.02  # of the loss of the model that was trained at that depth


@dataclass(frozen=True)
class Row:
    """One line of a table of the paper, at the user's scale."""

    name: str  # of its folder
    label: str
    words: tuple[str, ...] = ()  # fields of the model and of the recipe that make this row
    paper: Mapping[str, str] = field(default_factory=dict)  # what the paper has in that line, by column
    start: str = ""  # the row whose model this one starts from
    place: float | None = None  # on the horizontal axis of the plot, where there is one
    line: str = ""  # which line of the plot it is on
    model: str = ""  # the row whose model this is, where it has none of its own
    depth: int | None = None  # layers after which the model is scored; None: all
    beside: str = ""  # the row that its loss is compared with in the table


@dataclass(frozen=True)
class Finding:
    """A claim of the paper as a number that is above zero where it holds: ``constant`` + the sum of weight x figure.

    ``needs`` are claims that must hold for this one to mean anything.
    """

    text: str
    weights: Mapping[str, float]  # by row
    metric: str = "mlm_loss"
    constant: float = 0.0
    paper: str = ""  # the paper's own figures for it
    whose: str = "paper"  # whose they are, if not the paper's
    needs: tuple["Finding", ...] = ()
    words: tuple[str, str] = ("reproduced", "not reproduced")  # where it holds, and where it does not


@dataclass(frozen=True)
class Study:
    """A table of the paper and what it found."""

    name: str
    about: str
    table: str  # which of the paper's it is; empty: none
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    metrics: tuple[str, ...] = ("mlm_loss", "mlm_accuracy", "sop_accuracy")
    recipe_words: tuple[str, ...] = ()  # fields of the recipe that every row of the study needs
    axis: str = ""  # of the plot; empty: bars
    ranked: bool = False  # the order of the rows is of interest
    baseline: str = ""  # the row that all others are compared with
    hides: bool = False  # whether every place to predict is hidden when rows are scored
    notes: tuple[str, ...] = ()

    @property
    def trained(self) -> tuple[Row, ...]:
        """The rows that are runs of their own."""
        return tuple(row for row in self.rows if not row.model)

    def row(self, name: str) -> Row:
        """The row of a name."""
        return next(row for row in self.rows if row.name == name)


def worse(text: str, worse_row: str, better_row: str, paper: str = "") -> Finding:
    """The claim that one row loses more than another."""
    return Finding(text, {worse_row: 1.0, better_row: -1.0}, paper=paper)


def above_chance(text: str, row: str, metric: str, paper: str = "") -> Finding:
    """The claim that a row answers a question of two answers better than by guessing."""
    return Finding(text, {row: 1.0}, metric, -CHANCE - UNEVEN, paper)


def study_of(name: str, encoder: EncoderConfig) -> Study:
    """A study for an encoder of this shape."""
    makers: dict[str, Callable[[EncoderConfig], Study]] = {
        "embedding": _embedding,
        "sharing": _sharing,
        "order": _order,
        "depth": _depth,
        "width": _width,
        "dropout": _dropout,
        "time": _time,
        "recipe": _recipe,
        "elastic": _elastic,
        "mining": _mining,
        "objectives": _objectives,
        "attention": _attention,
    }
    if name not in makers:
        raise InputError(f"there is no study '{name}'{nearest(name, STUDIES)}")
    return makers[name](encoder)


def _embedding(encoder: EncoderConfig) -> Study:
    published = {
        "none": (("87M", "81.3"), ("89M", "81.7"), ("93M", "81.8"), ("108M", "82.3")),
        "all": (("10M", "79.0"), ("12M", "80.1"), ("16M", "79.6"), ("31M", "79.8")),
    }
    sizes = [max(8, 8 * round(encoder.width * share / 8)) for share in (1 / 12, 1 / 6, 1 / 3, 1)]
    rows = []
    for share, lines in published.items():
        line = "not shared" if share == "none" else "all shared"
        for size, theirs, (parameters, average) in zip(sizes, (64, 128, 256, 768), lines, strict=True):
            paper = {"E": str(theirs), "parameters": parameters, "average": average}
            words = (f"embedding_width={size}", f"share={share}")
            rows.append(Row(f"{share}-e{size}", f"E {size}, {line}", words, paper, place=size, line=line))
    small, sixth, _, full = sizes
    findings = (
        worse(
            "Without sharing, embeddings as wide as the model are better than the smallest.",
            f"none-e{small}",
            f"none-e{full}",
            "81.3 at 64, 82.3 at 768",
        ),
        worse(
            "With sharing, embeddings of a sixth of the width are better than embeddings as wide as the model.",
            f"all-e{full}",
            f"all-e{sixth}",
            "80.1 at 128, 79.8 at 768",
        ),
        worse(
            "With sharing, a sixth of the width is better than a twelfth.",
            f"all-e{small}",
            f"all-e{sixth}",
            "79.0 at 64, 80.1 at 128",
        ),
    )
    about = "how wide token embeddings must be, with and without sharing"
    return Study("embedding", about, "sizes of embeddings (base)", tuple(rows), findings, axis="embedding width E")


def _sharing(_encoder: EncoderConfig) -> Study:
    published = {
        "none": ("89M", "81.7", "nothing shared"),
        "attention": ("64M", "81.7", "attention shared"),
        "ffn": ("38M", "80.2", "feed-forward shared"),
        "all": ("12M", "80.1", "all shared"),
    }
    rows = tuple(
        Row(share, label, (f"share={share}",), {"parameters": parameters, "average": average})
        for share, (parameters, average, label) in published.items()
    )
    findings = (
        worse("Sharing everything costs something.", "all", "none", "80.1 against 81.7"),
        worse("Sharing feed-forward costs more than sharing attention.", "ffn", "attention", "80.2 against 81.7"),
        Finding(
            "Nearly all of the cost is the feed-forward blocks': attention alone costs less than half as much.",
            {"ffn": 0.5, "none": 0.5, "attention": -1.0},
            paper="81.7 - 81.7 = 0.0 for attention, 81.7 - 80.2 = 1.5 for feed-forward",
            needs=(worse("Sharing feed-forward blocks costs something.", "ffn", "none"),),
        ),
    )
    about = "what sharing blocks over the layers costs"
    return Study("sharing", about, "sharing (base, E = 128)", rows, findings, ranked=True)


def _order(_encoder: EncoderConfig) -> Study:
    published = {
        "none": ("no order loss", "54.9", "52.4", "53.3", "79.0"),
        "nsp": ("NSP", "54.5", "90.5", "52.0", "79.2"),
        "sop": ("SOP", "54.0", "78.9", "86.5", "80.1"),
    }
    rows = tuple(
        Row(name, label, (f"order={name}",), {"MLM": words, "NSP": nsp, "SOP": sop, "average": average})
        for name, (label, words, nsp, sop, average) in published.items()
    )
    learnt_nsp = above_chance("A model trained on NSP learns NSP.", "nsp", "nsp_accuracy", "90.5%")
    learnt_sop = above_chance("A model trained on SOP learns SOP.", "sop", "sop_accuracy", "86.5%")
    at_chance = Finding(
        "A model trained on NSP is at chance on SOP (within 5 points).",
        {"nsp": -1.0},
        "sop_accuracy",
        CHANCE + NEAR_CHANCE,
        "52.0%",
        needs=(learnt_nsp,),
    )
    transfers = above_chance("A model trained on SOP is better than chance on NSP.", "sop", "nsp_accuracy", "78.9%")
    return Study(
        "order",
        "what a model learns from no order loss, NSP and SOP",
        "order losses (base)",
        rows,
        (learnt_nsp, learnt_sop, at_chance, replace(transfers, needs=(learnt_sop,))),
        metrics=("mlm_loss", "mlm_accuracy", "nsp_accuracy", "sop_accuracy"),
        notes=(
            "The head that a model was trained with is asked both questions; a model without one has no answer. Masked "
            "words are scored on inputs made as in each row's own training.",
        ),
    )


def _depth(encoder: EncoderConfig) -> Study:
    published = {1 / 24: "52.9", 1 / 8: "71.2", 1 / 4: "77.2", 1 / 2: "81.5", 1: "82.1", 2: "81.8"}
    layers = encoder.num_layers
    if layers < 4:
        raise InputError(f"the study of depth needs a model of 4 layers or more, not {layers}; choose another --preset")
    rows: dict[int, Row] = {}
    for share, average in published.items():
        depth = max(1, round(share * layers))
        paper = {"layers": str(round(24 * share)), "average": average}
        start = f"depth-{max(rows)}" if rows else ""
        row = Row(f"depth-{depth}", _layers(depth), (f"num_layers={depth}",), paper, start, place=depth)
        rows.setdefault(depth, row)
    one, half, full, double = (f"depth-{depth}" for depth in (1, round(layers / 2), layers, 2 * layers))
    findings = (
        worse("Deeper is better: all layers against one.", one, full, "52.9 at 1, 82.1 at 24"),
        Finding(
            "The second half of the layers gives less than the first half.",
            {one: 1.0, half: -2.0, full: 1.0},
            paper="52.9 to 81.5 up to 12 layers, 81.5 to 82.1 from there to 24",
        ),
        worse("Twice as many layers are worse again.", double, full, "82.1, then 81.8"),
    )
    return Study(
        "depth",
        "what depth gives, each model starting from the next shallower one",
        "depth (large: all = 24 layers)",
        tuple(rows.values()),
        findings,
        recipe_words=("growth.depths=[]", "elastic=false"),
        axis="layers",
        notes=("Deeper rows also had the minutes of those they started from, as in the paper.",),
    )


def _width(encoder: EncoderConfig) -> Study:
    published = {1: "71.2", 2: "74.6", 4: "76.3", 6: "74.0"}
    layers, rows = min(3, encoder.num_layers), []
    for times, average in published.items():
        width, paper = times * encoder.width, {"width": f"{1024 * times:,}", "average": average}
        words = _wider(encoder, times, layers)
        rows.append(Row(f"width-{width}", f"width {width:,}", words, paper, place=width))
    one, two, four, six = (row.name for row in rows)
    findings = (
        worse("Twice as wide is better.", one, two, "71.2, then 74.6"),
        worse("Four times as wide is better still.", two, four, "74.6, then 76.3"),
        worse("Six times as wide is worse again.", six, four, "76.3, then 74.0"),
    )
    return Study(
        "width",
        "what width gives to three layers",
        "width (3 layers: once = 1,024)",
        tuple(rows),
        findings,
        recipe_words=("growth.depths=[]",),
        axis="width",
    )


def _wider(encoder: EncoderConfig, times: int, layers: int) -> tuple[str, ...]:
    """The fields of a model that is several times as wide."""
    sizes = {name: times * getattr(encoder, name) for name in ("width", "num_heads", "feed_forward_width")}
    return (*(f"{name}={size}" for name, size in sizes.items()), f"num_layers={layers}")


def _dropout(_encoder: EncoderConfig) -> Study:
    rows = (
        Row("with", "dropout 0.1", ("dropout=0.1", "attention_dropout=0.1"), {"average": "90.4"}),
        Row("without", "no dropout", ("dropout=0.0", "attention_dropout=0.0"), {"average": "90.7"}),
    )
    findings = (worse("Pretraining is better without dropout.", "with", "without", "90.4 with, 90.7 without"),)
    return Study("dropout", "what dropout does to pretraining", "dropout (xxlarge after 1M steps)", rows, findings)


def _time(encoder: EncoderConfig) -> Study:
    bert = {"parameters": "334M (BERT-large, 34 h)", "average": "87.2"}
    wide = {"parameters": "235M (ALBERT-xxlarge, 32 h)", "average": "88.7"}
    words = _wider(encoder, 4, max(1, encoder.num_layers // 2))
    rows = (
        Row("bert", "BERT", ("share=none", f"embedding_width={encoder.width}"), bert),
        Row("wide", "ALBERT, 4 x as wide, half as deep", words, wide),
        Row("same", "ALBERT of BERT's shape"),
    )
    findings = (worse("In the same time a wide ALBERT is better than BERT.", "bert", "wide", "87.2 against 88.7"),)
    table = "the same training time (BERT-large and ALBERT-xxlarge)"
    return Study("time", "BERT and ALBERT with the same minutes", table, rows, findings, ranked=True)


def _recipe(_encoder: EncoderConfig) -> Study:
    """The budget recipe, then without each of its ingredients (docs/recipe.md), then without any.

    What stands in the place of the paper's figures are those of the pilots that the recipe was found with, losses after
    twenty seconds with and without the ingredient (docs/LOG.md); nothing is judged by them.
    """
    taken = yaml.safe_load(Path(__file__).with_name("ingredients.yaml").read_text(encoding="utf-8"))
    everything = {
        "name": "plain",
        "claim": "The recipe as a whole helps.",
        "without": "none of it: as others do",
        "words": [word for each in taken for word in each["words"]],
        "pilot": "3.93, without 7.00",
    }
    rows, findings = [Row("whole", "the whole recipe")], []
    for each in (*taken, everything):
        name, claim, pilot = each["name"], each["claim"], each["pilot"]
        rows.append(Row(name, each["without"], tuple(each["words"])))
        metric = each.get("metric", "mlm_loss")  # what the ingredient is there for
        if metric == "mlm_loss":
            findings.append(replace(worse(claim, name, "whole", pilot), whose="pilots"))
        else:
            learnt = above_chance("The whole recipe learns it.", "whole", metric)
            weights = {"whole": 1.0, name: -1.0}
            findings.append(Finding(claim, weights, metric, paper=pilot, whose="pilots", needs=(learnt,)))
    about = "what carries the budget recipe: each ingredient taken away once"
    return Study("recipe", about, "", tuple(rows), tuple(findings), ranked=True)


def _elastic(encoder: EncoderConfig) -> Study:
    """A quarter, half, three quarters and all of the layers, trained apart and as one elastic model.

    The question is what the convenience costs: a model trained for one depth has all of the run for it.
    """
    from litebert.pretraining.elastic import quarters

    layers = encoder.num_layers
    if layers < 2:
        raise InputError("the study of elastic depth needs a model of 2 layers or more; choose another --preset")
    rows, findings = [], []
    for depth in quarters(layers):
        whole, apart = depth == layers, f"depth-{depth}"  # the elastic model at full depth is the run
        words = (f"num_layers={depth}", "elastic=false")
        rows.append(Row(apart, f"{_layers(depth)}, trained so", words, place=depth, line="trained at that depth"))
        elastic = Row(
            "elastic" if whole else f"elastic-{depth}",
            f"elastic, {'all' if whole else 'first'} {_layers(depth)}",
            ("elastic=true",),
            place=depth,
            line="one elastic model",
            model="" if whole else "elastic",
            depth=None if whole else depth,
            beside=apart,
        )
        rows.append(elastic)
        text = f"At {_layers(depth)} the elastic model loses at most {WITHIN:.0%} more than one trained so."
        words = (f"within {WITHIN:.0%}", f"not within {WITHIN:.0%}")
        findings.append(Finding(text, {apart: 1 + WITHIN, elastic.name: -1.0}, words=words))
    return Study(
        "elastic",
        "one elastic model at several depths, beside models trained at each",
        "",
        tuple(rows),
        tuple(findings),
        recipe_words=("share=all",),
        axis="layers",
        notes=(
            "With --budget all rows have the same minutes, in which a shallow model takes more steps than a deep one. "
            "With --flops it is the same arithmetic. With --steps all take as many steps, which cost a shallow model "
            "less time.",
            "Where the recipe lets depth grow it does so in every row, in shares of the row's own layers.",
        ),
    )


def _mining(_encoder: EncoderConfig) -> Study:
    """Plain masked LM, and what is chosen of more candidates, the arithmetic of the scoring pass included."""

    def mined(name: str, label: str, kind: str, by: str, draw: str) -> Row:
        discounts = str(by == "repeats").lower()
        fields = {"kind": kind, "by": by, "draw": draw, "discount_repeats": discounts}
        return Row(name, label, tuple(f"select.{field}={value}" for field, value in fields.items()))

    rows = (
        Row("plain", "plain", ("select.kind=none",)),
        mined("tokens-hardest", "hardest words", "hard-tokens", "loss", "hardest"),
        mined("tokens-weighted", "hard words, weighted", "hard-tokens", "loss", "weighted"),
        mined("rows-hardest", "hardest inputs", "hard-rows", "loss", "hardest"),
        mined("tokens-rare", "rare words, weighted", "hard-tokens", "frequency", "weighted"),
        mined("rows-new", "inputs that repeat less", "hard-rows", "repeats", "weighted"),
    )
    about = "words and inputs chosen by how much there is to learn from them"
    return _compared("mining", about, rows, ("objective=masked", "elastic=false"))


def _objectives(encoder: EncoderConfig) -> Study:
    """What to predict; permutation needs relative positions, so that its model is the XLNet of the same shape."""
    xlnet = {"family": "xlnet", "share": encoder.share, "embedding_width": encoder.width, "activation_dropout": "0.0"}
    rows = (
        Row("masked", "masked words", ("objective=masked",)),
        Row("replaced", "replaced tokens", ("objective=replaced", "generator_depth=0.33")),
        Row("all-tokens", "all tokens", ("objective=all-tokens", "generator_depth=0.33", "replaced_weight=10")),
        Row(
            "permutation",
            "permutation (XLNet)",
            ("objective=permutation", *(f"{name}={value}" for name, value in xlnet.items())),
        ),
    )
    about = "masked words, replaced tokens, all tokens and permutation"
    notes = (
        "Scored with every place that is to be predicted hidden, so that all rows have the same context: a permutation "
        "language model cannot be shown a wrong token or the right one.",
        "An XLNet has no embeddings of fewer dimensions than its layers, and so more parameters.",
    )
    study = _compared("objectives", about, rows, ("elastic=false", "select.kind=none"), notes)
    return replace(study, hides=True)


def _attention(encoder: EncoderConfig) -> Study:
    """What tokens see of long inputs, at the arithmetic that windows save."""
    length = encoder.max_positions or 512
    window = max(8, length // 8)
    words = {
        "full": "full",
        "local": f"local({window})",
        "block": f"block({2 * window})",
        "local-global": f"local({window})+global",
    }
    rows = tuple(Row(name, word, (f"attention={word}",)) for name, word in words.items())
    about = f"what tokens see of inputs of {length} tokens"
    return _compared("attention", about, rows, (f"batches.lengths=[[0,{length}]]",))


def _compared(
    name: str, about: str, rows: tuple[Row, ...], recipe_words: tuple[str, ...], notes: tuple[str, ...] = ()
) -> Study:
    """A study of our own, in which every row is compared with the first."""
    first = rows[0]
    findings = tuple(
        replace(worse(f"{row.label} instead of {first.label}: a lower loss.", first.name, row.name), words=YES_OR_NO)
        for row in rows[1:]
    )
    return Study(
        name, about, "", rows, findings, recipe_words=recipe_words, ranked=True, notes=notes, baseline=first.name
    )


def with_measures(study: Study, metrics: Mapping[str, str]) -> Study:
    """The study with further metrics, by what they are called, and a finding on each for every row of a comparison."""
    first = study.row(study.baseline) if study.baseline else None
    findings = tuple(
        Finding(f"{row.label} instead of {first.label}: better at {called}.", weights, metric, words=YES_OR_NO)
        for metric, called in metrics.items()
        for row in study.rows
        if first and row is not first
        for weights in [{row.name: 1.0, first.name: -1.0}]
    )
    return replace(study, metrics=(*study.metrics, *metrics), findings=(*study.findings, *findings))


def _layers(depth: int) -> str:
    return f"{depth} layer{'s' if depth > 1 else ''}"
