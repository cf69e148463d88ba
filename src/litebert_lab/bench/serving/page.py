"""A page in Chromium: its size, how long it takes until it can be asked, and how long a text takes at some depths.

The page is written, opened from disk several times, each time in a new browser context without a network, and asked the
way its own user interface asks. The same texts are asked of the runtime in Python, on one thread, in turns with the
browser, so that the two can be compared. Times of a text are those that the page reports: tokenizer and model.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import litebert
from litebert.api import page as write_page
from litebert.errors import InputError
from litebert.report import Report, Section, Table, notes
from litebert_lab.bench.inference import texts_of_lengths

LENGTHS = (10, 16, 26)  # tokens of a text, special ones included
SETTLING = 8  # texts before any is timed: WebAssembly is compiled in two steps, the better one after a while
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


@dataclass(frozen=True, kw_only=True)
class TextTimes:
    """Milliseconds of one text."""

    tokens: int
    depth: int
    browser: float
    python: float


@dataclass(frozen=True, kw_only=True)
class PageFigures:
    """What was measured of a page."""

    model: str
    browser: str
    megabytes: float
    ready: float  # seconds from opening the file until it can be asked, the median of all starts
    starts: int
    rounds: int
    load: float
    times: tuple[TextTimes, ...]


def bench_page(model: str, *, depths: Sequence[int] = (12, 6, 3), starts: int = 5, rounds: int = 15) -> PageFigures:
    """Write the page of a model and measure it."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise InputError("bench page drives Chromium with playwright; install it with pip install playwright") from None
    place = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if place is None:
        raise InputError("bench page needs Chromium (apt-get install chromium), or its path in CHROMIUM")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary) / "model"
        litebert.load(model).export(folder, standard=False)
        made = write_page(f"{Path(model).name}={folder}", out=Path(temporary) / "page.html")
        browser = playwright.chromium.launch(executable_path=place, args=list(FLAGS))
        ready = []
        for _ in range(starts):
            page = browser.new_context(offline=True).new_page()
            begun = time.perf_counter()
            page.goto(made.file.as_uri())
            page.wait_for_selector("#status:not(.busy)")
            ready.append(time.perf_counter() - begun)
            if len(ready) < starts:
                page.context.close()
        times = _times(page, litebert.Runtime(folder, threads=1), depths, rounds)
        return PageFigures(
            model=model,
            browser=f"Chromium {browser.version}",
            megabytes=made.size / 1e6,
            ready=median(ready),
            starts=starts,
            rounds=rounds,
            load=os.getloadavg()[0],
            times=times,
        )


def _times(page: Any, runtime: litebert.Runtime, depths: Sequence[int], rounds: int) -> tuple[TextTimes, ...]:
    """Medians of the browser's and Python's times, asked in turns."""
    assert runtime.tokenizer is not None
    page.evaluate("open.stop()")  # its own question at every depth
    texts = texts_of_lengths(runtime.tokenizer, LENGTHS)
    found = []
    for text, tokens in zip(texts, LENGTHS, strict=True):
        for depth in (depth for depth in depths if depth <= runtime.num_layers):
            browser, python = [], []
            for number in range(SETTLING + rounds):
                body = {"input": text, "depth": depth}
                timing = page.evaluate("body => page.client.send('/v1/embeddings', body)", body)["timing"]
                begun = time.perf_counter()
                runtime.encode(text, depth=depth)
                if number >= SETTLING:
                    browser.append(timing["total"])
                    python.append(1000 * (time.perf_counter() - begun))
            found.append(TextTimes(tokens=tokens, depth=depth, browser=median(browser), python=median(python)))
    return tuple(found)


def page_report(found: PageFigures) -> Report:
    """The figures as a table."""
    rows = [["tokens", "depth", "browser, ms", "Python, one thread, ms", "ratio"]]
    for one in found.times:
        ratio = one.browser / one.python
        rows.append([str(one.tokens), str(one.depth), f"{one.browser:.1f}", f"{one.python:.1f}", f"{ratio:.1f}"])
    about = [
        f"{found.megabytes:.2f} MB; ready after {found.ready:.2f} s (median of {found.starts} starts)",
        f"{found.browser}, one thread; medians of {found.rounds} texts after {SETTLING} others; "
        f"{found.load:.1f} processes wanted a core at the end",
    ]
    title = f"The page of {found.model}"
    return Report(title=title, sections=[Section(items=[*notes(about), Table(rows=rows)])], data=asdict(found))
