"""What is said of long work: the heartbeat speaks where nothing else does, and of the innermost work."""

import logging
import math
import queue

import pytest

from litebert import terminal
from litebert.commands.from_signature import add_command
from litebert.terminal import expect_silence, heartbeat, progress

LONG_ENOUGH = 60.0  # seconds that a test waits for a message at most


@pytest.fixture
def said(monkeypatch):
    """Messages as they come, with a heartbeat that speaks at once."""
    for name, seconds in (("PATIENCE", 0.02), ("EVERY", 0.01), ("LINES", 0.02)):
        monkeypatch.setattr(terminal, name, seconds)
    messages, log, handler = queue.Queue(), logging.getLogger("litebert"), logging.Handler()
    handler.emit = lambda record: messages.put(record.getMessage())
    monkeypatch.setattr(log, "level", logging.INFO)
    log.addHandler(handler)
    yield messages
    log.removeHandler(handler)


def test_silent_work_is_spoken_of_again_and_again(said):
    with heartbeat(lambda: "reading"):
        for _ in range(2):
            assert said.get(timeout=LONG_ENOUGH).startswith("reading (")


def test_the_innermost_work_is_what_is_said(said):
    with heartbeat(lambda: "outer"):
        with progress() as show:
            show("3 of 7 texts")
            while not said.get(timeout=LONG_ENOUGH).startswith("3 of 7 texts ("):
                pass
        while not said.get(timeout=LONG_ENOUGH).startswith("outer ("):
            pass


def test_nothing_is_said_where_silence_is_expected_or_work_has_ended(said):
    with heartbeat(lambda: "typing"):
        expect_silence(math.inf)
        while not said.empty():
            said.get()
        with heartbeat(lambda: pytest.fail("asked for words")):
            pass
    assert said.empty() and not terminal._doing


def test_every_command_that_ends_is_watched(monkeypatch):
    import sys

    import typer

    begun = []
    monkeypatch.setattr(
        "litebert.commands.from_signature.heartbeat", lambda words: begun.append(words()) or heartbeat(words)
    )
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)  # as outside a test
    monkeypatch.delenv("LITEBERT_HEARTBEAT", raising=False)
    app = typer.Typer()

    def count(*, number: int = 3) -> int:
        """Count."""
        return number

    def show(result: int) -> None:
        begun.append(result)

    add_command(app, count, show)
    add_command(app, count, show, name="serve", ends=False)
    for word in ("count", "serve"):
        app([word], standalone_mode=False)
    assert begun == ["count: working", 3, 3]
