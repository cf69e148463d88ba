"""What a pretrained model reaches on tasks at several depths: every task fine-tuned at every depth with several seeds.

    python -m litebert_lab.litebert_en.results MODEL --glue glue --squad squad --race race -o results --jobs 6

Each task at each depth is a run of `litebert finetune --seeds` in a folder of its own; several run at once, on one GPU,
too. A smaller depth is the model after `litebert shrink --drop`, which for shared layers takes nothing away but time.
Stopped or killed, the same command resumes: what is done is not done again. At the end there are results.json, which
`litebert card --results` reads, and results.md. SQuAD is the folder that examples/squad_by_article.py writes.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from litebert import cli
from litebert.checkpoints.folder import model_config
from litebert.cluster import Stopped, place_runs, run_all
from litebert.errors import InputError
from litebert.planning.count import count_parameters
from litebert.runs import LOCK_FILE, read_run
from litebert.train.clock import StopSignal
from litebert_lab.card.results import Results, cloze_score, cloze_table, main_table, read_seeds, spread_table

CLOZE = Path(__file__).parents[3] / "examples" / "cloze.jsonl"  # of the checkout
FAMILIES = {  # tasks by the option that names their data, those that take longest first
    "race": ("race-middle",),
    "squad": ("squad1",),
    "glue": ("sst2", "cola", "stsb", "mrpc", "rte"),
}


@dataclass(frozen=True)
class Job:
    """A task at a depth."""

    task: str
    depth: int
    folder: Path
    words: tuple[str, ...]  # of the command, without --resume

    def is_done(self) -> bool:
        note = read_run(self.folder)
        return note is not None and note.status == "finished"

    def command(self) -> list[str]:
        begun = self.folder.is_dir() and any(path.name != LOCK_FILE for path in self.folder.iterdir())
        return ["litebert", *self.words, *(("--resume",) if begun else ())]


def main() -> int:
    """Run what is left and write what there is; how many jobs failed."""
    asked = read_words()
    full = model_config(asked.model).encoder.num_layers
    depths = sorted({int(depth) for depth in asked.depths.split(",")} if asked.depths else {full}, reverse=True)
    if depths[0] > full or depths[-1] < 1:
        raise SystemExit(f"--depths is {asked.depths} but the model has depths 1 to {full}")
    asked.out.mkdir(parents=True, exist_ok=True)
    models = {depth: at_depth(asked, depth, full) for depth in depths}
    jobs = make_jobs(asked, models)
    left = [job for job in jobs if not job.is_done()]
    print(f"{len(jobs)} runs, {len(jobs) - len(left)} done; {asked.jobs} at once", flush=True)
    failed: list[str] = []

    def finished(_: int, ended: tuple[bool, str]) -> None:
        print(ended[1], flush=True)
        failed.extend([] if ended[0] else [ended[1]])

    place = replace(place_runs(device=asked.device or "auto"), at_once=asked.jobs, apart=True)
    try:
        with StopSignal() as stop:
            run_all([partial(run_job, job) for job in left], on=place, finished=finished, stop=stop)
    except Stopped:
        failed.append("stopped; run the same command again to resume")
    write(asked, gather(asked, jobs, depths))
    for sentence in failed:
        print(sentence)
    return len(failed)


def read_words() -> argparse.Namespace:
    """The command line."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model", help="a pretrained model: a folder or a shipped name")
    words.add_argument("fields", nargs="*", help="fields of the recipe, for all tasks or one: steps=100 cola:batch=16")
    for family in FAMILIES:
        words.add_argument(f"--{family}", type=Path, help=f"the data of {', '.join(FAMILIES[family])}")
    words.add_argument("-o", "--out", type=Path, default=Path("results"))
    words.add_argument("--depths", default="", help="such as 12,9,6,4; default: the full depth")
    words.add_argument("--tasks", default="", help="only these, such as rte,mrpc")
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--long-seeds", type=int, default=1, help="seeds of race-middle and squad1")
    words.add_argument("--jobs", type=int, default=1, help="runs at once")
    words.add_argument("--settings", choices=("paper", "budget"), help="as for litebert finetune")
    words.add_argument("--device", default="", help="cpu or cuda; default: cuda where there is one")
    return words.parse_intermixed_args()


def at_depth(asked: argparse.Namespace, depth: int, full: int) -> str:
    """The model of a depth, made if need be."""
    if depth == full:
        return asked.model
    folder = asked.out / f"depth-{depth}" / "start"
    if not (folder / "config.json").is_file():
        litebert("shrink", asked.model, "--drop", str(full - depth), "-o", str(folder))
    return str(folder)


def make_jobs(asked: argparse.Namespace, models: dict[int, str]) -> list[Job]:
    """Every task that there is data of, at every depth."""
    wanted, jobs = {task for task in asked.tasks.split(",") if task}, []
    for family, tasks in FAMILIES.items():
        data = getattr(asked, family)
        for task in (task for task in tasks if data is not None and (not wanted or task in wanted)):
            fields = [field.rpartition(":")[2] for field in asked.fields if field.rpartition(":")[0] in ("", task)]
            seeds = asked.seeds if family == "glue" else asked.long_seeds
            options = {"--seeds": seeds if seeds > 1 else "", "--recipe": asked.settings, "--device": asked.device}
            given = [str(word) for name, value in options.items() if value for word in (name, value)]
            for depth, model in models.items():
                folder = asked.out / f"depth-{depth}" / task
                words = ("finetune", model, *fields, "--task", task, *data_words(data), "--out", str(folder), *given)
                jobs.append(Job(task, depth, folder, words))
    return jobs


def data_words(data: Path) -> tuple[str, ...]:
    """A task's folder, or the two files that examples/squad_by_article.py writes."""
    if (data / "train.json").is_file():
        return ("--data", str(data / "train.json"), "--dev", str(data / "dev.json"))
    return ("--data", str(data))


def run_job(job: Job) -> tuple[bool, str]:
    """Run one, in a process that has nothing else to do; whether it ended well, and a sentence."""
    begun, name = time.monotonic(), f"{job.task} at depth {job.depth}"
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    log = job.folder.with_suffix(".log")
    sys.argv = job.command()
    code: object = 0
    with log.open("a", encoding="utf-8") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
    if not code:
        return True, f"{name}: {time.monotonic() - begun:.0f} seconds"
    lines = log.read_text(encoding="utf-8").splitlines()
    return False, f"{name} failed: {lines[-1] if lines else ''} ({log})"


def gather(asked: argparse.Namespace, jobs: list[Job], depths: list[int]) -> Results:
    """All that is there: tasks, and gaps filled at every depth."""
    found = Results(commands=[command_line(asked)])
    for job in jobs:
        try:
            found.outcomes.append(replace(read_seeds(job.folder), task=job.task, depth=job.depth))
        except InputError as error:
            print(f"left out: {error}")
    for depth in depths:
        printed = litebert("fill", asked.model, "--cloze", str(CLOZE), "--depth", str(depth), "--json")
        found.clozes.append(cloze_score(json.loads(printed)))
    return found


def command_line(asked: argparse.Namespace) -> str:
    """The command as another machine would have it: paths by their last part."""
    folders = {str(path): Path(path).name for name in ("model", "out", *FAMILIES) if (path := getattr(asked, name))}
    return " ".join(["python -m litebert_lab.litebert_en.results", *(folders.get(word, word) for word in sys.argv[1:])])


def write(asked: argparse.Namespace, found: Results) -> None:
    """results.json for `litebert card`, results.md for people."""
    (asked.out / "results.json").write_text(json.dumps(found.as_plain(), indent=1) + "\n", encoding="utf-8")
    size = f"{count_parameters(model_config(asked.model).encoder).bare / 1e6:.1f}M"
    tables = [main_table(Path(asked.model).name, size, "", found, ()), spread_table(found), cloze_table(found.clozes)]
    (asked.out / "results.md").write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    print("\n\n".join(tables))


def litebert(*words: str) -> str:
    """What a short command prints."""
    done = subprocess.run([sys.executable, "-m", "litebert", *words], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(min(main(), 1))
