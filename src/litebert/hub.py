"""Model folders from the Hugging Face Hub: the local cache first, else a download where that is allowed."""

import re
from pathlib import Path

from litebert.errors import InputError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # owner/name
WANTED = ("*.json", "*.safetensors", "*.txt", "*.model")
PICKLES = ("*.json", "*.bin", "*.txt", "*.model")  # where a repository has no safetensors
UNWANTED = ("onnx/*", "openvino/*", "coreml/*", "original/*", "*.onnx", "*.msgpack", "training_args.bin", "optimizer.*")


def is_hub_name(source: str) -> bool:
    """Whether a text has the form of a Hub name, ``owner/name``."""
    return NAME.fullmatch(source) is not None


def hub_folder(name: str) -> Path:
    """The folder of a Hub model in the cache, downloaded if it is not there yet (not with ``HF_HUB_OFFLINE=1``)."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise InputError(
            f"there is no folder '{name}', and to load it from the Hub needs huggingface_hub: "
            "pip install 'litebert[hub]'"
        ) from None
    reason = ""
    for patterns, cached in ((WANTED, True), (PICKLES, True), (WANTED, False), (PICKLES, False)):
        try:
            found = snapshot_download(
                name, local_files_only=cached, allow_patterns=list(patterns), ignore_patterns=list(UNWANTED)
            )
        except (OSError, ValueError, RuntimeError) as error:  # not cached, not found, no network, no access
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            continue
        folder = Path(found)
        if (folder / "config.json").is_file() and _has_weights(folder):
            return folder
        reason = "it holds no config.json with weights (model.safetensors or pytorch_model.bin)"
    raise InputError(f"there is no folder '{name}', and it could not be loaded from the Hub ({reason})")


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin"))
