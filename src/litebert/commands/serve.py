"""``litebert serve``: checks its options and then makes way for the server, in the same process.

What reads a command line is 20 MB that a server would keep for as long as it runs, a seventh of its memory.
"""

import json
import os
import sys
from functools import wraps
from typing import Any

from litebert import api
from litebert.parameters import declarations


@wraps(api.serve)
def serve(**settings: Any) -> None:
    for name, value in settings.items():
        param, hint = declarations(api.serve)[name]
        param.check(name, value, hint)
    if os.name != "posix":
        api.serve(**settings)
        return
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "litebert.serving", json.dumps(settings)])
