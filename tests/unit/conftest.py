"""What unit tests of several rooms share."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from toy_letters import letter_tokenizer

__all__ = ["letter_tokenizer"]

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, headless."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    place = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if place is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=place, args=FLAGS)
        yield found
        found.close()
