"""``litebert fill`` and ``litebert order``: texts from everywhere, words read as wholes, lists of words scored."""

import io
import json

import pytest
import torch

from litebert.errors import InputError
from litebert.fill import Cloze, read_clozes, score_clozes, shares
from litebert.model import Model
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network
from litebert.text.tokenizer_files import read_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "she", "he", "went", "ran", "home", "walk", "##ed", "##ing"]
WORDS += ["slow", "##ly", ".", "the"]
FAVOURITES = ["went", "##ing", "ran", ".", "walk", "##ed"]  # what the model says of every gap, the likeliest first


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return read_tokenizer(folder, "bert")


@pytest.fixture(scope="module")
def model(tokenizer):
    """A model that always says the same words, so that it is known what must come out."""
    sizes = {"vocab_size": len(WORDS), "width": 16, "num_layers": 2, "num_heads": 2, "feed_forward_width": 32}
    torch.manual_seed(0)
    network = pretraining_network(family_config({"family": "bert", "max_positions": 24, **sizes})).eval()
    with torch.no_grad():
        network.heads["masked_lm"].norm.weight.zero_()
        bias = network.heads["masked_lm"].bias
        for place, word in enumerate(FAVOURITES):
            bias[WORDS.index(word)] = 20.0 - place
    return Model(network, tokenizer)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    model.save(tmp_path_factory.mktemp("model") / "always")
    return next(tmp_path_factory.getbasetemp().glob("model*/always"))


def test_a_piece_reads_as_the_word_it_makes(model):
    guesses = model.fill("she walk [MASK] home", 5)
    assert [guess.word for guess in guesses] == ["went", "walking", "ran", ".", "walk"]
    assert model.fill("[MASK] [MASK] home", 2)[1][1].word == "…ing"  # which word it belongs to is open
    assert model.fill("she [MASK] home", 2)[1].word == "sheing"


def test_many_texts_at_once_are_as_each_by_itself(model):
    texts = ["she [MASK] home .", "[MASK] and [MASK]", "the slow [MASK]"]
    assert model.fill(texts, 3) == [[model.fill(texts[0], 3)], model.fill(texts[1], 3), [model.fill(texts[2], 3)]]
    with pytest.raises(InputError, match="no \\[MASK\\] in text 2"):
        model.fill(["[MASK]", "home"])


def test_texts_come_as_words_from_a_file_and_from_standard_input(folder, litebert, tmp_path, monkeypatch):
    code, out, _ = litebert("fill", folder, "she [MASK] home", "--top", "2")
    assert (
        code == 0
        and out.splitlines()[0] == "she [MASK] home"
        and out.splitlines()[1].split()[::2] == ["went", "sheing"]
    )
    (tmp_path / "texts").write_text("she [MASK] home\n\nthe [MASK] [MASK]\r\n")
    for words in (("--file", tmp_path / "texts"), ()):
        monkeypatch.setattr("sys.stdin", io.StringIO((tmp_path / "texts").read_text()))
        code, out, _ = litebert("fill", folder, *words, "--json", "--depth", "1")
        rows = json.loads(out)
        assert [len(row["masks"]) for row in rows] == [1, 2]
        assert rows[0]["masks"][0][0]["token"] == "went"
    assert "1: went" in litebert("fill", folder, "[MASK] [MASK]")[1]


def test_at_a_keyboard_it_is_said_that_texts_are_waited_for(folder, litebert, monkeypatch):
    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, said in ((Keyboard, True), (io.StringIO, False)):
        monkeypatch.setattr("sys.stdin", stream("she [MASK] home\n"))
        code, _, err = litebert("fill", folder)
        assert code == 0 and ("Ctrl-D" in err) == said


def test_answers_are_ranked_by_their_pieces(model, tmp_path):
    items = [
        {"text": "she [MASK] home", "accept": ["He", "Went"], "kind": "a"},  # letters are folded as the model does
        {"text": "she [MASK] home", "accept": ["ran"], "kind": "a"},
        {"text": "she [MASK] home", "accept": ["slow"], "kind": "b"},
        {"text": "she [MASK] home", "accept": ["walking"], "kind": "b"},  # two pieces: fifth and second of their masks
        {"text": "she [MASK] home", "accept": ["slowly"], "kind": "b"},  # of two pieces, none is said
    ]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, items)) + "\n")
    filled = score_clozes(model, read_clozes(tmp_path / "list.jsonl"))
    assert [one.rank for one in filled] == [1, 3, None, 5, None]
    found = shares(filled)
    assert list(found) == ["all", "a", "b"]
    assert (found["all"].items, found["all"].first, found["all"].top) == (5, 0.2, 0.6)
    assert found["b"].top == pytest.approx(1 / 3)
    assert score_clozes(model, [Cloze(text="she [MASK] home", accept=("ran",))], top=2)[0].rank is None


def test_the_score_of_a_list_on_the_command_line(folder, litebert, tmp_path):
    path = tmp_path / "list.jsonl"
    path.write_text('{"text": "she [MASK]", "accept": ["went"], "kind": "a"}\n{"text": "[MASK]", "accept": ["the"]}\n')
    code, out, _ = litebert("fill", folder, "--cloze", path)
    assert code == 0 and "50.0%" in out.splitlines()[1] and "[MASK]  (the)" in out
    found = json.loads(litebert("fill", folder, "--cloze", path, "--json")[1])
    assert found["scores"]["all"] == {"items": 2, "first": 0.5, "top": 0.5} and found["depth"] == 2
    assert [item["rank"] for item in found["items"]] == [1, None]


def test_order_says_which_comes_first(folder, litebert, model, tmp_path):
    pair = ("she went home .", "he ran")
    share = model.order([pair])[0]
    code, out, _ = litebert("order", folder, *pair)
    likelier = pair if share >= 0.5 else pair[::-1]
    assert code == 0 and out.endswith(f": {likelier[0]} | {likelier[1]}\n")
    (tmp_path / "pairs").write_text(f"{pair[0]}\t{pair[1]}\n{pair[1]}\t{pair[0]}\n")
    both = json.loads(litebert("order", folder, "--file", tmp_path / "pairs", "--json")[1])
    assert both[0]["in_order"] == pytest.approx(share) and both[1]["in_order"] == pytest.approx(1 - share)
    assert model.order([]) == [] and model.order([pair], depth=1) != [share]
    assert 0 <= model.order([("she went " * 40, "he ran")])[0] <= 1  # cut to what the model holds


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fill", "MODEL", "home"], "there is no [MASK] in 'home'"),
        (["fill", "MODEL", "[MASK]", "--top", "0"], "--top is 0"),
        (["fill", "MODEL", "[MASK]", "--depth", "3"], "depth is 3"),
        (["fill", "MODEL", "--cloze", "none.jsonl"], "no file 'none.jsonl'"),
        (["fill", "MODEL", "--file", "none"], "no file 'none'"),
        (["fill", "MODEL", "--file", "japanese"], "japanese, line 2 is not UTF-8"),
        (["fill", "MODEL", "[MASK]", "--device", "gpu"], "device is 'gpu'"),
        (["fill", "MODEL", "[MASK]", "--file", "none"], "only one of texts, file and cloze"),
        (["order", "MODEL", "one"], "give two texts"),
        (["order", "HEADLESS", "one", "two"], "no sentence-order head"),
        (["fill", "HEADLESS", "[MASK]"], "no masked-LM head"),
    ],
)
def test_bad_input_gets_a_sentence(words, sentence, folder, model, tokenizer, litebert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "japanese").write_bytes("she [MASK]\n日本語です [MASK]\n".encode("shift-jis"))
    bare = Network(NetworkConfig(encoder=model.config, heads=HeadsConfig(names=("classify",))))
    Model(bare, tokenizer).save(tmp_path / "headless")
    names = {"MODEL": str(folder), "HEADLESS": str(tmp_path / "headless")}
    code, _, err = litebert(*(names.get(word, word) for word in words))
    assert code == 2 and sentence in err and "Traceback" not in err


@pytest.mark.parametrize("line", ["she", '{"text": "[MASK]"}', '{"text": "[MASK]", "accept": []}', ""])
def test_a_bad_list_gets_a_sentence(line, tmp_path):
    (tmp_path / "list").write_text(line)
    with pytest.raises(InputError, match="list"):
        read_clozes(tmp_path / "list")
