"""Answers of a real server are those of the model, in the shapes that docs/serve.md promises."""

import base64
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import litebert

SOURCE = Path(litebert.__file__).parents[1]

TEXTS = ["the cat sat on a mat .", "dog", "a cat and a dog ran far away !", ""]


@pytest.fixture(scope="module")
def local(folders):
    """The same models in this process."""
    return lambda name: litebert.load(folders[name], threads=1)


@pytest.mark.parametrize("settings", [{}, {"depth": 2}, {"pooling": "first"}, {"normalize": True}])
def test_embeddings(server, local, settings):
    given = {"input": TEXTS, "model": "en", **settings}
    answer = server.ask("/v1/embeddings", given)
    assert answer.status == 200
    expected = local("en").encode(TEXTS, **settings)
    found = answer.json
    assert (found["object"], found["model"]) == ("list", "en")
    assert [row["index"] for row in found["data"]] == [0, 1, 2, 3]
    assert (np.array([row["embedding"] for row in found["data"]], np.float32) == expected).all()
    assert found["usage"] == {"prompt_tokens": 25, "total_tokens": 25}
    coded = server.ask("/v1/embeddings", given | {"encoding_format": "base64"}).json["data"]
    vectors = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in coded]
    assert (np.array(vectors) == expected).all()


def test_token_ids_are_texts(server):
    ids = [6, 7, 8]  # cat sat on
    one = server.ask("/v1/embeddings", {"input": ids}).json["data"]
    several = server.ask("/v1/embeddings", {"input": [ids, [5]]}).json["data"]
    text = server.ask("/v1/embeddings", {"input": "cat sat on"}).json["data"]
    assert one == text == several[:1]


def test_the_client_of_openai_works_unchanged(server, local):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="any")
    found = client.embeddings.create(model="en", input=TEXTS)
    assert (np.array([row.embedding for row in found.data], np.float32) == local("en").encode(TEXTS)).all()
    plain = client.embeddings.create(model="en", input="dog", encoding_format="float", extra_body={"depth": 1})
    assert (np.array(plain.data[0].embedding, np.float32) == local("en").encode("dog", depth=1)).all()
    assert [model.id for model in client.models.list()][:2] == ["en", "unrolled"]
    with pytest.raises(openai.UnprocessableEntityError, match="depth is 9"):
        client.embeddings.create(model="en", input="dog", extra_body={"depth": 9})
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.embeddings.create(model="nobody", input="dog")


ROWS = {
    "labels": ["the cat", "a dog"],
    "tags": ["the cat", "a dog ran far"],
    "score": [("the cat", "a dog"), ("a", "mat")],
    "tickets": [{"subject": "the cat", "body": "a dog"}],
    "choice": [{"question": "the cat", "options": ["sat", "ran away"]}, {"question": "a", "options": ["dog", "."] * 2}],
    "span": [{"question": "the cat", "context": "a dog ran far away and the cat sat on a mat . " * 3}],
}


@pytest.mark.parametrize("name", ROWS)
def test_predictions(server, local, name):
    answer = server.ask("/predict", {"inputs": ROWS[name], "model": name, "depth": 2})
    assert answer.status == 200, answer.body
    for found, expected in zip(answer.json["results"], local(name).predict(ROWS[name], depth=2), strict=True):
        label = list(expected.label) if isinstance(expected.label, tuple) else expected.label
        assert found["label"] == label
        assert found.get("probability") == expected.probability
        assert found.get("probabilities", {}) == dict(expected.probabilities)
        assert list(found.get("probabilities", {})) == list(expected.probabilities)
        assert (found.get("start"), found.get("end")) == (expected.start, expected.end)
    single = server.ask("/predict", {"inputs": ROWS[name][:1], "model": name, "depth": 2}).json["results"]
    assert single == answer.json["results"][:1]


@pytest.mark.parametrize("exits", [True, 0.35, 2])
def test_early_exits(server, local, exits):
    texts = ["the cat", "a dog ran far", "the mat"]
    found = server.ask("/predict", {"inputs": texts, "model": "early", "exits": exits}).json["results"]
    assert [row["probabilities"] for row in found] == [
        dict(one.probabilities) for one in local("early").predict(texts, exits=exits)
    ]
    if exits == 0.35:
        assert found != server.ask("/predict", {"inputs": texts, "model": "early"}).json["results"]


def test_one_input_needs_no_list(server):
    for name in ("labels", "tickets", "span"):
        row = ROWS[name][0]
        one, listed = (server.ask("/predict", {"inputs": given, "model": name}).json for given in (row, [row]))
        assert one == listed


def test_masked_words(server, local):
    texts = ["the [MASK] sat", "a [MASK] and a [MASK]"]
    answer = server.ask("/fill", {"inputs": texts, "top": 3, "depth": 2}).json
    assert [[[vars(g) for g in row] for row in text] for text in local("en").fill(texts, 3, depth=2)] == [
        row["masks"] for row in answer["results"]
    ]
    assert answer["usage"] == {"tokens": 12}
    assert server.ask("/fill", {"inputs": texts[0]}).json["results"][0]["masks"][0][0]["probability"] > 0


def test_order(server, local):
    pairs = [["the cat sat", "a dog ran"], ["a dog ran", "the cat sat"]]
    found = [row["in_order"] for row in server.ask("/order", {"inputs": pairs}).json["results"]]
    assert found == local("en").order(pairs)
    assert sum(found) == pytest.approx(1)


def test_rerank(server, local):
    asked = {"query": "the cat", "documents": ["a dog", "the mat", "sat on a mat"], "model": "score"}
    found = server.ask("/rerank", asked | {"return_documents": True}).json["results"]
    scores = {text: one.label for text, one in zip(
        asked["documents"], local("score").predict([("the cat", text) for text in asked["documents"]]), strict=True
    )}  # fmt: skip
    assert [row["document"]["text"] for row in found] == sorted(scores, key=lambda text: -scores[text])
    assert [row["relevance_score"] for row in found] == sorted(scores.values(), reverse=True)
    assert server.ask("/rerank", asked | {"top_n": 1}).json["results"] == [
        {key: found[0][key] for key in ("index", "relevance_score")}
    ]
    by_label = server.ask("/rerank", asked | {"model": "labels", "label": "yes"}).json["results"]
    predicted = local("labels").predict([("the cat", text) for text in asked["documents"]])
    assert by_label[0]["relevance_score"] == max(one.probabilities["yes"] for one in predicted)


def test_tokens(server):
    found = server.ask("/tokenize", {"inputs": ["the cat", ["a", "dog"]]}).json
    assert found["results"] == [
        {"ids": [2, 5, 6, 3], "tokens": ["[CLS]", "the", "cat", "[SEP]"], "segments": [0, 0, 0, 0]},
        {"ids": [2, 9, 3, 12, 3], "tokens": ["[CLS]", "a", "[SEP]", "dog", "[SEP]"], "segments": [0, 0, 0, 1, 1]},
    ]
    assert found["usage"] == {"tokens": 9}
    assert len(server.ask("/tokenize", {"inputs": "cat " * 400}).json["results"][0]["ids"]) == 402
    cut = server.ask("/tokenize", {"inputs": "cat " * 400, "truncate": True}).json["results"][0]["ids"]
    assert len(cut) == 24


def test_cut_only_when_asked(server, local):
    long = "the cat sat on a mat " * 10
    refused = server.ask("/v1/embeddings", {"input": ["dog", long]})
    assert (refused.status, refused.error["code"], refused.error["index"]) == (422, "text_too_long", 1)
    assert "62 tokens" in refused.error["message"] and "24" in refused.error["message"]
    cut = server.ask("/v1/embeddings", {"input": ["dog", long], "truncate": True}).json["data"][1]["embedding"]
    assert (np.array(cut, np.float32) == local("en").encode(long)).all()
    for name, row in (("labels", long), ("choice", {"question": long, "options": ["a", "dog"]})):
        refused = server.ask("/predict", {"inputs": [row], "model": name})
        assert (refused.status, refused.error["code"]) == (422, "text_too_long")
        kept = server.ask("/predict", {"inputs": [row], "model": name, "truncate": True}).json["results"][0]
        assert kept["label"] == local(name).predict([row])[0].label


def test_the_same_bits_whatever_else_is_in_flight(server):
    """Four clients with other texts, depths and models run beside one that asks the same again and again."""
    asked = {"input": "the cat sat on a mat .", "model": "en"}
    alone = server.ask("/v1/embeddings", asked).json["data"]
    stop, others = threading.Event(), []

    def disturb(number: int) -> None:
        count = 0
        while not stop.is_set():
            texts = [
                " ".join(["dog", "ran", "far"][: 1 + (count + i) % 3] * (1 + count % 5)) for i in range(1 + number)
            ]
            model = ("en", "unrolled", "labels")[count % 3]
            extra = {"depth": 1 + count % 3} if model != "unrolled" else {}
            others.append(server.ask("/v1/embeddings", {"input": texts, "model": model, **extra}).status)
            count += 1

    threads = [threading.Thread(target=disturb, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    found = [server.ask("/v1/embeddings", asked).json["data"] for _ in range(60)]
    together = server.ask("/v1/embeddings", {"input": [asked["input"], "dog"] * 4}).json["data"]
    stop.set()
    for thread in threads:
        thread.join()
    assert all(one == alone for one in found)
    assert all(row["embedding"] == alone[0]["embedding"] for row in together[::2])
    assert len(others) > 20 and set(others) <= {200, 429}


def test_info(server):
    info = server.ask("/info").json
    about = {one["name"]: one for one in info["models"]}
    assert about["en"]["can"] == ["embeddings", "fill", "order", "tokenize"]
    assert (about["en"]["any_depth"], about["unrolled"]["any_depth"]) == (True, False)
    assert about["tickets"]["task"] == {
        "kind": "classify",
        "labels": ["no", "yes", "maybe"],
        "columns": ["subject", "body"],
        "pairs": True,
        "max_tokens": 24,
    }
    assert "rerank" in about["score"]["can"] and "rerank" not in about["choice"]["can"]
    assert info["limits"]["texts"] == 20
    assert server.ask("/ready").json == {"status": "ready"}
    assert server.ask("/health").json == {"status": "ok"}


def test_headers_have_times_and_an_id(server):
    answer = server.ask("/fill", {"inputs": "the [MASK]"}, headers={"X-Request-Id": "mine-1"})
    parts = dict(part.strip().split(";dur=") for part in answer.headers["server-timing"].split(","))
    assert list(parts) == ["wait", "tokenize", "model", "total"]
    assert float(parts["total"]) >= float(parts["model"]) > 0
    assert answer.headers["x-request-id"] == "mine-1"
    other = server.ask("/health", headers={"X-Request-Id": "a b\\n"}).headers["x-request-id"]
    assert other != "a b\\n" and len(other) == 16


def test_figures(server):
    server.ask("/fill", {"inputs": "the [MASK]"})
    text = server.ask("/metrics").body.decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(len(line.rsplit(" ", 1)) == 2 and float(line.rsplit(" ", 1)[1]) >= 0 for line in lines)
    assert any(line.startswith('litebert_requests_total{route="/fill",model="en",status="200"}') for line in lines)
    assert "litebert_queue_tokens 0" in text
    resident = next(float(line.split()[1]) for line in lines if line.startswith("litebert_resident_bytes"))
    assert resident > 20e6


def test_the_description_and_its_page(server):
    described = server.ask("/openapi.json").json
    assert described["openapi"].startswith("3.1")
    routes = {"/v1/embeddings", "/predict", "/fill", "/order", "/rerank", "/tokenize", "/info", "/metrics"}
    assert routes <= described["paths"].keys()
    fields = described["components"]["schemas"]["PredictRequest"]["properties"]
    assert {"inputs", "exits", "depth", "truncate", "timeout", "model"} <= fields.keys()
    for path, about in described["paths"].items():  # examples are requests that are understood
        if "post" in about:
            example = about["post"]["requestBody"]["content"]["application/json"]["example"]
            answer = server.ask(path, example)
            assert answer.status == 200 or answer.error["code"] in ("not_able", "text_too_long"), (path, answer.body)
    page = server.ask("/docs").body.decode()
    assert "/predict" in page and "<script" not in page
    assert "http" not in page.replace("http://localhost:8000", "")


def test_torch_models_are_served_as_well(serve, folders):
    server = serve(f"labels={folders['torch']}", "--device", "cpu")
    found = server.ask("/predict", {"inputs": ["the cat", "a dog"]}).json["results"]
    expected = litebert.load(folders["torch"], device="cpu").predict(["the cat", "a dog"])
    assert [row["label"] for row in found] == [one.label for one in expected]
    assert [row["probability"] for row in found] == pytest.approx([one.probability for one in expected], abs=1e-5)
    assert server.ask("/info").json["models"][0]["engine"] == "torch"


def test_exported_models_are_served_without_torch(serve, folders, tmp_path):
    """With nothing that litebert-runtime does not install, and without what reads command lines; names are folders'."""
    for name in ("torch", "numba", "matplotlib", "safetensors", "sentencepiece", "pandas", "pyarrow"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError({name!r}, name={name!r})")
    found = os.pathsep.join([str(tmp_path), str(SOURCE)])
    home = tmp_path / "home"
    home.mkdir()
    # CI: with it, onnxruntime sends nothing anyway.
    server = serve(folders["en"], folders["labels"], environment={"PYTHONPATH": found, "HOME": str(home), "CI": ""})
    assert [one["id"] for one in server.ask("/v1/models").json["data"]] == ["en", "labels"]
    assert server.ask("/predict", {"inputs": "the cat", "model": "labels"}).status == 200
    mapped = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "onnxruntime" in mapped and "pydantic" not in mapped
    assert server.stop() == 0
    assert not list(home.rglob("*onnxruntime*"))  # where it notes what it will report to its makers


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere/at/all"], "there is no folder 'nowhere/at/all'"),
        (["one={en}", "one={en}"], "two models are called 'one'"),
        (["{en}", "--port", "70000"], "--port is 70000"),
        (["{en}", "--key-file", "nowhere"], "--key-file is 'nowhere'"),
        (["{en}", "--host", "198.51.100.1"], "it cannot be listened on at 198.51.100.1"),
        (["{en}", "--host", "\u202e"], "--host is '\\u202e'"),
        (["{en}", "--grace", "1e18"], "--grace is 1e+18"),
    ],
)
def test_what_cannot_be_served_gets_a_sentence(words, sentence, folders):
    given = [word.format(**{name: str(path) for name, path in folders.items()}) for word in words]
    done = subprocess.run([sys.executable, "-m", "litebert", "serve", *given], capture_output=True, text=True)
    assert done.returncode == 2
    assert sentence in done.stderr and "Traceback" not in done.stderr


def test_log_lines_hold_no_texts(serve, folders):
    server = serve(f"en={folders['en']}")
    server.ask("/fill", {"inputs": "secretword [MASK]"})
    server.ask("/secretword?secretword=1", {"secretword": "secretword"})
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    assert [(line["route"], line["status"]) for line in lines] == [("/fill", 200), ("unknown", 404)]
    assert lines[0]["tokens"] == 4 and lines[0]["model"] == "en" and lines[0]["model_ms"] > 0
    assert "secretword" not in "\n".join(server.lines)
