"""What tests of the lab share with those of the product."""

from toy_layers import model_folder, table, text
from toy_letters import letter_tokenizer
from toy_stories import store

__all__ = ["letter_tokenizer", "model_folder", "store", "table", "text"]
