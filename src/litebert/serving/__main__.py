"""``python -m litebert.serving '{"models": ["small"], "port": 8000}'``: the server with the parameters of
``litebert.api.serve``, without what reads a command line."""

import json
import sys

from litebert.api import serve
from litebert.errors import InputError, as_option
from litebert.terminal import log_to_terminal, visible

if __name__ == "__main__":
    log_to_terminal()
    try:
        serve(**json.loads(sys.argv[1]))
    except InputError as error:
        print(f"litebert: {visible(as_option(error))}", file=sys.stderr)
        sys.exit(2)
