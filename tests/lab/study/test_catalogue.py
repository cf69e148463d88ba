"""Every study is the paper's at the paper's size, and a real one at any other."""

import re

import pytest

from litebert.errors import InputError
from litebert.nn.config import preset_config
from litebert.planning.count import count_parameters
from litebert.pretraining.recipe import RECIPE_FIELDS, read_recipe
from litebert_lab.study.catalogue import STUDIES, WITHIN, Study, study_of, with_measures

BASE = preset_config("albert-base")
OUR_OWN = ("elastic", "mining", "objectives", "attention")  # with nobody else's figures beside them


def encoder_words(study: Study, row) -> list[str]:
    return [word for word in (*study.recipe_words, *row.words) if word.partition("=")[0] not in RECIPE_FIELDS]


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("preset", ["albert-tiny", "albert-small", "albert-base", "albert-large"])
def test_rows_are_models_that_can_be_built_and_findings_are_about_rows(name, preset):
    study = study_of(name, preset_config(preset))
    names = [row.name for row in study.rows]
    assert len(set(names)) == len(names) > 1 and study.findings
    for row in study.rows:
        preset_config(preset, encoder_words(study, row))
        recipe = [word for word in (*study.recipe_words, *row.words) if word.partition("=")[0] in RECIPE_FIELDS]
        read_recipe("budget", recipe)
        assert not row.start or names.index(row.start) < names.index(row.name)
    for finding in study.findings:
        assert set(finding.weights) <= set(names) and (finding.paper or name in OUR_OWN)
        if finding.metric == "mlm_loss":  # a difference: the level itself proves nothing
            allowed = WITHIN if name == "elastic" else 0.0
            assert sum(finding.weights.values()) == pytest.approx(allowed)


@pytest.mark.parametrize("name", ["embedding", "sharing"])
def test_sizes_at_the_paper_s_own_preset_are_the_paper_s(name):
    study = study_of(name, BASE)
    for row in study.rows:
        counted = count_parameters(preset_config("albert-base", encoder_words(study, row))).bare
        published = float(row.paper["parameters"].rstrip("M"))
        assert abs(counted / 1e6 - published) < 1.2, row.label  # as published, to the million or so


def test_embedding_sizes_depths_and_widths_follow_the_preset():
    assert [row.paper["E"] for row in study_of("embedding", BASE).rows] == ["64", "128", "256", "768"] * 2
    assert [row.place for row in study_of("embedding", BASE).rows] == [64, 128, 256, 768] * 2
    large = preset_config("albert-large")
    assert [row.place for row in study_of("depth", large).rows] == [1, 3, 6, 12, 24, 48]
    assert [row.place for row in study_of("width", large).rows] == [1024, 2048, 4096, 6144]
    assert [row.place for row in study_of("depth", preset_config("albert-tiny")).rows] == [1, 2, 4, 8]


def test_the_elastic_study_trains_quarters_apart_and_one_model_that_is_scored_at_each():
    study = study_of("elastic", BASE)
    assert [row.name for row in study.trained] == ["depth-3", "depth-6", "depth-9", "depth-12", "elastic"]
    compared = {row.beside: row for row in study.rows if row.beside}
    assert {beside: row.depth for beside, row in compared.items()} == {
        "depth-3": 3,
        "depth-6": 6,
        "depth-9": 9,
        "depth-12": None,
    }
    assert {row.model or row.name for row in compared.values()} == {"elastic"}
    for finding, (beside, row) in zip(study.findings, compared.items(), strict=True):
        assert value(finding, {beside: 3.0, row.name: 3.05}) > 0 > value(finding, {beside: 3.0, row.name: 3.07})
    shallow = study_of("elastic", preset_config("albert-tiny", ("num_layers=2",)))
    assert [row.name for row in shallow.trained] == ["depth-1", "depth-2", "elastic"]


def value(finding, figures: dict[str, float]) -> float:
    return finding.constant + sum(weight * figures[row] for row, weight in finding.weights.items())


@pytest.mark.parametrize("name", ["embedding", "sharing", "depth", "width", "dropout", "time"])
def test_the_paper_s_own_figures_reproduce_every_finding(name):
    """A higher average stands for a lower loss: each claim must be above zero for the paper's own numbers."""
    preset = "albert-large" if name in ("depth", "width") else "albert-base"
    study = study_of(name, preset_config(preset))
    losses = {row.name: -float(row.paper["average"]) for row in study.rows if "average" in row.paper}
    for finding in study.findings:
        assert value(finding, losses) > 0, finding.text
        assert value(finding, {row: -loss for row, loss in losses.items()}) < 0, finding.text


def test_the_paper_s_own_accuracies_reproduce_the_signature_of_the_order_loss():
    study = study_of("order", BASE)
    for finding in study.findings:
        kind = finding.metric.removesuffix("_accuracy").upper()
        figures = {row.name: float(re.sub("%", "", row.paper[kind])) / 100 for row in study.rows}
        assert value(finding, figures) > 0, finding.text
    at_chance = study.findings[2]
    assert value(at_chance, {"nsp": 0.60}) < 0 < value(at_chance, {"nsp": 0.50})


def test_what_is_refused():
    with pytest.raises(InputError, match=r"there is no study 'sharin'.*sharing"):
        study_of("sharin", BASE)
    with pytest.raises(InputError, match="needs a model of 2 layers or more"):
        study_of("elastic", preset_config("albert-tiny", ("num_layers=1",)))
    with pytest.raises(InputError, match="needs a model of 4 layers or more"):
        study_of("depth", preset_config("albert-tiny", ("num_layers=2",)))


def test_our_own_comparisons_have_a_row_that_all_others_are_compared_with():
    for name in ("mining", "objectives", "attention"):
        study = with_measures(study_of(name, BASE), {"blimp_accuracy": "BLiMP"})
        first = study.rows[0].name
        assert study.baseline == first and study.metrics[-1] == "blimp_accuracy"
        for metric, better in (("mlm_loss", -1.0), ("blimp_accuracy", 1.0)):
            found = [finding for finding in study.findings if finding.metric == metric]
            assert [set(finding.weights) for finding in found] == [{first, row.name} for row in study.rows[1:]]
            for finding, row in zip(found, study.rows[1:], strict=True):
                assert value(finding, {first: 3.0, row.name: 3.0 + better}) > 0, finding.text
    assert not with_measures(study_of("sharing", BASE), {"blimp_accuracy": "BLiMP"}).findings[3:]


def test_a_permutation_row_is_an_xlnet_of_the_same_shape():
    study = study_of("objectives", preset_config("albert-small"))
    row = study.row("permutation")
    ours, plain = preset_config("albert-small", encoder_words(study, row)), preset_config("albert-small")
    assert (ours.family, ours.positions) == ("xlnet", "relative") and ours.plan == plain.plan
    assert (ours.width, ours.num_heads, ours.dropout) == (plain.width, plain.num_heads, plain.activation_dropout)
