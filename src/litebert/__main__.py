"""``python -m litebert``, and the command of litebert-runtime, where the command line may not be installed."""

import sys


def main() -> None:
    """Run a command."""
    try:
        from litebert import cli
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit("litebert: commands need typer; install it with pip install 'litebert-runtime[serve]'")
    cli.main()


if __name__ == "__main__":
    main()
