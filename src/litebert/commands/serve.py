"""``litebert serve``: checks its options and then makes way for the server, in the same process.

What reads a command line is 20 MB that a server would keep for as long as it runs, a seventh of its memory. So this
file is also a program: ``python -m litebert.commands.serve '{"models": ["small"]}'`` serves with the parameters of
``litebert.api.serve``, and needs no typer.
"""

import json
import os
import sys
from functools import wraps
from typing import Any

from litebert import api
from litebert.errors import InputError, as_option
from litebert.parameters import declarations
from litebert.terminal import log_to_terminal, visible


@wraps(api.serve)
def serve(**settings: Any) -> None:
    for name, value in settings.items():
        param, hint = declarations(api.serve)[name]
        param.check(name, value, hint)
    if os.name != "posix":
        api.serve(**settings)
        return
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "litebert.commands.serve", json.dumps(settings)])


if __name__ == "__main__":
    log_to_terminal()
    try:
        api.serve(**json.loads(sys.argv[1]))
    except InputError as error:
        print(f"litebert: {visible(as_option(error))}", file=sys.stderr)
        sys.exit(2)
