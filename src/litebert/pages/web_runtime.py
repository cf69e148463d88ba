"""The two files of onnxruntime-web that a page holds: fetched once with npm, kept in a cache, checked by their hashes.

The version is pinned, because a page must answer as the Python runtime does; the hashes are those of the files in the
published package, so it does not matter how they came here.
"""

import hashlib
import logging
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from litebert.errors import InputError
from litebert.pages.assemble import packed

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
SCRIPT, WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
SHA256 = {
    SCRIPT: "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    WASM: "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
SECONDS = 600  # that npm may take
OTHERWISE = f"or unpack {PACKAGE} {VERSION} from npm elsewhere and name its folder with runtime"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WebRuntime:
    """What runs a model in a browser: JavaScript and WebAssembly."""

    script: bytes
    wasm: bytes

    @cached_property
    def packed(self) -> dict[str, str]:
        """Both as a page holds them, by the ids of their elements."""
        return {"runtime-script": packed(self.script), "runtime-wasm": packed(self.wasm)}


def web_runtime(folder: Path | None = None) -> WebRuntime:
    """The files from an unpacked package, else from the cache, else from npm."""
    if folder is not None:
        return _read(_dist(folder))
    cache = cache_folder()
    if all((cache / name).is_file() for name in SHA256):
        try:
            return _read(cache)
        except InputError as error:
            log.warning("%s; fetching it again", error)
    _fetch(cache)
    return _read(cache)


def cache_folder() -> Path:
    """Where fetched files are kept: below ``LITEBERT_CACHE``, by default the user's cache folder."""
    base = os.environ.get("LITEBERT_CACHE")
    root = Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "litebert"
    return root / f"{PACKAGE}-{VERSION}"


def _dist(folder: Path) -> Path:
    """The folder of the two files in a package, or in a project that depends on it."""
    for place in (folder / "node_modules" / PACKAGE / "dist", folder / "package" / "dist", folder / "dist", folder):
        if (place / WASM).is_file():
            return place
    raise InputError(
        f"runtime is '{folder}', which does not hold {WASM}; name the unpacked package {PACKAGE} {VERSION}"
    )


def _read(folder: Path) -> WebRuntime:
    found = {}
    for name, expected in SHA256.items():
        path = folder / name
        try:
            found[name] = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); it is part of {PACKAGE} {VERSION}") from None
        if hashlib.sha256(found[name]).hexdigest() != expected:
            raise InputError(f"{path} is not the file of {PACKAGE} {VERSION} (its SHA-256 differs)")
    return WebRuntime(found[SCRIPT], found[WASM])


def _fetch(cache: Path) -> None:
    """Put the files into the cache with ``npm pack``, which runs nothing of the package."""
    npm = shutil.which("npm")
    if npm is None:
        raise InputError(f"a page needs {PACKAGE} {VERSION}, which npm fetches: install npm (Node.js), {OTHERWISE}")
    log.info("fetching %s %s with npm (33 MB, once)", PACKAGE, VERSION)
    with tempfile.TemporaryDirectory() as temporary:
        words = [npm, "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", temporary, "--ignore-scripts", "--silent"]
        try:
            ended = subprocess.run(words, cwd=temporary, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise InputError(f"npm did not fetch {PACKAGE} in {SECONDS} seconds; try again, {OTHERWISE}") from None
        archives = list(Path(temporary).glob("*.tgz"))
        if ended.returncode or not archives:
            reason = " ".join((ended.stderr or ended.stdout).split())[:200] or f"exit code {ended.returncode}"
            raise InputError(f"npm could not fetch {PACKAGE} {VERSION} ({reason}); connect to the network, {OTHERWISE}")
        unpacked = Path(temporary) / "files"
        unpacked.mkdir()
        with tarfile.open(archives[0]) as archive:
            for name in SHA256:
                source = archive.extractfile(f"package/dist/{name}")
                assert source is not None, name
                (unpacked / name).write_bytes(source.read())
        _read(unpacked)  # only what is right is kept
        cache.mkdir(parents=True, exist_ok=True)
        for name in SHA256:
            part = cache / f".{name}.{os.getpid()}"
            shutil.copyfile(unpacked / name, part)
            part.replace(cache / name)
