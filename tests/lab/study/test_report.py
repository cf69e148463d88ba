"""From scores to a report: figures, verdicts and what keeps a verdict open."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from litebert.nn.config import preset_config
from litebert.report import to_html, to_markdown
from litebert_lab.study.catalogue import study_of
from litebert_lab.study.report import as_json, outcome_of, study_report, table_of
from litebert_lab.study.run import Done, RowScores, StudySettings

UNIGRAM = 7.0


def table(loss: float, **right: float) -> dict[str, list[list[float]]]:
    """Sums over ten batches of a hundred words and fifty pairs."""
    draw = np.random.default_rng(0)
    wobble = draw.normal(0, 0.01, 10)
    found = {"mlm": [[100 * (loss + each), 30.0, 100.0] for each in wobble]}
    return found | {kind: [[1.0, 50 * (share + each), 50.0] for each in wobble] for kind, share in right.items()}


def done(name: str, tables: dict[str, dict | None], seeds: int = 1) -> Done:
    study = study_of(name, preset_config("albert-tiny"))
    settings = StudySettings(
        study=name, preset="albert-tiny", corpus=Path("store"), out=Path("none"), budget="5m", steps=None, seeds=seeds
    )
    scores = {
        row: {} if sums is None else {seed: RowScores("finished", sums, {"step": 100}) for seed in range(seeds)}
        for row, sums in tables.items()
    }
    return Done(study, settings, {row.name: 10**6 for row in study.rows}, scores, "print", UNIGRAM, ())


def verdicts(found: Done) -> list[str]:
    return [judged.verdict for _, judged in outcome_of(found).verdicts]


SHARING = {"none": 3.0, "attention": 3.05, "ffn": 3.5, "all": 3.6}


def test_losses_in_the_paper_s_order_reproduce_it_and_in_the_opposite_do_not():
    assert verdicts(done("sharing", {row: table(loss) for row, loss in SHARING.items()})) == ["reproduced"] * 3
    opposite = {row: table(6 - loss) for row, loss in SHARING.items()}
    assert verdicts(done("sharing", opposite)) == ["not reproduced"] * 2 + ["too small to tell"]  # nothing to share out


def test_rows_that_have_not_left_word_frequencies_prove_nothing():
    stuck = {row: table(3.8 + loss) for row, loss in SHARING.items()}
    report = outcome_of(done("sharing", stuck))
    assert verdicts(done("sharing", stuck)) == ["too small to tell"] * 3
    assert all("still at the level of word frequencies" in line.remark for line in report.lines)
    one_learnt = {**stuck, "none": table(3.0)}
    assert verdicts(done("sharing", one_learnt))[0] == "reproduced"  # all against none: that one has learnt


def test_the_signature_of_the_order_loss_needs_models_that_learnt():
    tables = {"none": table(3.0), "nsp": table(3.0, nsp=0.9, sop=0.5), "sop": table(3.0, nsp=0.7, sop=0.85)}
    assert verdicts(done("order", tables)) == ["reproduced"] * 4
    constant = {**tables, "sop": table(3.0, nsp=0.481, sop=0.519)}  # always the same answer: more often right, by luck
    assert verdicts(done("order", constant))[1] == "too small to tell"
    ignorant = {**tables, "nsp": table(3.0, nsp=0.5, sop=0.5)}
    report = outcome_of(done("order", ignorant))
    assert [found.verdict for _, found in report.verdicts][2] == "too small to tell"
    assert "means nothing until this holds" in report.verdicts[2][1].why
    knows = {**tables, "nsp": table(3.0, nsp=0.9, sop=0.7)}
    assert verdicts(done("order", knows))[2] == "not reproduced"
    found = done("order", tables)
    text = to_html(study_report(found, outcome_of(found)))
    assert re.search(r"here: \+(37|38)\.\d ± \d\.\d points in favour", text)  # NSP: 90%, against 52


def test_a_row_that_is_missing_leaves_its_findings_open():
    tables = {row: table(loss) for row, loss in SHARING.items()} | {"all": None}
    found = done("sharing", tables)
    assert verdicts(found)[0] == "too small to tell" and not found.complete
    assert "same command resumes" in to_markdown(study_report(found, outcome_of(found)))


def test_all_forms_say_the_same():
    found = done("sharing", {row: table(loss) for row, loss in SHARING.items()}, seeds=2)
    report = outcome_of(found)
    told = json.loads(json.dumps(as_json(found, report)))
    text, page = (form(study_report(found, report)) for form in (to_markdown, to_html))
    assert told["rows"][2]["figures"]["mlm_loss"]["value"] == pytest.approx(3.5, abs=0.02)
    assert "3.50" in text and "80.2" in text and "3.50" in page and "80.2" in page
    assert text.count("reproduced: ") == 3 == page.count(">reproduced<")
    assert told["findings"][0]["interval"] > 0 and told["rows"][0]["seeds"] == 2


def test_rows_are_ranked_and_what_is_too_close_is_said_to_be():
    found = done("sharing", {row: table(loss) for row, loss in SHARING.items()})
    assert outcome_of(found).ranking == "nothing shared < attention shared < feed-forward shared < all shared"
    close = done("sharing", {row: table(loss) for row, loss in {**SHARING, "attention": 3.005}.items()})
    assert outcome_of(close).ranking.startswith("nothing shared ~ attention shared < feed-forward")
    assert "nothing shared ~ attention shared" in to_markdown(study_report(close, outcome_of(close)))
    assert not outcome_of(done("dropout", {"with": table(3.0), "without": table(2.0)})).ranking


ELASTIC = {"depth-1": 4.0, "elastic-1": 4.02, "depth-2": 3.5, "elastic-2": 3.57, "depth-3": 3.2, "elastic-3": 3.4}


def test_an_elastic_model_is_judged_depth_by_depth_beside_those_trained_so():
    found = done("elastic", {row: table(loss) for row, loss in {**ELASTIC, "depth-4": 3.0, "elastic": 6.9}.items()})
    report = outcome_of(found)
    told = [one["verdict"] for one in as_json(found, report)["findings"]]
    assert told == ["within 2%", "too small to tell", "not within 2%", "not within 2%"]
    heading, *rows = table_of(report)
    place = heading.index("loss against above")
    assert [row[place] for row in rows[:6]] == ["", "+0.5%", "", "+2.0%", "", "+6.2%"]
    assert "steps (in 5m)" in heading
    page = to_html(study_report(found, report))
    assert ">within 2%<" in page and "paper" not in page and page.count("<svg") == 3
    by_steps = replace(found, settings=replace(found.settings, budget=None, steps=20))
    assert "steps (as set)" in table_of(outcome_of(by_steps))[0]
