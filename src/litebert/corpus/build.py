"""From raw text to a token store: reader, worker processes and shard writers put together.

The listed shards of a store can be read at any moment, and the store records whether it is complete. A build that was
stopped resumes when it is run again and ends with the same bytes as one that was not.
"""

import errno
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from litebert.cluster import HERE, map_stream
from litebert.corpus.documents import DocumentBatch, Reader
from litebert.corpus.sentences import Languages, sentence_splitter
from litebert.corpus.settings import BuildSettings
from litebert.corpus.store import FORMAT, SPLITS, STORE_FILE, TOKENIZER_FOLDER, Manifest, Origin, ShardEntry, Store
from litebert.corpus.store_writer import PART, SplitWriter
from litebert.corpus.tokenise import Tokenised, TokeniseDocuments, special_ids
from litebert.data.files import COMPRESSIONS, STANDARD_INPUT, is_url, locate, upload
from litebert.errors import InputError
from litebert.runs import DISK_FULL, locked_folder, sync_folder
from litebert.terminal import LIVE, console, expect_silence
from litebert.text.documents import expand
from litebert.text.tokenizer_files import Tokenizer, read_tokenizer

__all__ = ["BuildSettings", "Display", "Progress", "build_store"]

log = logging.getLogger(__name__)

_SHARD = re.compile(rf"({'|'.join(SPLITS)})-\d{{5,}}")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is."""

    documents: int
    skipped: int  # of those, already in the store when this run began
    tokens: int  # made by this run
    bytes: int
    source: str
    offset: int  # bytes of the source that were read


def build_store(
    sources: Sequence[str],
    tokenizer_folder: Path,
    folder: Path | str,
    settings: BuildSettings | None = None,
    *,
    workers: int = 0,
    on: str = HERE,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Store:
    """Make a store, or finish one that was begun; where and by how many workers (0: one per core) changes no byte.

    A ``folder`` that is a URL gets each shard when it is complete; this machine needs room for two shards.
    """
    settings = settings or BuildSettings()
    if not is_url(folder):
        return _build(sources, tokenizer_folder, Path(folder), settings, workers, on, report)
    url = locate(folder)
    with tempfile.TemporaryDirectory(prefix="litebert-store-") as temporary:
        here = Path(temporary)
        _fetch_manifest(url, here)

        def publish(name: str) -> None:
            upload(here / name, url / name)
            if _SHARD.fullmatch(name):
                shutil.rmtree(here / name)

        built = _build(sources, tokenizer_folder, here, settings, workers, on, report, publish)
    return Store(url, built.manifest)


def _fetch_manifest(url: Path, folder: Path) -> None:
    """What a URL has of a store that was begun; an error where it holds something else."""
    if (url / STORE_FILE).exists():
        (folder / STORE_FILE).write_bytes((url / STORE_FILE).read_bytes())
        return
    others = [path.name for path in url.iterdir()] if url.exists() else []
    if any(name != TOKENIZER_FOLDER and not _SHARD.fullmatch(name) for name in others):
        raise InputError(f"{url} is not empty and not a token store; choose another folder")


def _build(
    sources: Sequence[str],
    tokenizer_folder: Path,
    folder: Path,
    settings: BuildSettings,
    workers: int,
    on: str,
    report: Callable[[Progress], None],
    publish: Callable[[str], None] = lambda name: None,
) -> Store:
    """The same for a folder; ``publish`` gets the names of what is complete in it: shards, then what lists them."""
    languages = Languages(settings.languages)
    sentence_splitter()  # report a missing library now, not in a worker
    tokenizer = read_tokenizer(tokenizer_folder)
    origin = _origin(sources, tokenizer, languages, settings)
    with locked_folder(folder, "build"):
        begun_here = not any(folder.iterdir())
        try:
            manifest = _begin(folder, origin, tokenizer)
            if not manifest.complete:
                tokenise = TokeniseDocuments.of(folder / TOKENIZER_FOLDER, tokenizer, settings.normalisation)
                with closing(_Build(folder, manifest, sources, settings, publish)) as build:
                    build.run(tokenise, workers, on, report)
        except BaseException as error:
            full = _disk_full(folder, error) if isinstance(error, OSError) and error.errno in DISK_FULL else ""
            if begun_here:
                _forget(folder)
            if full:
                raise InputError(full) from None
            raise
    return Store.open(folder)


def _disk_full(folder: Path, error: OSError) -> str:
    """The error for a full disk."""
    shards = Manifest.read(folder).shards if (folder / STORE_FILE).is_file() else ()
    tokens = sum(entry.tokens for entry in shards)
    return (
        f"no room left to write {folder} ({os.strerror(error.errno or errno.ENOSPC)}); {len(shards)} shards with "
        f"{tokens:,} tokens are complete; free some space and run the same command again to resume"
    )


def _forget(folder: Path) -> None:
    """Remove a build that failed before its first shard: there is nothing to resume."""
    if (folder / STORE_FILE).is_file() and not Manifest.read(folder).shards:
        shutil.rmtree(folder / TOKENIZER_FOLDER, ignore_errors=True)
        (folder / STORE_FILE).unlink()


class _Build:
    """A running build."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        sources: Sequence[str],
        settings: BuildSettings,
        publish: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._publish = publish
        self._reader = Reader(sources, settings, manifest.shards)
        self._writers = {
            split: SplitWriter(
                folder,
                split,
                number=sum(entry.split == split for entry in manifest.shards),
                shard_tokens=settings.shard_tokens,
                vocab_size=manifest.vocab_size,
                unknown_id=manifest.special_ids["unk"],
            )
            for split in SPLITS
        }

    def run(self, tokenise: TokeniseDocuments, workers: int, on: str, report: Callable[[Progress], None]) -> None:
        """Everything from the first document to the complete store."""
        tokens, reader = 0, self._reader
        with closing(_tokenised(reader.batches(), tokenise, workers, on)) as results:
            for batch, result in results:
                for entry in self._writers[batch.split].add(batch, result):
                    self._list(entry)
                tokens += len(result.tokens)
                report(Progress(reader.documents_read, reader.skipped, tokens, reader.bytes_read, *reader.place))
        for writer in self._writers.values():
            for entry in writer.finish():
                self._list(entry)
        if not self._manifest.shards:
            raise InputError(f"the corpus is empty: none of its {self._reader.documents_read} documents has a token")
        self._complete()

    def _list(self, entry: ShardEntry) -> None:
        """Add a shard to ``store.json``."""
        self._publish(entry.name)
        if not self._manifest.shards:
            self._publish(TOKENIZER_FOLDER)
        shards = sorted((*self._manifest.shards, entry), key=lambda each: (SPLITS.index(each.split), each.handled))
        self._write(replace(self._manifest, shards=tuple(shards)))

    def _complete(self) -> None:
        origin = replace(self._manifest.origin, content=self._reader.content)
        self._write(replace(self._manifest, complete=True, origin=origin, fingerprint=origin.fingerprint()))

    def _write(self, manifest: Manifest) -> None:
        reader = self._reader
        kept = sum(entry.documents for entry in manifest.shards)
        self._manifest = replace(
            manifest,
            documents_read=reader.documents_read,
            duplicates=reader.duplicates,
            empty=reader.distinct - kept if manifest.complete else 0,
        )
        self._manifest.write(self._folder)
        sync_folder(self._folder)
        self._publish(STORE_FILE)

    def close(self) -> None:
        """Delete half-written shards."""
        for writer in self._writers.values():
            writer.discard()


def _tokenised(
    batches: Iterator[DocumentBatch], tokenise: TokeniseDocuments, workers: int, on: str
) -> Generator[tuple[DocumentBatch, Tokenised]]:
    """The batches with their tokens, in order."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    try:
        yield from map_stream(tokenise, batches, on=on, workers=workers, sent=lambda batch: batch.documents)
    finally:  # a single worker is this process itself
        os.environ.pop("TOKENIZERS_PARALLELISM", None)
        if before is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def _origin(sources: Sequence[str], tokenizer: Tokenizer, languages: Languages, settings: BuildSettings) -> Origin:
    """What the store is made from."""
    paths = expand(sources)
    return Origin(
        tokenizer=tokenizer.fingerprint,
        normalisation=settings.normalisation,
        languages=languages.listed(),
        settings={
            "field": settings.field,
            "errors": settings.errors,
            "deduplicate": settings.deduplicate,
            "held_out": settings.held_out,
            "seed": settings.seed,
            "shard_tokens": settings.shard_tokens,
            "sentencex": version("sentencex"),  # another version may split sentences differently
        },
        sources=[str(path) for path in paths],
        source_bytes=[-1 if path == STANDARD_INPUT or not path.is_file() else path.stat().st_size for path in paths],
    )


def _begin(folder: Path, origin: Origin, tokenizer: Tokenizer) -> Manifest:
    """A store to write to: a new one, or the one in the folder if it was made from the same things."""
    for path in folder.glob(f".{STORE_FILE}.*"):  # left by a killed build under a temporary name
        path.unlink()
    manifest = Manifest.read(folder) if (folder / STORE_FILE).exists() else None
    if manifest is None and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty and not a token store; choose another folder")
    if manifest is not None and manifest.shards:
        _compare(folder, manifest.origin, origin)
        if manifest.complete:
            return manifest
    else:  # nothing there, or a build that failed before its first shard
        manifest = Manifest(
            format=FORMAT,
            complete=False,
            fingerprint="",
            origin=origin,
            vocab_size=tokenizer.vocab_size,
            special_ids=special_ids(tokenizer),
            documents_read=0,
            duplicates=0,
            empty=0,
            shards=(),
        )
        manifest.write(folder)
    _remove_unlisted(folder, manifest)
    copy = folder / TOKENIZER_FOLDER
    shutil.rmtree(copy, ignore_errors=True)
    tokenizer.save(copy)
    return manifest


def _remove_unlisted(folder: Path, manifest: Manifest) -> None:
    """Delete shards that were being written, or not yet listed, when a build was killed."""
    listed = {entry.name for entry in manifest.shards}
    for path in folder.iterdir():
        if path.is_dir() and path.name not in listed and _SHARD.fullmatch(path.name.removesuffix(PART)):
            shutil.rmtree(path)


def _compare(folder: Path, there: Origin, here: Origin) -> None:
    """An error that lists the differences, unless the store was made from the same things."""
    pairs = {
        "the tokenizer": (there.tokenizer, here.tokenizer),
        "the normalisation": (there.normalisation, here.normalisation),
        "the language": (", ".join(there.languages), ", ".join(here.languages)),
        "the list of files": (", ".join(there.sources), ", ".join(here.sources)),
        "the size of the files": (there.source_bytes, here.source_bytes),
        **{name: (there.settings.get(name), here.settings.get(name)) for name in (there.settings | here.settings)},
    }
    different = [f"{name} is {old} there and {new} here" for name, (old, new) in pairs.items() if old != new]
    if different:
        raise InputError(
            f"{folder} holds a store made differently: {'; '.join(different)}; choose another folder or delete it"
        )


class Display:
    """A live line about a build on standard error; where there is no terminal, a log line every 30 seconds."""

    EVERY = 30.0  # seconds

    def __init__(self, corpus: Sequence[str]) -> None:
        from rich.progress import BarColumn, ProgressColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        paths = expand(corpus)
        self._plain = {str(path) for path in paths if path.suffix.lower() not in (*COMPRESSIONS, ".parquet")}
        known = all(path != STANDARD_INPUT and path.is_file() for path in paths)
        self._sizes = {str(path): path.stat().st_size for path in paths} if known else {}
        columns: list[ProgressColumn] = [TextColumn("{task.fields[counts]}")]
        if known:  # only then can the time left be computed
            columns += [BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
        self._bar = Bar(*columns, console=console(), disable=not console().is_terminal, transient=True)
        self._task = self._bar.add_task("build", total=sum(self._sizes.values()) or None, counts="reading")
        self._start = self._logged = time.monotonic()

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, progress: Progress) -> None:
        """Show how far the build is."""
        now = time.monotonic()
        seconds = max(now - self._start, 1e-3)
        megabytes = progress.bytes / 1e6 / seconds
        counts = f"{progress.documents:,} documents, {progress.tokens / 1e6:,.1f}M tokens, {megabytes:.1f} MB/s"
        if progress.skipped:
            counts += f" ({progress.skipped:,} were done)"
        self._bar.update(self._task, completed=self._bytes_done(progress), counts=counts)
        if not self._bar.disable:
            expect_silence(LIVE)
        if self._bar.disable and now - self._logged > self.EVERY:
            self._logged = now
            log.info(f"{counts}, {seconds:.0f} s")

    def _bytes_done(self, progress: Progress) -> int:
        """Bytes on disk that were read: of whole files, and of the present one where it is not compressed."""
        done = 0
        for name, size in self._sizes.items():
            if name == progress.source:
                return done + (min(progress.offset, size) if name in self._plain else 0)
            done += size
        return done
