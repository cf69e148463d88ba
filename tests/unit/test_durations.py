"""Durations read and written."""

import pytest

from litebert.errors import InputError
from litebert.parameters import format_duration, parse_duration


@pytest.mark.parametrize(
    "text,seconds",
    [
        ("90s", 90),
        ("20m", 1200),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1.5h", 5400),
        ("3d", 259200),
        (" 2H ", 7200),
        (".5m", 30),
    ],
)
def test_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["2x", "", "h", "90", "0s", "-2h", "2h later", "1e3s"])
def test_refused(text: str) -> None:
    with pytest.raises(InputError, match="90s"):
        parse_duration(text)


@pytest.mark.parametrize(
    "seconds,text",
    [
        (0.25, "0.25 seconds"),
        (45, "45 seconds"),
        (60, "1 minute"),
        (330, "5.5 minutes"),
        (5400, "1.5 hours"),
        (86400 * 12, "12 days"),
        (3.2e9, "101 years"),
    ],
)
def test_written(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
