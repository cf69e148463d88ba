"""Declared parameters: what is checked, and what the message names."""

from typing import Annotated, Literal

import pytest

from litebert.errors import InputError
from litebert.parameters import Param, checked, field_words, named_source


@checked
def cook(
    dish: Annotated[str, Param("What to cook.", positional=True)],
    *,
    minutes: Annotated[float | None, Param("How long.", low=1, high=600)] = None,
    eggs: Annotated[int, Param("How many eggs.", low=0)] = 2,
    heat: Annotated[Literal["low", "high"], Param("The heat.")] = "low",
    salted: Annotated[bool, Param("With salt.")] = False,
) -> dict[str, object]:
    """Cook something."""
    return {"dish": dish, "minutes": minutes, "eggs": eggs, "heat": heat, "salted": salted}


def test_good_values_pass_unchanged():
    assert cook("soup", minutes=10, eggs=0, heat="high", salted=True)["minutes"] == 10
    assert cook("soup")["minutes"] is None


@pytest.mark.parametrize(
    ("arguments", "parameter", "named"),
    [
        ({"minutes": 0}, "minutes", "from 1 to 600"),
        ({"minutes": float("nan")}, "minutes", "nan"),
        ({"minutes": float("inf")}, "minutes", "inf"),
        ({"minutes": "ten"}, "minutes", "'ten'"),
        ({"eggs": -1}, "eggs", "-1"),
        ({"eggs": 2.5}, "eggs", "2.5"),
        ({"eggs": True}, "eggs", "True"),
        ({"eggs": 10**30}, "eggs", "whole number"),
        ({"eggs": None}, "eggs", "missing"),
        ({"heat": "medium"}, "heat", "low, high"),
        ({"egs": 3}, "egs", "did you mean 'eggs'"),
    ],
)
def test_wrong_values_name_the_parameter_and_the_value(arguments, parameter, named):
    with pytest.raises(InputError, match=named) as error:
        cook("soup", **arguments)
    assert error.value.parameter == parameter


def test_numpy_numbers_are_numbers():
    import numpy as np

    assert cook("soup", eggs=np.int64(3), minutes=np.float32(2))["eggs"] == 3


def test_fields_are_given_as_a_dict_or_as_words():
    assert field_words({"rate": 1e-3, "betas": [0.9, 0.98], "schedule": "linear"}) == [
        "rate=0.001",
        "betas=[0.9, 0.98]",
        "schedule=linear",
    ]
    assert field_words(["rate=1"]) == ["rate=1"] and field_words(None) == []
    with pytest.raises(InputError, match="rate=1"):
        field_words("rate=1")


@pytest.mark.parametrize(
    ("words", "name", "source"),
    [
        ("runs/small", "small", "runs/small"),
        ("runs/tickets/model", "tickets", "runs/tickets/model"),
        ("/model", "model", "/model"),  # as in a container: no parent has a better name
        ("en=/model", "en", "/model"),
    ],
)
def test_the_name_of_a_model(words, name, source):
    assert named_source(words) == (name, source)
