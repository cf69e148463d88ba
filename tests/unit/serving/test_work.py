"""The queue of work: turns, bounds in tokens and in time, giving up, batches for a GPU, errors of one job."""

import time

import pytest

from litebert.errors import InputError
from litebert.serving.messages import Refusal
from litebert.serving.work import CPU, GPU, Job, Piece, Question, Workers, WorkQueue


class Letters(Question):
    """Each letter of a word is a piece of a token; running gives capital letters."""

    model = "letters"

    def __init__(self, word: str, *, lane: str = CPU, group: object = None, second_each: float = 0.0) -> None:
        self.word, self.lane, self.group, self.second_each = word, lane, group, second_each
        self.runs: list[list[str]] = []

    def estimate(self) -> int:
        return len(self.word)

    def prepare(self, wanted) -> list[Piece]:
        if "?" in self.word:
            raise InputError("a question mark")
        return [Piece(letter, 1) for letter in self.word]

    def run(self, payloads):
        self.runs.append(list(payloads))
        if "!" in payloads:
            raise ValueError("secret")
        return [payload.upper() for payload in payloads]

    def write(self, result, number):
        return result

    def close(self, results, tokens):
        return "".join(results).encode()

    def cost(self, tokens):
        return self.second_each * tokens

    def observe(self, tokens, seconds):
        pass


def job_of(question: Question, found: list | None = None, seconds: float = 60.0) -> Job:
    return Job(
        question, time.monotonic() + seconds, lambda job, answer: None if found is None else found.append(answer)
    )


def until(condition) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError


def test_answers_in_the_order_of_pieces_whatever_the_number_of_threads():
    queue, found = WorkQueue(1000, 3), []
    workers = Workers(queue, 3)
    words = ["abc", "", "defghijklmnop"] * 20
    for word in words:
        queue.submit(job_of(Letters(word), found))
    until(lambda: len(found) == len(words))
    assert sorted(found) == sorted(word.upper().encode() for word in words)
    assert (queue.tokens, queue.jobs, workers.alive) == (0, 0, True)
    workers.close()


def test_jobs_take_turns_so_that_a_short_one_is_not_held_up():
    queue = WorkQueue(1000, 1)
    long, short = job_of(Letters("abcdefgh")), job_of(Letters("xy"))
    for job in (long, short):
        queue.submit(job)
    for _ in range(2):
        [(job, number)] = queue.take(CPU)
        assert number == -1
        assert queue.ready(job, job.question.prepare(lambda: True), CPU) is None
    taken = [queue.take(CPU)[0] for _ in range(5)]
    assert [(job is short, number) for job, number in taken] == [
        (False, 0), (True, 0), (False, 1), (True, 1), (False, 2)
    ]  # fmt: skip


def test_the_bound_in_tokens():
    queue = WorkQueue(10, 1)
    with pytest.raises(Refusal, match="split it") as refused:
        queue.submit(job_of(Letters("a" * 11)))
    assert refused.value.status == 413
    first = job_of(Letters("a" * 7))
    queue.submit(first)
    with pytest.raises(Refusal) as refused:
        queue.submit(job_of(Letters("abcd")))
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    assert queue.end(first)
    assert not queue.end(first)
    queue.submit(job_of(Letters("abcd")))
    assert (queue.tokens, queue.jobs) == (4, 1)


def test_the_bound_in_time():
    """What would be answered too late is refused at once, with the time until about half is done."""
    queue = WorkQueue(1000, 2)
    queue.submit(job_of(Letters("a" * 100, second_each=0.1), seconds=1.0))  # alone it may try
    assert queue.wait == pytest.approx(5)
    with pytest.raises(Refusal) as refused:
        queue.submit(job_of(Letters("a", second_each=0.1), seconds=6.0))
    assert (refused.value.status, refused.value.retry_after) == (429, 3)
    queue.submit(job_of(Letters("a", second_each=0.1), seconds=10.0))


def test_what_is_given_up_is_not_started():
    queue, found = WorkQueue(1000, 1), []
    job, other, late = job_of(Letters("ab"), found), job_of(Letters("cd"), found), job_of(Letters("ef"), found)
    for one in (job, late, other):
        queue.submit(one)
    queue.end(job)
    late.deadline = 0.0
    workers = Workers(queue, 1)
    until(lambda: len(found) == 2)
    workers.close()
    assert job.question.runs == late.question.runs == []
    assert found[1] == b"CD" and found[0].status == 504
    assert queue.tokens == 0


def test_a_gpu_gets_batches_of_what_can_run_together():
    queue, found = WorkQueue(100_000, 1), []
    same = [Letters("abc", lane=GPU, group="x"), Letters("de", lane=GPU, group="x")]
    other = Letters("fg", lane=GPU, group="y")
    for question in (same[0], other, same[1]):
        job = job_of(question, found)
        queue.submit(job)
        [(job, _)] = queue.take(CPU)
        queue.ready(job, question.prepare(lambda: True), CPU)
    workers = Workers(queue, 0, gpu=True)
    until(lambda: len(found) == 3)
    workers.close()
    assert sorted(found) == [b"ABC", b"DE", b"FG"]
    assert [sorted(run) for run in same[0].runs] == [["a", "b", "c", "d", "e"]] and same[1].runs == []
    assert other.runs == [["f", "g"]]


def test_errors_end_one_job_and_no_thread(caplog):
    queue, found = WorkQueue(1000, 1), []
    workers = Workers(queue, 1)
    for word in ("ab!", "a?", "ok"):
        queue.submit(job_of(Letters(word), found))
    until(lambda: len(found) == 3)
    by_status = {answer.status: answer for answer in found if isinstance(answer, Refusal)}
    assert by_status[422].message == "a question mark"
    assert "secret" not in by_status[500].message and "secret" in caplog.text
    assert b"OK" in found and workers.alive and queue.tokens == 0
    workers.close()


def test_threads_end_when_the_queue_is_closed():
    workers = Workers(WorkQueue(10, 2), 2)
    workers.close()
    assert not workers.alive
