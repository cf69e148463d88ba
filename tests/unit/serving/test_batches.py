"""The way of a GPU, on a CPU: pieces of several requests run as one batch of a torch model, with the same answers."""

import json
import time

import numpy as np
import pytest
from toy_models import pretrained_model, tuned_model, word_tokenizer

from litebert.serving.app import DECODERS, QUESTIONS
from litebert.serving.messages import Limits, Refusal, read_body
from litebert.serving.served import Models, Served
from litebert.serving.work import GPU, Job, Workers, WorkQueue


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Models:
    tokenizer = word_tokenizer(tmp_path_factory.mktemp("toy") / "words")
    made = {"en": pretrained_model(tokenizer), "labels": tuned_model(tokenizer, "classify")}
    made["score"] = tuned_model(tokenizer, "regress", pairs=True)
    return Models([Served(name, model, "torch", GPU) for name, model in made.items()])


REQUESTS = [
    ("/v1/embeddings", {"input": ["the cat", "a dog ran far"], "model": "en"}),
    ("/v1/embeddings", {"input": "a mat", "model": "en", "normalize": True}),
    ("/fill", {"inputs": ["the [MASK] sat", "a [MASK]"], "top": 2, "model": "en"}),
    ("/order", {"inputs": [["the cat", "a dog"], ["a dog", "the cat"]], "model": "en"}),
    ("/predict", {"inputs": ["the cat", "a dog"], "model": "labels"}),
    ("/rerank", {"query": "the cat", "documents": ["a dog", "a mat ran"], "model": "score"}),
    ("/tokenize", {"inputs": ["the cat"], "model": "en"}),
]


def answers(models: Models, together: bool) -> list[dict]:
    """What each request gets, all at once or one after the other."""
    queue, found = WorkQueue(10_000, 1), dict[int, bytes | Refusal]()
    jobs = []
    for number, (route, content) in enumerate(REQUESTS * 3):
        asked = read_body(DECODERS[route], json.dumps(content).encode())
        question = QUESTIONS[route](asked, models, Limits())
        jobs.append(Job(question, time.monotonic() + 60, lambda _, answer, n=number: found.update({n: answer})))
    workers = None if together else Workers(queue, 1, gpu=True)
    for number, job in enumerate(jobs):
        queue.submit(job)
        while workers is not None and number not in found:
            time.sleep(0.001)
    workers = workers or Workers(queue, 1, gpu=True)
    until = time.monotonic() + 60
    while len(found) < len(jobs) and time.monotonic() < until:
        time.sleep(0.01)
    workers.close()
    assert all(isinstance(answer, bytes) for answer in found.values()), found
    return [json.loads(found[number]) for number in range(len(jobs))]


def numbers_of(value) -> list[float]:
    """All numbers of an answer, in order."""
    if isinstance(value, dict):
        return [number for one in value.values() for number in numbers_of(one)]
    if isinstance(value, list):
        return [number for one in value for number in numbers_of(one)]
    return [value] if isinstance(value, float | int) else []


def test_batches_over_requests_give_the_answers_of_one_at_a_time(models):
    for together, alone in zip(answers(models, True), answers(models, False), strict=True):
        assert together.keys() == alone.keys() and together["model"] == alone["model"]
        np.testing.assert_allclose(numbers_of(together), numbers_of(alone), atol=1e-4)


def test_what_was_tuned_for_vectors_is_asked_for_vectors_alone(models):
    model = tuned_model(next(iter(models)).tokenizer, "embed")
    assert Served("vectors", model, "torch", GPU).can == ["embeddings", "tokenize"]
