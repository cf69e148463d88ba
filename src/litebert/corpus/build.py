"""From raw text to a token store: the reader, the worker processes and the shard writers put together.

The store is readable up to what it lists at any moment; it says itself whether it is complete. A build that was stopped
goes on when it is run again and ends with the same bytes as one that was not.
"""

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from litebert.corpus.filling import SplitWriter
from litebert.corpus.ordered import OrderedPool
from litebert.corpus.selection import Batch, Reader, Selection
from litebert.corpus.sentences import Languages, sentence_splitter
from litebert.corpus.shards import PART
from litebert.corpus.store import FORMAT, SPLITS, STORE_FILE, TOKENIZER_FOLDER, Manifest, Origin, ShardEntry, Store
from litebert.corpus.tokenise import RawDocument, Tokenised, Tools, special_ids, start_worker, tokenise
from litebert.corpus.word_starts import word_features
from litebert.data.files import STANDARD_INPUT, Errors
from litebert.errors import InputError
from litebert.runs import DISK_FULL, sync_folder
from litebert.text.documents import expand
from litebert.text.normalise import Rules, check_rules
from litebert.text.tokenizers import Tokenizer, read_tokenizer


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """What of a build decides the bytes of the store, beside the text and the tokenizer."""

    languages: tuple[str, ...] = ()
    normalisation: Rules = "none"  # beyond that of the tokenizer, which a model meets in use, too
    field: str = "text"
    errors: Errors = "strict"
    deduplicate: bool = True
    held_out: float = 0.01
    seed: int = 0
    shard_tokens: int = 1 << 23

    def __post_init__(self) -> None:
        check_rules(self.normalisation)
        if not 0 <= self.held_out < 1:
            raise InputError(
                f"held_out is {self.held_out:g} but must be a share from 0 to below 1 (or 0% to below 100%)"
            )
        if not 1 <= self.shard_tokens <= 1 << 31:
            raise InputError(f"shard_tokens is {self.shard_tokens} but must be from 1 to {1 << 31}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a build is."""

    documents: int
    passed_over: int  # of those, already in the store when it began
    tokens: int  # made by this run
    bytes: int
    source: str
    offset: int  # bytes of the source that are behind


def build_store(
    sources: Sequence[str],
    tokenizer_folder: Path,
    folder: Path,
    settings: BuildSettings | None = None,
    *,
    workers: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Store:
    """Make the store, or finish one that was begun; ``workers`` (all cores) does not change a byte of it."""
    settings = settings or BuildSettings()
    languages = Languages(settings.languages)
    sentence_splitter()  # say now, not in a worker, that the library is missing
    tokenizer = read_tokenizer(tokenizer_folder)
    origin = _origin(sources, tokenizer, languages, settings)
    selection = Selection(
        sources=sources,
        field=settings.field,
        errors=settings.errors,
        languages=languages,
        deduplicate=settings.deduplicate,
        held_out=settings.held_out,
        seed=settings.seed,
    )
    tools = Tools(folder / TOKENIZER_FOLDER, tokenizer.family, settings.normalisation, word_features(tokenizer))
    with _locked(folder):
        try:
            manifest = _begin(folder, origin, tokenizer)
            if not manifest.complete:
                with closing(_Build(folder, manifest, selection, tools, settings.shard_tokens)) as build:
                    build.run(workers or available_cores(), report)
        except OSError as error:
            if error.errno in DISK_FULL:
                raise InputError(_disk_full(folder, error)) from None
            raise
    return Store.open(folder)


def _disk_full(folder: Path, error: OSError) -> str:
    """What to say where there is no room left."""
    shards = Manifest.read(folder).shards if (folder / STORE_FILE).is_file() else ()
    tokens = sum(entry.tokens for entry in shards)
    return (
        f"no room left to write {folder} ({os.strerror(error.errno or errno.ENOSPC)}); {len(shards)} shards with "
        f"{tokens:,} tokens are whole and stay; free some space and run the same command again to go on"
    )


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Build:
    """A build under way."""

    def __init__(self, folder: Path, manifest: Manifest, selection: Selection, tools: Tools, shard_tokens: int) -> None:
        self._folder = folder
        self._tools = tools
        self._manifest = manifest
        self._reader = Reader(selection, manifest.shards)
        self._writers = {
            split: SplitWriter(
                folder,
                split,
                number=sum(entry.split == split for entry in manifest.shards),
                shard_tokens=shard_tokens,
                vocab_size=manifest.vocab_size,
                unknown_id=manifest.special_ids["unk"],
            )
            for split in SPLITS
        }

    def run(self, workers: int, report: Callable[[Progress], None]) -> None:
        """Everything from the first document to the complete store."""
        tokens = 0
        with closing(_tokenised(self._reader.batches(), self._tools, workers)) as results:
            for batch, result in results:
                for entry in self._writers[batch.split].add(batch, result):
                    self._list(entry)
                tokens += len(result.tokens)
                reader = self._reader
                source, offset = reader.place
                report(
                    Progress(
                        documents=reader.documents_read,
                        passed_over=reader.passed_over,
                        tokens=tokens,
                        bytes=reader.bytes_read,
                        source=source,
                        offset=offset,
                    )
                )
        for writer in self._writers.values():
            last = writer.finish()
            if last is not None:
                self._list(last)
        if not self._manifest.shards:
            raise InputError(f"the corpus is empty: none of its {self._reader.documents_read} documents has a token")
        self._complete()

    def _list(self, entry: ShardEntry) -> None:
        """From now on the shard exists."""
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

    def close(self) -> None:
        """Leave no half-written shard."""
        for writer in self._writers.values():
            writer.discard()


def _tokenised(batches: Iterator[Batch], tools: Tools, workers: int) -> Generator[tuple[Batch, Tokenised]]:
    """The batches with their tokens, in order; one worker is this process itself."""
    if workers == 1:
        before = os.environ.get("TOKENIZERS_PARALLELISM")
        start_worker(tools)
        try:
            for batch in batches:
                yield batch, tokenise(batch.documents)
        finally:
            if before is None:
                del os.environ["TOKENIZERS_PARALLELISM"]
            else:
                os.environ["TOKENIZERS_PARALLELISM"] = before
        return
    pool: OrderedPool[Sequence[RawDocument], Tokenised, Tools] = OrderedPool(workers, start_worker, tools, tokenise)
    try:
        yield from pool.run((batch, batch.documents) for batch in batches)
    finally:
        pool.stop()


def _origin(sources: Sequence[str], tokenizer: Tokenizer, languages: Languages, settings: BuildSettings) -> Origin:
    """What makes this store."""
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
            "sentencex": version("sentencex"),  # another version may cut other sentences
        },
        sources=[str(path) for path in paths],
        source_bytes=[-1 if path == STANDARD_INPUT or not path.is_file() else path.stat().st_size for path in paths],
    )


def _begin(folder: Path, origin: Origin, tokenizer: Tokenizer) -> Manifest:
    """A store to write to: a new one, or the one that is there when the same things made it."""
    _clean(folder)
    manifest = Manifest.read(folder) if (folder / STORE_FILE).exists() else None
    if manifest is None and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty and is no token store; choose another folder")
    if manifest is not None and manifest.shards:
        _compare(folder, manifest.origin, origin)
        if manifest.complete:
            return manifest
    else:  # nothing there, or a build that failed before it had anything to show
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


def _clean(folder: Path) -> None:
    """Drop what a killed build may have left under temporary names."""
    for path in folder.glob(f".{STORE_FILE}.*"):
        path.unlink()


def _remove_unlisted(folder: Path, manifest: Manifest) -> None:
    """Drop shards that were being written, or written and not yet listed, when a build was killed."""
    listed = {entry.name for entry in manifest.shards}
    shard = re.compile(rf"({'|'.join(SPLITS)})-\d{{5,}}({re.escape(PART)})?")
    for path in folder.iterdir():
        if path.is_dir() and path.name not in listed and shard.fullmatch(path.name):
            shutil.rmtree(path)


def _compare(folder: Path, there: Origin, here: Origin) -> None:
    """An error that says what differs, unless the same things made the store."""
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
            f"{folder} holds a store made in another way: {'; '.join(different)}; choose another folder or delete it"
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder, made where it is missing, for this build alone."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; the output of a build is a folder")
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another build is writing {folder}; wait for it or stop it") from None
        yield
    finally:
        os.close(handle)
