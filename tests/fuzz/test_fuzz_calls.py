"""Malformed calls of every command: none may trace back, hang, leave something behind or be vague.

A spread of 300 of them runs in ``make test``, all of them in ``make test-slow``.
"""

import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from fuzz_calls import CALLS, UNTRIED, Call, all_calls, commands, make_world, run_call, snapshot

FEW = 300


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    return make_world(tmp_path_factory.mktemp("fuzz") / "world")


def failures(calls: list[Call], world: Path, folder: Path) -> list[str]:
    """What is wrong with these calls."""
    found, before = [], snapshot(world)
    for number, call in enumerate(calls):
        inside = folder / str(number)
        inside.mkdir()
        found += run_call(call, inside, before, world)
        shutil.rmtree(inside)
    return found


def spread(calls: list[Call], count: int) -> list[Call]:
    """Some of the calls, of every command equally many as far as it has them, evenly from first to last."""
    by_command = defaultdict(list)
    for call in calls:
        by_command[call.command].append(call)
    each = -(-count // len(by_command))
    return [some[i * len(some) // each] for some in by_command.values() for i in range(min(each, len(some)))]


def test_every_command_has_a_call_that_works():
    """A new command needs a line in ``CALLS``, or a reason in ``UNTRIED``."""
    assert {name for name, _ in commands()} == {*CALLS, *UNTRIED}


def test_a_spread_of_malformed_calls(world, tmp_path):
    calls = spread(all_calls(world), FEW)
    assert len(calls) >= FEW - len(CALLS)
    found = failures(calls, world, tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(CALLS))
def test_all_malformed_calls(command, world, tmp_path):
    calls = [call for call in all_calls(world) if call.command == command]
    found = failures(calls, world, tmp_path)
    assert not found, "\n".join(found)
