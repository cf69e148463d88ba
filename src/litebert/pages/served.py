"""The page that a server gives for ``GET /``: the user interface, asking the server's JSON routes."""

from functools import cache

from litebert.pages.assemble import assemble


@cache
def page_html() -> bytes:
    """The page, which needs nothing but the routes of the server it came from."""
    return assemble("litebert", {}, ["script-src SCRIPT", "connect-src 'self'"]).encode()
