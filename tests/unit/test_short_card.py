"""`litebert card`: what the files of a folder say, as Markdown."""

from toy_tasks import make_model

from litebert.runs import Parent, write_run


def test_a_card_of_a_run_says_what_made_it_and_what_it_reached(litebert, tmp_path):
    make_model(tmp_path / "run")
    settings = {"model": "/home/me/start", "seed": 3, "recipe": {"rate": 0.1, "clip": None}}
    result = {"score": 0.75, "dev": {"accuracy": 0.75}, "notes": ["<script>"]}
    write_run(
        tmp_path / "run", "finetune", settings, parents=[Parent(role="start", folder="/x/<script>")], result=result
    )
    code, _, err = litebert("card", tmp_path / "run", "-o", tmp_path / "CARD.md", "--name", "mine")
    assert code == 0, err
    text = (tmp_path / "CARD.md").read_text()
    assert text.startswith("# mine\n") and " parameters, 30 tokens" in text
    assert "| command | litebert finetune |" in text and "| recipe | rate=0.1 |" in text and "| model | start |" in text
    assert "| dev accuracy | 0.75 |" in text and 'litebert.load("mine")' in text
    assert "/home" not in text and "<script" not in text.replace("\\<script", "")


def test_a_shipped_model_and_a_folder_without_a_note_have_one_too(litebert, tmp_path):
    code, out, _ = litebert("card", "litebert-en")
    assert code == 0 and "layers that share one block" in out and "transformers load it" in out
    code, _, err = litebert("card", tmp_path)
    assert code == 2 and len(err.strip().splitlines()) == 1
