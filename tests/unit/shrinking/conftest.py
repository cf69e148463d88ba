"""What tests of dropping layers share."""

from toy_layers import model_folder, table, text

__all__ = ["model_folder", "table", "text"]
