"""The tickets that ship with litebert: what the data card promises holds, and the checks that say so can fail."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "tickets"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    """The checking script, which lies beside the data and is no part of the package."""
    spec = importlib.util.spec_from_file_location("tickets_check", FOLDER / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tickets(check):
    return check.read_tickets(FOLDER / "tickets.csv", ["subject", "body", "queue", "language"])


@pytest.fixture(scope="module")
def fresh(check):
    return check.read_tickets(FOLDER / "new_tickets.csv", ["subject", "body", "language"])


def test_there_are_enough_tickets_in_every_language(tickets):
    languages = Counter(ticket.language for ticket in tickets)
    assert set(languages) == {"en", "ja", "ko", "zh"}
    assert languages["en"] >= 600
    assert min(languages.values()) >= 60


def test_six_queues_in_every_language_and_none_outweighs_another(tickets):
    for language in ("en", "ja", "ko", "zh"):
        queues = Counter(ticket.queue for ticket in tickets if ticket.language == language)
        assert set(queues) == {"technical", "delivery", "billing", "account", "returns", "sales"}
        assert max(queues.values()) <= 2.5 * min(queues.values())


def test_queues_and_languages_are_mixed_along_the_file(tickets):
    for start in range(0, len(tickets) - 100, 100):
        assert len({ticket.queue for ticket in tickets[start : start + 100]}) == 6
        assert len({ticket.language for ticket in tickets[start : start + 100]}) == 4


def test_lengths_run_from_a_few_words_to_a_long_mail(tickets):
    words = [len(ticket.text.split()) for ticket in tickets if ticket.language == "en"]
    assert min(words) <= 6
    assert 150 <= max(words) <= 220
    assert sum(not ticket.subject for ticket in tickets) >= 20


def test_no_faults_and_no_near_duplicates_within_and_across_the_files(check, tickets, fresh):
    assert check.faults_of([*tickets, *fresh]) == []


def test_the_answers_are_those_of_the_new_tickets(check, fresh):
    answers = check.read_tickets(FOLDER / "new_tickets_answers.csv", ["subject", "body", "queue", "language"])
    assert [(ticket.subject, ticket.body) for ticket in answers] == [(ticket.subject, ticket.body) for ticket in fresh]
    assert {ticket.queue for ticket in answers} == set(check.QUEUES)


def test_a_ticket_written_again_with_another_order_number_is_found(check, tickets):
    ticket = next(ticket for ticket in tickets if "MB-" in ticket.body and len(ticket.body) > 100)
    again = check.Ticket(
        subject="another", body=ticket.body.replace("MB-", "MB-9") + " Thanks", queue="sales", language="en"
    )
    assert len(check.near_duplicates([*tickets, again])) == 1


@pytest.mark.parametrize(
    ("body", "language", "fault"),
    [
        ("Write to me at someone@mail.example.org please", "en", "e-mail address"),
        ("See www.somewhere.test/page", "en", "web address"),
        ("My card is 4111 1111 1111 1111", "en", "long number"),
        ("I bought it at Amazon", "en", "company Amazon"),
        ("小程序打不开，微信登录失败", "zh", "company 微信"),
        ("broken\ufffdletter", "en", "replacement character"),
        ("tab\there", "en", "control character"),
        ("cafe\u0301 cups", "en", "not in NFC"),
        (" space before", "en", "begins or ends with space"),
        ("", "en", "body is empty"),
        ("届きません", "zh", "does not look like 'zh'"),
        ("where is it", "ko", "does not look like 'ko'"),
    ],
)
def test_each_kind_of_fault_is_found(check, body, language, fault):
    ticket = check.Ticket(subject="", body=body, queue="sales", language=language)
    assert any(fault in found for found in check.faults_of([ticket]))
