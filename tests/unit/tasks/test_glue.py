"""Every GLUE task from files of its official layout, and the real ones where they are."""

import pytest

from litebert.errors import InputError
from litebert.tasks.glue import GLUE, read_glue
from litebert.tasks.sources import read_task

MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t"
    "sentence1\tsentence2\tlabel1"
)
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
# file: (text of it, what the first item must be: first, second, target)
FILES = {
    "cola": {
        "CoLA/train.tsv": ('gj04\t1\t\tHe said "no.\ngj04\t0\t*\tHim said.\n', ('He said "no.', None, 1)),
        "CoLA/dev.tsv": ("gj04\t0\t*\tsentence\n", ("sentence", None, 0)),
        "CoLA/test.tsv": ("index\tsentence\n0\tBill went.\n", ("Bill went.", None, None)),
    },
    "sst2": {
        "SST-2/train.tsv": ("sentence\tlabel\nfine film \t1\n", ("fine film ", None, 1)),
        "SST-2/dev.tsv": ("sentence\tlabel\nbad\t0\n", ("bad", None, 0)),
        "SST-2/test.tsv": ("index\tsentence\n0\tso so\n", ("so so", None, None)),
    },
    "mrpc": {
        "MRPC/train.tsv": (
            '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA .\t" B .\n',
            ("A .", '" B .', 1),
        ),
        "MRPC/test.tsv": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tA\tB\n", ("A", "B", None)),
    },
    "stsb": {
        "STS-B/dev.tsv": (f"{STSB}\tscore\n0\tg\tf\ty\t1\tn\tn\tA\tB\t3.800\n", ("A", "B", 3.8)),
        "STS-B/test.tsv": (f"{STSB}\n0\tg\tf\ty\t1\tn\tn\tA\tB\n", ("A", "B", None)),
    },
    "qqp": {
        "QQP/train.tsv": (
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n9\t1\t2\tHow?\tWhy?\t0\n10\t3\tcut\n",
            ("How?", "Why?", 0),
        ),
        "QQP/test.tsv": ("id\tquestion1\tquestion2\n0\tHow?\tWhy?\n", ("How?", "Why?", None)),
    },
    "mnli": {
        "MNLI/train.tsv": (f"{MNLI}\tgold_label\n0\t1\t2\tg\tp\tp\tp\tp\tA\tB\tn\tneutral\n", ("A", "B", 1)),
        "MNLI/dev_matched.tsv": (
            f"{MNLI}\tlabel2\tgold_label\n0\t1\t2\tg\tp\tp\tp\tp\tA\tB\tn\tn\tcontradiction\n"
            "1\t1\t2\tg\tp\tp\tp\tp\tC\tD\tn\tn\t-\n",
            ("A", "B", 2),
        ),
        "MNLI/dev_mismatched.tsv": (
            f"{MNLI}\tlabel2\tgold_label\n0\t1\t2\tg\tp\tp\tp\tp\tE\tF\tn\tn\tentailment\n",
            ("E", "F", 0),
        ),
        "MNLI/test_matched.tsv": (f"{MNLI[:-7]}\n0\t1\t2\tg\tp\tp\tp\tp\tA\tB\n", ("A", "B", None)),
    },
    "qnli": {"QNLI/dev.tsv": ("index\tquestion\tsentence\tlabel\n0\tQ?\tS\tnot_entailment\n", ("Q?", "S", 1))},
    "rte": {"RTE/dev.tsv": ("index\tsentence1\tsentence2\tlabel\n0\tA\tB\tentailment\n", ("A", "B", 0))},
    "wnli": {"WNLI/dev.tsv": ("index\tsentence1\tsentence2\tlabel\n0\tA\tB\t1\n", ("A", "B", 1))},
    "ax": {
        "AX/diagnostic.tsv": ("index\tsentence1\tsentence2\n0\tA\tB\n", ("A", "B", None)),
        "AX/diagnostic-full.tsv": (
            "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel\n"
            "\t\tNegation\t\tArtificial\tA\tB\tcontradiction\n",
            ("A", "B", 2),
        ),
    },
}


def write(folder, files):
    for name, (text, _) in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text, encoding="utf-8")


def items_of(data, name):
    part = name.removesuffix(".tsv").split("/")[-1]
    if part == "train":
        return data.train
    where, _, kind = part.partition("_")
    if where.startswith("diagnostic"):
        return data.dev["diagnostic"] if part.endswith("full") else data.test["diagnostic"]
    return (data.dev if where == "dev" else data.test)[kind or where]


@pytest.mark.parametrize("task", FILES)
@pytest.mark.parametrize("inside", [True, False], ids=["folder of all tasks", "folder of the task"])
def test_official_layouts(task, inside, tmp_path):
    write(tmp_path, FILES[task])
    folder = tmp_path if inside else tmp_path / next(iter(FILES[task])).split("/")[0]
    data = read_glue(task, folder)
    for name, (_, expected) in FILES[task].items():
        first = items_of(data, name)[0]
        assert (first.first, first.second, first.target) == expected, name


def test_all_nine_and_ax_are_tried():
    assert set(FILES) == set(GLUE)


def test_rows_that_cannot_count_are_left_out_and_said(tmp_path):
    write(tmp_path, FILES["qqp"] | FILES["mnli"])
    assert len(read_glue("qqp", tmp_path).train) == 1
    assert "1 rows of train.tsv" in read_glue("qqp", tmp_path).notes[0]
    mnli = read_glue("mnli", tmp_path)
    assert len(mnli.dev["matched"]) == 1
    assert any("without a gold label" in note for note in mnli.notes)


@pytest.mark.parametrize(
    ("name", "text", "task", "expected"),
    [
        ("RTE/dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tmaybe\n", "rte", "line 2: the label is 'maybe'"),
        ("RTE/dev.tsv", "index\tsentence1\tlabel\n0\tA\tentailment\n", "rte", "no column sentence2"),
        ("RTE/dev.tsv", "index\tsentence1\tsentence2\n0\tA\tB\n", "rte", "no column label"),
        ("STS-B/dev.tsv", f"{STSB}\tscore\n0\tg\tf\ty\t1\tn\tn\tA\tB\tnan\n", "stsb", "line 2: the score is 'nan'"),
        ("other/dev.tsv", "x\n", "rte", "holds none of train.tsv"),
    ],
)
def test_what_is_wrong_is_said(name, text, task, expected, tmp_path):
    write(tmp_path, {name: (text, None)})
    with pytest.raises(InputError, match=expected):
        read_glue(task, tmp_path)


def test_bytes_that_are_not_text_are_said(tmp_path):
    (tmp_path / "dev.tsv").write_bytes(b"index\tsentence1\tsentence2\tlabel\n0\t\xff\tB\t1\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read_glue("wnli", tmp_path)


def test_a_missing_dev_file_is_made_up_for(tmp_path):
    rows = "".join(f"text {n}\t{n % 2}\n" for n in range(100))
    write(tmp_path, {"SST-2/train.tsv": (f"sentence\tlabel\n{rows}", None)})
    data = read_task("sst2", tmp_path)
    assert (len(data.train), len(data.dev["dev"])) == (90, 10)
    assert "set apart" in data.notes[-1]


REAL = {  # train, dev, test, share of label 1 in dev
    "cola": (8551, 1043, 1063, 721 / 1043),
    "sst2": (67349, 872, 1821, 444 / 872),
    "mrpc": (3668, 408, 1725, 279 / 408),
    "rte": (2490, 277, 3000, 131 / 277),
    "wnli": (635, 71, 146, 31 / 71),
    "qnli": (0, 5463, 0, 2761 / 5463),
}


@pytest.mark.shared
@pytest.mark.parametrize("task", REAL)
def test_real_files(task, real_data):
    data = read_task(task, real_data / "glue")
    dev = data.dev["dev"]
    found = len(data.train), len(dev), len(data.test.get("test", ()))
    assert found == REAL[task][:3]
    assert sum(item.target for item in dev) / len(dev) == pytest.approx(REAL[task][3])


@pytest.mark.shared
def test_real_scores_and_diagnostic(real_data):
    data = read_task("stsb", real_data / "glue")
    assert (len(data.train), len(data.dev["dev"])) == (5749, 1500)
    targets = [item.target for item in data.train]
    assert (min(targets), max(targets)) == (0.0, 5.0)
    assert len(read_task("ax", real_data / "glue").test["diagnostic"]) == 1104
