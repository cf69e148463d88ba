"""Malformed calls of every command, made from the signatures: a small call that works, with one thing wrong in it.

``run_call`` makes one in a process of its own, with a limit on time and memory, and says what is wrong with how it
ended: a traceback, a call that does not end, something left behind, or a message that names neither the value nor the
parameter.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer
from call_server import SECONDS, CallServer
from hostile import FIELDS, HALF, NUMBERS, PATHS, WORDS, write_hostile_files
from toy_stories import document

from litebert.cli import app

SHAPE = ("num_layers=2", "width=32", "num_heads=2", "feed_forward_width=64", "embedding_width=16", "max_positions=64")
QUICK = ("steps=1", "scores=1", "batch=4")

# For each command the words of a call that works in a fraction of a second, {} being the world below.
CALLS: dict[str, tuple[str, ...]] = {
    "tokenizer train": ("{}/text.txt", "--vocab-size", "50", "-o", "out"),
    "tokenizer try": ("{}/words", "First the cat"),
    "tokenizer fertility": ("{}/words", "--on", "{}/text.txt"),
    "corpus build": ("{}/text.txt", "--tokenizer", "{}/words", "--workers", "1", "-o", "out"),
    "corpus look": ("{}/store", "--length", "32", "--batch-tokens", "256"),
    "corpus verify": ("{}/store",),
    "ls": (),
    "plan": ("albert-tiny", "--device", "cpu"),
    "pretrain": ("albert-tiny", *SHAPE, "batches.tokens=256", "batches.lengths=32", "--corpus", "{}/store", "--steps",
                 "1", "--no-compile", "--budget", "20s", "-o", "out"),
    "lengthen": ("{}/model", "--to", "600", "-o", "out"),
    "runs": ("{}",),
    "finetune": ("{}/model", "--data", "{}/table.csv", *QUICK, "--budget", "3s", "-o", "out"),
    "evaluate": ("{}/tuned", "--data", "{}/table.csv"),
    "predict": ("{}/tuned", "{}/new.csv", "-o", "out.jsonl"),
    "encode": ("{}/model", "{}/new.csv", "--text", "text", "-o", "out.npy"),
    "fill": ("{}/model", "First the [MASK] woke up ."),
    "order": ("{}/model", "First the cat woke up .", "Last the cat went home ."),
    "shrink": ("{}/model", "--drop", "1", "-o", "out"),
    "distill": ("{}/tuned", "--data", "{}/table.csv", "--drop", "1", *QUICK, "-o", "out"),
    "exits": ("{}/tuned", "--data", "{}/table.csv", "--items", "20", "-o", "out"),
    "layers": ("{}/model", "--texts", "{}/few.txt"),
    "show": ("albert-tiny",),
    "convert": ("{}/model", "out"),
    "export": ("{}/tuned", "--no-standard", "-o", "out"),
    "serve": ("{}/small", "--port", "0", "--grace", "0", "--threads", "1"),  # stopped as soon as it answers
    "page": ("{}/small", "-o", "out.html"),  # with an empty file for onnxruntime-web, which npm would fetch
    "card": ("{}/tuned",),
}  # fmt: skip
# Flags that no call turns on, each with the reason.
UNTRIED = {"measure": "steps that are measured take their time", "help": "prints the help, whatever else is given"}
# A second form, whose options mean nothing in the first.
OTHERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "shrink": (
        ("{}/model", "--tolerance", "50%", "--data", "{}/table.csv", "--seeds", "1", "--strategy", "top", *QUICK,
         "-o", "out"),
        ("{}/model", "--drop", "1", "--strategy", "greedy", "--texts", "{}/few.txt", "-o", "out"),
    ),
    "evaluate": (("{}/model", "--corpus", "{}/store", "--tokens", "64", "--length", "32"),),
    "finetune": (("{}/model", "--data", "{}/table.csv", "--exits", *QUICK, "-o", "out"),),
}  # fmt: skip
OUTPUTS = ("out", "html", "png")


@dataclass(frozen=True)
class Call:
    """The words of a call, and what is wrong in it: a message must name one of these."""

    command: str
    words: tuple[str, ...]
    named: tuple[str, ...]
    program: str = "litebert"

    def __str__(self) -> str:
        return " ".join(
            [self.program, self.command, *(word if len(word) < 60 else f"{word[:57]}..." for word in self.words)]
        )


def make_world(folder: Path, server: CallServer | None = None) -> Path:
    """The files that the calls name: a text, a table, a tokenizer, a store, two models, hostile files."""
    if server is None:
        with CallServer(folder.with_name(f"{folder.name}-scratch")) as server:
            return make_world(folder, server)
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    documents = [" ".join(document(draw) for _ in range(8)) for _ in range(12)]
    (folder / "text.txt").write_text("\n\n".join(documents))
    (folder / "few.txt").write_text("\n".join(documents[0].split(" . ")[:6]) + "\n")
    rows = [f"{number} {document(draw)[:60]},{('yes', 'no')[number % 2]}" for number in range(24)]
    (folder / "table.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (folder / "new.csv").write_text("\n".join(["text", *(row.rpartition(",")[0] for row in rows[:4])]) + "\n")
    _make(server, "tokenizer train", folder, "words")
    _make(server, "corpus build", folder, "store", "--held-out", "20%")
    _make(server, "pretrain", folder, "run")
    (folder / "model").symlink_to("run/model")
    _make(server, "finetune", folder, "run-tuned")
    (folder / "tuned").symlink_to("run-tuned/model")
    _make(server, "export", folder, "small")
    write_hostile_files(folder / "hostile")
    return folder


def _make(server: CallServer, command: str, world: Path, out: str, *more: str) -> None:
    given = [word.replace("{}", str(world)) for word in CALLS[command]]
    given[given.index("-o") + 1] = str(world / out)
    ended = server.call([*command.split(), *given, *more], world, seconds=300)  # numba compiles, once
    assert ended.code == 0, ended


def commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Every command that was made from a signature, with its full name."""
    stack = [("", typer.main.get_command(app))]
    while stack:
        prefix, group = stack.pop()
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                stack.append((f"{prefix}{name} ", command))
            elif not command.hidden:
                yield f"{prefix}{name}", command


def all_calls(world: Path) -> list[Call]:
    """Every command with every hostile value and file in every place, in an order that is always the same."""
    found = []
    hostile = [str(path) for path in sorted((world / "hostile").iterdir())]
    for name, command in sorted(commands()):
        forms = [CALLS[name], *OTHERS.get(name, ())]
        for form in forms:
            words = tuple(word.replace("{}", str(world)) for word in form)
            for param in command.params:
                found += list(_calls_of(name, words, param, hostile))
        words = tuple(word.replace("{}", str(world)) for word in CALLS[name])
        for param in command.params:
            found += list(_misspelt_options(name, words, param))
        found += [Call(name, wrong, named) for wrong, named in _misspelt_words(words)]
    return list(dict.fromkeys(found))


def _misspelt_options(name: str, words: tuple[str, ...], param: object) -> Iterator[Call]:
    """The calls with an option that is given in a wrong way: a flag with a value, no value, twice, in capitals."""
    if param.param_type_name != "option" or param.name in UNTRIED:
        return
    spelt = tuple({param.name, param.name.replace("_", "-"), *(flag.lstrip("-") for flag in param.opts)})
    for flag in (*param.opts, *param.secondary_opts):
        yield Call(name, (*words, flag), spelt)  # a flag is turned on; any other option lacks its value
        yield Call(name, (*words, flag, "--"), (*spelt, "--"))
        yield Call(name, (*words, flag, flag), spelt)
        yield Call(name, (*words, flag.upper()), (*spelt, flag.upper()))
        if param.is_flag:
            yield from (Call(name, (*words, f"{flag}={value}"), (*spelt, value)) for value in ("", "yes", "0", HALF))
        else:
            yield Call(name, (*words, flag, "1", flag, "2"), (*spelt, "1", "2"))


def _misspelt_words(words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Words that no command understands, or too many or too few, and what a message must name."""
    for odd in (
        "--nothing",
        "--nothing=1",
        "-Z",
        "-Z1",
        "---",
        "-",
        "--=",
        f"--{HALF}",
        "--<script>",
        "--json=",
        "one",
    ):
        heard = "'='" if odd == "--=" else odd  # of --= only the word "=" comes through
        yield (*words, odd), (odd, odd[:2], odd.lstrip("-").partition("=")[0] or heard, *words)
    yield (*words, "--", "--nothing"), ("--nothing", *words)
    yield (*words, "a.csv", "b.csv", "c.csv", "d.csv"), ("a.csv", "b.csv", "c.csv", "d.csv", "texts", *words)
    lacking = ("Missing", "missing", "give", "name")
    yield (), lacking
    for index in range(len(words)):  # each word left out
        yield (*words[:index], *words[index + 1 :]), (*lacking, *words, *(word.lstrip("-") for word in words))


def _calls_of(name: str, words: tuple[str, ...], param: object, hostile: list[str]) -> Iterator[Call]:
    """The calls with something wrong in one parameter."""
    if param.name in UNTRIED or getattr(param, "is_flag", False):
        return
    spelt = tuple({param.name, param.name.replace("_", "-"), *(flag.lstrip("-") for flag in param.opts)})
    is_path = param.name in ("data", "dev", "texts", "file", "corpus", "predictions", "cloze", "tokenizer", "on")
    values = {"NUMBER": NUMBERS, "N": NUMBERS, "TIME": NUMBERS}.get(param.metavar or "", WORDS)
    if param.name == "settings":
        values = FIELDS
    elif param.name in ("model", "models", "source", "teacher", "student", "folders", "folder", "store", "against",
                        "start", *OUTPUTS):  # fmt: skip
        values = PATHS
    if is_path or param.name in ("model", "models", "store", "teacher", "folders", "source"):
        values = (*PATHS, *hostile)
    for value in values:
        named = (value, *spelt)
        if param.param_type_name == "option":
            flag = max(param.opts, key=len)
            yield Call(name, (*words, f"{flag}={value}"), named)
        elif param.name == "settings":
            yield Call(name, (*words, value), (*named, value.partition("=")[0], value.partition(".")[0]))
        elif words and not words[0].startswith("-"):
            place = [index for index, word in enumerate(words) if not word.startswith("-")][
                : 1 + (param.name == "data")
            ]
            if param.name in ("student", "out", "text", "texts") and name not in ("predict",):
                place = [1] if len(words) > 1 and not words[1].startswith("-") else []
            for index in place[-1:]:
                if value.startswith("-"):
                    continue
                yield Call(name, (*words[:index], value, *words[index + 1 :]), named)


def run_call(server: CallServer, call: Call, folder: Path) -> list[str]:
    """Make a call in an empty folder; what is wrong with how it ended."""
    ended = server.call([*call.command.split(), *call.words], folder, call.program)
    wrong = [f"left {name}" for name in ended.left]
    if ended.code is None:
        wrong.append(f"did not end within {SECONDS:.0f} s")
    elif ended.code not in (0, 2):
        wrong.append(f"exit code {ended.code}")
    if "Traceback" in ended.said:
        wrong.append("a traceback")
    here = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    if ended.code == 2:
        wrong += _wrong_message(call, ended.said)
        if here and "resume" not in ended.said:
            wrong.append(f"left {here[:4]}")
    hidden = [name for name in here if "/." in f"/{name}"]
    if ended.code == 0 and hidden:
        wrong.append(f"left {hidden[:4]}")
    return [f"{call}: {', '.join(wrong)}: {ended.said.strip()[-400:]!r}"] if wrong else []


def _wrong_message(call: Call, said: str) -> list[str]:
    lines = [line for line in said.strip().splitlines() if line.startswith("litebert: ")]
    usage = "Usage:" in said or "\u2500 Error" in said
    if not usage and len(lines) != 1:
        return [f"{len(lines)} sentences of an error"]
    text = " ".join(said.replace("\u2502", " ").split())
    for value in call.named:
        for part in (value, Path(value).name, str(Path(value).parent)) if "/" in value else (value,):
            shown = " ".join(part.split())[:20]
            spelt = part.encode("unicode_escape", "surrogatepass").decode()[:20]
            if any(one.strip(" .") and one in text for one in (shown, spelt)):
                return []
        blank = value if value.strip() else f"'{value}'"  # a few dots, or nothing between quotes
        if not value.strip(" ./\n") and blank.replace("\n", "\\n") in said:
            return []
    if HALF in "".join(call.named) and "\\udcff" in text:
        return []
    return ["the message names neither value nor parameter"]


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Sizes and times of all files."""
    found = {}
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)  # noqa: PTH118
            note = os.lstat(path)
            found[path] = note.st_size, note.st_mtime_ns
    return found
