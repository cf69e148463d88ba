"""A study of our own: one elastic model at several depths beside models that were trained at those depths.

The question is what the convenience costs: a model trained for one depth has all of the run for it.
"""

from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.pretraining.elastic import quarters
from litebert_lab.study.plans import Finding, Row, Study

WITHIN = 0.02  # of the loss of the model that was trained at that depth
ELASTIC = "elastic"
ON = "elastic=true"


def elastic_study(encoder: EncoderConfig) -> Study:
    """A quarter, half, three quarters and all of the layers, trained apart and as one elastic model."""
    layers = encoder.num_layers
    if layers < 2:
        raise InputError("the study of elastic depth needs a model of 2 layers or more; choose another --preset")
    depths = quarters(layers)
    return Study(
        name="elastic",
        about="one elastic model at several depths, beside models trained at each",
        table="",
        rows=tuple(row for depth in depths for row in (_apart(depth), _elastic(depth, layers))),
        findings=tuple(_finding(depth, _elastic(depth, layers)) for depth in depths),
        recipe_words=("share=all",),
        axis="layers",
        notes=(
            "With --budget all rows have the same minutes, in which a shallow model takes more steps than a deep one. "
            "With --flops it is the same arithmetic. With --steps all take as many steps, which cost a shallow model "
            "less time.",
            "Where the recipe lets depth grow it does so in every row, in shares of the row's own layers.",
        ),
    )


def _apart(depth: int) -> Row:
    return Row(
        name=f"depth-{depth}",
        label=f"{_layers(depth)}, trained so",
        words=(f"num_layers={depth}", "elastic=false"),
        place=depth,
        line="trained at that depth",
    )


def _elastic(depth: int, layers: int) -> Row:
    """The elastic model at a depth; that at full depth is the run."""
    whole = depth == layers
    return Row(
        name=ELASTIC if whole else f"{ELASTIC}-{depth}",
        label=f"elastic, {'all' if whole else 'first'} {_layers(depth)}",
        words=(ON,),
        place=depth,
        line="one elastic model",
        model="" if whole else ELASTIC,
        depth=None if whole else depth,
        beside=f"depth-{depth}",
    )


def _finding(depth: int, row: Row) -> Finding:
    return Finding(
        text=f"At {_layers(depth)} the elastic model loses at most {WITHIN:.0%} more than one trained so.",
        weights={row.beside: 1 + WITHIN, row.name: -1.0},
        words=(f"within {WITHIN:.0%}", f"not within {WITHIN:.0%}"),
    )


def _layers(depth: int) -> str:
    return f"{depth} layer{'s' if depth > 1 else ''}"
