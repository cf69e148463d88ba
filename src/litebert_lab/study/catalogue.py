"""The studies of the ALBERT paper (section 4 and its appendix), scaled to a preset of the user's choice.

Sizes follow the preset as the paper's follow its own: embedding sizes are shares of the width, depths are shares of the
depth, widths are multiples. The published figures are averages over fine-tuned tasks after 125,000 steps; here every
row has the same minutes and is judged by held-out masked words, so the order of rows compares, not the figures.
"""

from collections.abc import Callable
from dataclasses import replace

from litebert.errors import InputError, nearest
from litebert.nn.config import EncoderConfig
from litebert_lab.study.elastic import elastic_study
from litebert_lab.study.ingredients import recipe_study
from litebert_lab.study.plans import CHANCE, STUDIES, Finding, Row, Study, above_chance, worse

NEAR_CHANCE = 0.05  # the paper's NSP model has 52.0% on SOP; five points above chance still count as chance


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
        "recipe": recipe_study,
        "elastic": elastic_study,
    }
    if name not in makers:
        raise InputError(f"there is no study '{name}'{nearest(name, STUDIES)}")
    return makers[name](encoder)


def _paper(average: str, parameters: str = "") -> dict[str, str]:
    return {**({"parameters": parameters} if parameters else {}), "average": average}


def _embedding(encoder: EncoderConfig) -> Study:
    published = {
        "none": (("87M", "81.3"), ("89M", "81.7"), ("93M", "81.8"), ("108M", "82.3")),
        "all": (("10M", "79.0"), ("12M", "80.1"), ("16M", "79.6"), ("31M", "79.8")),
    }
    sizes = [_multiple_of_8(encoder.width * share) for share in (1 / 12, 1 / 6, 1 / 3, 1)]
    rows = [
        Row(
            name=f"{share}-e{size}",
            label=f"E {size}, {'not shared' if share == 'none' else 'all shared'}",
            words=(f"embedding_width={size}", f"share={share}"),
            paper={"E": str(theirs), **_paper(average, parameters)},
            place=size,
            line="not shared" if share == "none" else "all shared",
        )
        for share in ("none", "all")
        for size, theirs, (parameters, average) in zip(sizes, (64, 128, 256, 768), published[share], strict=True)
    ]
    small, sixth, _, full = sizes
    findings = (
        worse(
            "Without sharing, embeddings as wide as the model are better than the smallest.",
            f"none-e{small}",
            f"none-e{full}",
            paper="81.3 at 64, 82.3 at 768",
        ),
        worse(
            "With sharing, embeddings of a sixth of the width are better than embeddings as wide as the model.",
            f"all-e{full}",
            f"all-e{sixth}",
            paper="80.1 at 128, 79.8 at 768",
        ),
        worse(
            "With sharing, a sixth of the width is better than a twelfth.",
            f"all-e{small}",
            f"all-e{sixth}",
            paper="79.0 at 64, 80.1 at 128",
        ),
    )
    about = "how wide token embeddings must be, with and without sharing"
    return Study(
        name="embedding",
        about=about,
        table="sizes of embeddings (base)",
        rows=tuple(rows),
        findings=findings,
        axis="embedding width E",
    )


def _sharing(_encoder: EncoderConfig) -> Study:
    published = {
        "none": ("89M", "81.7", "nothing shared"),
        "attention": ("64M", "81.7", "attention shared"),
        "ffn": ("38M", "80.2", "feed-forward shared"),
        "all": ("12M", "80.1", "all shared"),
    }
    rows = tuple(
        Row(name=share, label=label, words=(f"share={share}",), paper=_paper(average, parameters))
        for share, (parameters, average, label) in published.items()
    )
    findings = (
        worse("Sharing everything costs something.", "all", "none", paper="80.1 against 81.7"),
        worse(
            "Sharing feed-forward blocks costs more than sharing attention.",
            "ffn",
            "attention",
            paper="80.2 against 81.7",
        ),
        Finding(
            text="Nearly all of the cost is the feed-forward blocks': attention alone costs less than half as much.",
            weights={"ffn": 0.5, "none": 0.5, "attention": -1.0},
            paper="81.7 - 81.7 = 0.0 for attention, 81.7 - 80.2 = 1.5 for feed-forward",
            needs=(worse("Sharing feed-forward blocks costs something.", "ffn", "none"),),
        ),
    )
    return Study(
        name="sharing",
        about="what sharing blocks over the layers costs",
        table="sharing (base, E = 128)",
        rows=rows,
        findings=findings,
        ranked=True,
    )


def _order(_encoder: EncoderConfig) -> Study:
    published = {
        "none": ("no order loss", "54.9", "52.4", "53.3", "79.0"),
        "nsp": ("NSP", "54.5", "90.5", "52.0", "79.2"),
        "sop": ("SOP", "54.0", "78.9", "86.5", "80.1"),
    }
    rows = tuple(
        Row(
            name=name,
            label=label,
            words=(f"order={name}",),
            paper={"MLM": words, "NSP": nsp, "SOP": sop, "average": average},
        )
        for name, (label, words, nsp, sop, average) in published.items()
    )
    learnt_nsp = above_chance("A model trained on NSP learns NSP.", "nsp", "nsp_accuracy", paper="90.5%")
    learnt_sop = above_chance("A model trained on SOP learns SOP.", "sop", "sop_accuracy", paper="86.5%")
    at_chance = Finding(
        text="A model trained on NSP is at chance on SOP (within 5 points).",
        weights={"nsp": -1.0},
        metric="sop_accuracy",
        constant=CHANCE + NEAR_CHANCE,
        paper="52.0%",
        needs=(learnt_nsp,),
    )
    transfers = above_chance(
        "A model trained on SOP is better than chance on NSP.", "sop", "nsp_accuracy", paper="78.9%"
    )
    return Study(
        name="order",
        about="what a model learns from no order loss, NSP and SOP",
        table="order losses (base)",
        rows=rows,
        findings=(learnt_nsp, learnt_sop, at_chance, replace(transfers, needs=(learnt_sop,))),
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
        row = Row(
            name=f"depth-{depth}",
            label=f"{depth} layer{'s' if depth > 1 else ''}",
            words=(f"num_layers={depth}",),
            paper={"layers": str(round(24 * share)), **_paper(average)},
            start=f"depth-{max(rows)}" if rows else "",
            place=depth,
        )
        rows.setdefault(depth, row)
    one, half, full, double = (f"depth-{depth}" for depth in (1, round(layers / 2), layers, 2 * layers))
    findings = (
        worse("Deeper is better: all layers against one.", one, full, paper="52.9 at 1, 82.1 at 24"),
        Finding(
            text="The second half of the layers gives less than the first half.",
            weights={one: 1.0, half: -2.0, full: 1.0},
            paper="52.9 to 81.5 up to 12 layers, 81.5 to 82.1 from there to 24",
        ),
        worse("Twice as many layers are worse again.", double, full, paper="82.1, then 81.8"),
    )
    return Study(
        name="depth",
        about="what depth gives, each model starting from the next shallower one",
        table="depth (large: all = 24 layers)",
        rows=tuple(rows.values()),
        findings=findings,
        recipe_words=("growth.depths=[]", "elastic=false"),
        axis="layers",
        notes=("Deeper rows also had the minutes of those they started from, as in the paper.",),
    )


def _width(encoder: EncoderConfig) -> Study:
    published = {1: "71.2", 2: "74.6", 4: "76.3", 6: "74.0"}
    layers = min(3, encoder.num_layers)
    rows = tuple(
        Row(
            name=f"width-{times * encoder.width}",
            label=f"width {times * encoder.width:,}",
            words=(
                f"width={times * encoder.width}",
                f"num_heads={times * encoder.num_heads}",
                f"feed_forward_width={times * encoder.feed_forward_width}",
                f"num_layers={layers}",
            ),
            paper={"width": f"{1024 * times:,}", **_paper(average)},
            place=times * encoder.width,
        )
        for times, average in published.items()
    )
    one, two, four, six = (row.name for row in rows)
    findings = (
        worse("Twice as wide is better.", one, two, paper="71.2, then 74.6"),
        worse("Four times as wide is better still.", two, four, paper="74.6, then 76.3"),
        worse("Six times as wide is worse again.", six, four, paper="76.3, then 74.0"),
    )
    return Study(
        name="width",
        about="what width gives to three layers",
        table="width (3 layers: once = 1,024)",
        rows=rows,
        findings=findings,
        recipe_words=("growth.depths=[]",),
        axis="width",
    )


def _dropout(_encoder: EncoderConfig) -> Study:
    rows = (
        Row(name="with", label="dropout 0.1", words=("dropout=0.1", "attention_dropout=0.1"), paper=_paper("90.4")),
        Row(name="without", label="no dropout", words=("dropout=0.0", "attention_dropout=0.0"), paper=_paper("90.7")),
    )
    findings = (worse("Pretraining is better without dropout.", "with", "without", paper="90.4 with, 90.7 without"),)
    return Study(
        name="dropout",
        about="what dropout does to pretraining",
        table="dropout (xxlarge after 1M steps)",
        rows=rows,
        findings=findings,
    )


def _time(encoder: EncoderConfig) -> Study:
    width, heads, inner = encoder.width, encoder.num_heads, encoder.feed_forward_width
    layers = max(1, encoder.num_layers // 2)
    rows = (
        Row(
            name="bert",
            label="BERT",
            words=("share=none", f"embedding_width={width}"),
            paper=_paper("87.2", "334M (BERT-large, 34 h)"),
        ),
        Row(
            name="wide",
            label="ALBERT, 4 x as wide, half as deep",
            words=(
                f"width={4 * width}",
                f"num_heads={4 * heads}",
                f"feed_forward_width={4 * inner}",
                f"num_layers={layers}",
            ),
            paper=_paper("88.7", "235M (ALBERT-xxlarge, 32 h)"),
        ),
        Row(name="same", label="ALBERT of BERT's shape", words=()),
    )
    findings = (
        worse("In the same time a wide ALBERT is better than BERT.", "bert", "wide", paper="87.2 against 88.7"),
    )
    return Study(
        name="time",
        about="BERT and ALBERT with the same minutes",
        table="the same training time (BERT-large and ALBERT-xxlarge)",
        rows=rows,
        findings=findings,
        ranked=True,
    )


def _multiple_of_8(size: float) -> int:
    return max(8, 8 * round(size / 8))
