"""How the results of dropping layers and of looking at layers are printed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from litebert.parameters import Param

if TYPE_CHECKING:
    pass

AsJson = Annotated[bool, Param("Print JSON.", option="json")]
Html = Annotated[Path | None, Param("Write a page to this file.", metavar="FILE")]
