"""A browser, onnxruntime-web, and one page with a model of every kind; tests are skipped with a reason without them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from toy_models import WORDS, pretrained_model, scrambled, toy_config, tuned_model, word_tokenizer

import litebert
from litebert.errors import InputError
from litebert.model import Model
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.pages.single import write_page
from litebert.pages.web_runtime import WebRuntime, web_runtime
from litebert.tasks.examples import TaskSpec

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="session")
def runtime() -> WebRuntime:
    """onnxruntime-web from the cache or from npm."""
    try:
        return web_runtime()
    except InputError as error:
        pytest.skip(f"needs onnxruntime-web: {error}")


def answerable_model(tokenizer: Any) -> Model:
    """A model for questions that may have no answer, with a head for that."""
    torch.manual_seed(2)
    heads = HeadsConfig(names=("span",), labels=("0", "1"), answerable=True)
    task = TaskSpec(task="toy", kind="span", length=24, stride=8, has_null=True)
    return Model(scrambled(Network(NetworkConfig(encoder=toy_config(), heads=heads))), tokenizer, task=task)


def model_with_exits(tokenizer: Any) -> Model:
    """A classifier that stops early where a head is sure enough."""
    model = tuned_model(tokenizer, "classify")
    random = Random(0)
    rows = [(" ".join(random.choices(WORDS[5:], k=6)), label) for label in ("no", "yes", "maybe") for _ in range(40)]
    model.add_exits(rows, max_loss=50)
    return model


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> dict[str, litebert.Runtime]:
    """Exported models by name, the pretrained one first."""
    folder = tmp_path_factory.mktemp("models")
    words = word_tokenizer(folder / "words")
    made = {"plain": pretrained_model(words, num_layers=6), "unlike": pretrained_model(words, "bert")}
    made |= {kind: tuned_model(words, kind) for kind in ("classify", "multilabel", "regress", "choice", "span")}
    made["answerable"] = answerable_model(words)
    made["exits"] = model_with_exits(words)
    pairs = tuned_model(words, "classify", pairs=True, text=("premise+more", "hypothesis"))
    made["pairs"] = pairs
    evil = tuned_model(words, "classify")
    evil.task = replace(evil.task, labels=(SCRIPT, "</script><b>bold</b>", "fine"))
    made["evil"] = evil
    return {name: litebert.load(model.export(folder / name, standard=False).folder) for name, model in made.items()}


@pytest.fixture(scope="session")
def page_file(models, runtime, tmp_path_factory) -> Path:
    """One page with all of them; the name of one is a script."""
    folders = [(SCRIPT if name == "evil" else name, Path(model.name)) for name, model in models.items()]
    return write_page(folders, tmp_path_factory.mktemp("page") / "page.html", runtime).file


@pytest.fixture(scope="session")
def opened(browser, page_file) -> Iterator[Any]:
    """The page, opened from disk without a network, ready to ask."""
    context = browser.new_context(offline=True, viewport={"width": 1180, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.errors = []
    page.requests = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(page_file.as_uri())
    page.wait_for_selector("#status:not(.busy)")
    yield page
    assert page.errors == []
    context.close()


@pytest.fixture
def ask(opened):
    """Send a request to the engine of the page."""

    def send(route: str, **body: Any) -> Any:
        return opened.evaluate("([route, body]) => page.client.send(route, body)", [route, body])

    return send
