"""Puts a page together: one HTML file of the parts in ``assets``, with a policy that lets nothing else run.

The same user interface serves two pages. The one that `litebert serve` gives asks the server. The one that `litebert
page` writes holds the model: it needs no server and no network, and its policy forbids it any.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
STYLE = "page.css"
WORKER = ("text_steps.js", "tokenizer.js", "kinds.js", "engine.js")
SCRIPTS = ("dom.js", "client.js", "csv.js", "dial.js", "answers.js", "tasks.js", "table.js", "page.js")


def asset(name: str) -> str:
    """The text of a part."""
    return (ASSETS / name).read_text(encoding="utf-8")


def assemble(title: str, data: Mapping[str, str], policy: Sequence[str]) -> str:
    """The page with this title; ``data`` are texts that its scripts read, by the id of their element."""
    style, script = asset(STYLE), "".join(asset(name) for name in SCRIPTS)
    rules = [
        "default-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "img-src data:",
        f"style-src {_digest(style)}",
        *policy,
    ]
    rules = [rule.replace("SCRIPT", _digest(script)) for rule in rules]
    blocks = "".join(f'<script type="text/plain" id="{name}">{text}</script>\n' for name, text in data.items())
    parts = {
        "TITLE": escape(title),
        "POLICY": escape("; ".join(rules)),
        "STYLE": style,
        "DATA": blocks,
        "SCRIPT": script,
    }
    return re.sub("@@([A-Z]+)@@", lambda found: parts[found[1]], asset("page.html"))


@cache
def page_html() -> bytes:
    """The page of a server, which asks its JSON routes and needs nothing else."""
    return assemble("litebert", {}, ["script-src SCRIPT", "connect-src 'self'"]).encode()


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def packed(content: bytes) -> str:
    """Bytes for an element of a page: gzip, then base64."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def plain_json(value: object) -> str:
    """JSON that cannot end the element it is in."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
