"""Puts the package `litebert` into the wheel of litebert-runtime, without the weights of shipped models."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LEFT_OUT = {"models", "__pycache__"}


class WithoutModels(BuildHookInterface):
    """Adds every part of the package but the models."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.root).parent / "src" / "litebert"
        for path in package.iterdir():
            if path.name not in LEFT_OUT:
                build_data["force_include"][str(path)] = f"litebert/{path.name}"
