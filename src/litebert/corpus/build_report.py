"""What a person sees of a build: how far it is while it runs, and what came of it."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from litebert.corpus.build import Progress
from litebert.corpus.store import SPLITS, Store
from litebert.data.files import COMPRESSIONS, STANDARD_INPUT
from litebert.text.documents import expand

FEW = 10  # held-out documents, below which that is said


class Display:
    """A line on standard error that follows a build; on anything but a terminal, a line now and then."""

    EVERY = 30.0  # seconds between lines where there is no terminal

    def __init__(self, corpus: Sequence[str]) -> None:
        paths = expand(corpus)
        self._plain = {str(path) for path in paths if path.suffix.lower() not in (*COMPRESSIONS, ".parquet")}
        # The time left is told only where every size is known.
        known = all(path != STANDARD_INPUT and path.is_file() for path in paths)
        self._sizes = {str(path): path.stat().st_size for path in paths} if known else {}
        self._console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.fields[counts]}"),
            *((BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if known else ()),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("build", total=sum(self._sizes.values()) or None, counts="reading")
        self._start = self._told = time.monotonic()

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def update(self, progress: Progress) -> None:
        """Show how far the build is."""
        now = time.monotonic()
        seconds = max(now - self._start, 1e-3)
        counts = (
            f"{progress.documents:,} documents, {progress.tokens / 1e6:,.1f}M tokens, "
            f"{progress.bytes / 1e6 / seconds:.1f} MB/s"
        )
        if progress.skipped:
            counts += f" ({progress.skipped:,} were done)"
        self._bar.update(self._task, completed=self._behind(progress), counts=counts)
        if self._bar.disable and now - self._told > self.EVERY:
            self._told = now
            print(f"{counts}, {seconds:.0f} s", file=sys.stderr, flush=True)

    def _behind(self, progress: Progress) -> int:
        """Bytes on disk that are behind: of whole files, and of the present one where it is not compressed."""
        behind = 0
        for name, size in self._sizes.items():
            if name == progress.source:
                return behind + (min(progress.offset, size) if name in self._plain else 0)
            behind += size
        return behind


def summary(store: Store) -> str:
    """The counts of a finished store in a few lines."""
    manifest = store.manifest
    lines = [f"{store.folder}: {manifest.documents_read:,} documents read, fingerprint {store.fingerprint[:12]}"]
    lines.append(f"  {'':8}{'documents':>12}{'sentences':>14}{'words':>15}{'tokens':>15}{'shards':>8}")
    for name in SPLITS:
        split = store.split(name)
        lines.append(
            f"  {name:8}{split.num_documents:>12,}{split.num_sentences:>14,}{split.num_words:>15,}"
            f"{split.num_tokens:>15,}{len(split.shards):>8,}"
        )
    if manifest.duplicates:
        lines.append(f"  {manifest.duplicates:,} documents occurred before and were left out")
    if manifest.empty:
        lines.append(f"  {manifest.empty:,} documents had no text and were left out")
    single = sum(store.split(name).num_one_sentence for name in SPLITS)
    if single:
        lines.append(f"  {single:,} documents have one sentence: no pair can be made of them, they serve masking only")
    tokens = sum(store.split(name).num_tokens for name in SPLITS)
    unknown = sum(store.split(name).num_unknown for name in SPLITS)
    if unknown * 100 > tokens:
        lines.append(f"  {unknown / tokens:.1%} of the tokens are unknown: this tokenizer was not made for this text")
    held_out = store.split("held_out").num_documents
    if not held_out:
        lines.append("  nothing is held out: the corpus is too small for the share, or the share is 0")
    elif held_out < FEW:
        lines.append(f"  {held_out} held out: figures will rest on few documents; a larger --held-out takes more")
    return "\n".join(lines)
