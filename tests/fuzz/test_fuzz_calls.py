"""Malformed calls of every command: none may trace back, hang, leave something behind or be vague.

A spread of 300 of them runs in ``make test``, all of them in ``make test-slow``.
"""

import random
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from call_server import CallServer
from fuzz_calls import CALLS, Call, all_calls, commands, make_world, run_call, snapshot

FEW = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with CallServer(tmp_path_factory.mktemp("server") / "scratch") as server:
        yield server


@pytest.fixture(scope="module")
def world(tmp_path_factory, server) -> Path:
    return make_world(tmp_path_factory.mktemp("fuzz") / "world", server)


def failures(calls: list[Call], world: Path, folder: Path, server: CallServer) -> list[str]:
    """What is wrong with these calls."""
    found, before = [], snapshot(world)
    for number, call in enumerate(calls):
        inside = folder / str(number)
        inside.mkdir()
        found += run_call(server, call, inside)
        now = snapshot(world)
        if now != before:
            found.append(f"{call}: changed {sorted(dict(now.items() ^ before.items()))[:4]}")
            before = now
        shutil.rmtree(inside)
    return [one.replace(str(world), "W") for one in found]


def spread(calls: list[Call], count: int) -> list[Call]:
    """Some of the calls, drawn from a fixed seed, of every command equally many."""
    by_command = defaultdict(list)
    for call in calls:
        by_command[call.command].append(call)
    each = -(-count // len(by_command))
    return [call for some in by_command.values() for call in random.Random(0).sample(some, min(each, len(some)))]


def test_every_command_has_a_call_that_works():
    """A new command needs a line in ``CALLS``."""
    assert {name for name, _ in commands()} == {*CALLS}


def test_a_spread_of_malformed_calls(world, tmp_path, server):
    calls = spread(all_calls(world), FEW)
    assert len(calls) >= FEW - len(CALLS)
    found = failures(calls, world, tmp_path, server)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(CALLS))
def test_all_malformed_calls(command, world, tmp_path, server):
    calls = [call for call in all_calls(world) if call.command == command]
    found = failures(calls, world, tmp_path, server)
    assert not found, "\n".join(found)
