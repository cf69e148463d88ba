"""``python -m litebert_lab``."""

from litebert_lab.cli import main

main()
