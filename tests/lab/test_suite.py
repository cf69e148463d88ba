"""The measuring suite on a tiny model: sentence scores against the plain way, files as they come, the command."""

import json
import math
import warnings

import pytest
import torch
from toy_tasks import SPECIAL, WORDS
from typer.testing import CliRunner

import litebert
from litebert.checkpoints.folder import save_model
from litebert.errors import InputError
from litebert.nn.config import family_config
from litebert.nn.layout import Layout
from litebert.nn.network import pretraining_network
from litebert.text.tokenizer_files import read_tokenizer
from litebert_lab import suite

TEXTS = ["the cat was good", "the cat was in the", "so a bad hen was there then", "the dog is not good"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("suite")
    (made / "vocab.txt").write_text("\n".join(SPECIAL + WORDS) + "\n")
    tokenizer = read_tokenizer(made, "bert")
    sizes = {"width": 32, "embedding_width": 16, "num_layers": 2, "num_heads": 4, "feed_forward_width": 64}
    config = family_config({"family": "albert", "vocab_size": tokenizer.vocab_size, "max_positions": 64, **sizes})
    torch.manual_seed(0)
    network = pretraining_network(config, ("masked_lm", "order", "replaced"))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(8 if parameter.ndim == 2 else 1)
    save_model(made / "model", network, tokenizer, verb="test")
    return made / "model"


@pytest.fixture(scope="module")
def model(folder):
    return litebert.load(folder)


@torch.no_grad()
@pytest.mark.parametrize("depth", [1, 2])
def test_every_token_is_masked_once(model, depth, monkeypatch):
    monkeypatch.setitem(suite.BATCH_TOKENS, "cpu", 64)  # more than one batch of a length
    found = suite.sentence_scores(model, TEXTS, judge="masked", depth=depth)
    for text, score in zip(TEXTS, found, strict=True):
        ids, expected = list(model.tokenizer.encode(text).ids), 0.0
        for place in range(1, len(ids) - 1):
            masked = [*ids[:place], model.tokenizer.mask_id, *ids[place + 1 :]]
            states = model.states([masked], depth=depth)[-1]
            logits = model.network.masked_lm(states, torch.tensor([place]))[0]
            expected += float(logits.log_softmax(-1)[ids[place]])
        assert score == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_a_permutation_model_is_asked_by_its_query_stream(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL + WORDS) + "\n")
    tokenizer = read_tokenizer(tmp_path, "xlnet")
    sizes = {"width": 32, "num_layers": 2, "num_heads": 4, "feed_forward_width": 64}
    torch.manual_seed(0)
    network = pretraining_network(family_config({"family": "xlnet", "vocab_size": tokenizer.vocab_size, **sizes}))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(8 if parameter.ndim == 2 else 1)
    made = litebert.model.Model(network.eval(), tokenizer)
    for text, score in zip(TEXTS, suite.sentence_scores(made, TEXTS, judge="masked", depth=2), strict=True):
        ids, expected = torch.tensor(tokenizer.encode(text).ids), 0.0
        for place in range(len(ids) - 2):  # the special tokens come last
            ranks = torch.full_like(ids, -1)
            ranks[place] = 0
            query = network.encoder.two_streams(ids, Layout.of([len(ids)]), ranks)[1]
            expected += float(network.masked_lm(query, torch.tensor([place]))[0].log_softmax(-1)[ids[place]])
        assert score == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_or_judged_by_what_looks_replaced(model):
    found = suite.sentence_scores(model, TEXTS, judge="replaced", depth=2)
    ids = list(model.tokenizer.encode(TEXTS[0]).ids)
    logits = model.network.heads["replaced"](model.states([ids])[-1])[1:-1]
    assert found[0] == pytest.approx(float((-logits).sigmoid().log().sum()), rel=1e-4)


def test_pairs_are_counted_by_paradigm(model, monkeypatch):
    scores = {"the cat": -1.0, "the dog": -2.0, "a cat": -1.5, "a dog": -1.5}
    monkeypatch.setattr(suite, "sentence_scores", lambda _, texts, **__: [scores[text] for text in texts])
    paradigms = {"first": [("the cat", "the dog"), ("the dog", "the cat")], "second": [("a cat", "a dog")]}
    assert suite.blimp_scores(model, paradigms, judge="masked", depth=2) == {"first": 0.5, "second": 0.0}


@torch.no_grad()
def test_vectors_are_means_of_states(model):
    vectors = suite.mean_vectors(model, TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        states = model.states([list(model.tokenizer.encode(text).ids)])[-1]
        torch.testing.assert_close(torch.from_numpy(vector), states.mean(0), atol=1e-5, rtol=1e-4)


def write_sts(folder):
    for year in range(12, 17):
        part = folder / f"STS{year}-en-test"
        part.mkdir(parents=True)
        (part / "STS.input.one.txt").write_text("the cat\tthe dog\na hen\ta cow\nso good\tso bad\n")
        (part / "STS.gs.one.txt").write_text("4.5\n\n1\n")
    (folder / "STSBenchmark").mkdir()
    rows = ["main\tx\t2012\t1\t2.5\tthe cat\ta cat", "main\tx\t2012\t2\t5.0\tthe dog\tthe dog"]
    (folder / "STSBenchmark" / "sts-test.csv").write_text("\n".join(rows) + "\n")


def test_pairs_that_nobody_rated_are_left_out(tmp_path):
    write_sts(tmp_path)
    sets = suite.read_sts(tmp_path)
    assert sets["STS15"] == [("the cat", "the dog", 4.5), ("so good", "so bad", 1.0)]
    assert sets["STS-B"][1] == ("the dog", "the dog", 5.0) and len(sets) == 6


def test_the_command_measures_what_there_is_data_for(folder, tmp_path):
    (tmp_path / "blimp").mkdir()
    row = json.dumps({"sentence_good": "the cat was good", "sentence_bad": "the cat was was"})
    (tmp_path / "blimp" / "one.jsonl").write_text(f"{row}\n{row}\n")
    write_sts(tmp_path / "sts")
    cola = tmp_path / "glue" / "CoLA"
    cola.mkdir(parents=True)
    lines = [f"x\t{n % 2}\t\tthe {'good' if n % 2 else 'bad'} {WORDS[n % 8]}" for n in range(48)]
    for split in ("train", "dev"):
        (cola / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "figures.json"
    words = ["--blimp", tmp_path / "blimp", "--pairs", 1, "--depth", 1, "--sts", tmp_path / "sts"]
    words += ["--glue", tmp_path / "glue", "--task", "cola", "--seeds", 2, "--device", "cpu", "--out", out]
    app = suite.typer.Typer()
    app.command()(suite.suite)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [str(word) for word in [folder, *words]], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    assert {"blimp_masked_2", "blimp_masked_1", "blimp_replaced_2", "sts", "cola"} <= set(found)
    assert len(found["cola"]["scores"]) == 2 and found["cola"]["metric"] == "matthews"
    assert math.isfinite(found["sts"]["mean"])


def test_what_is_refused(folder, model, tmp_path):
    with pytest.raises(InputError, match="nothing to measure"):
        suite.suite(str(folder))
    with pytest.raises(InputError, match=r"no \.jsonl files"):
        suite.read_blimp(tmp_path)
    with pytest.raises(InputError, match="lacks some"):
        write_sts(tmp_path / "sts")
        (tmp_path / "sts" / "STS14-en-test" / "STS.input.one.txt").unlink()
        suite.read_sts(tmp_path / "sts")
