"""The page that is one file, used as a person does: in Chromium, from disk, without a network."""

import csv

import pytest

pytestmark = pytest.mark.browser
SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture
def use(opened):
    """Show the first tab of a model, by its name; returns the page."""

    def show(name: str, tab: str = ""):
        opened.evaluate(
            "([name, tab]) => { const model = page.client.models.find((one) => one.name === name);"
            "openTask(tab || null, new Column(model, model.layers, () => {})); }",
            [name, tab],
        )
        return opened

    return show


def settled(page) -> None:
    """Wait for the answers to what was typed last."""
    page.locator(".columns[aria-busy=false]").wait_for()


def bars(page) -> list[str]:
    settled(page)
    return page.locator(".column").first.locator(".answer .name").all_inner_texts()


def test_it_asks_nobody(opened):
    """A page without a network, whose policy lets it have none."""
    assert opened.inner_text("#status").endswith("offline")
    assert all(url.startswith(("file:", "blob:")) for url in opened.requests)
    blocked = "fetch('https://example.org').then(() => 'sent', () => 'blocked')"
    assert opened.evaluate(blocked) == "blocked"
    assert opened.evaluate("page.client.models.length") == 11


def test_words_are_filled_in(use, models):
    page = use("plain")
    page.fill("textarea[name=text]", "the [MASK] sat on a mat")
    expected = [guess.word for guess in models["plain"].fill("the [MASK] sat on a mat", 8)]
    assert bars(page) == expected
    assert page.locator(".tokens li").all_inner_texts()[:3] == ["[CLS]", "the", "[MASK]"]


def test_the_dial_changes_the_answer_and_the_time(use, models):
    page = use("plain")
    page.fill("textarea[name=text]", "a [MASK] and a cat ran")
    dial = page.get_by_role("slider", name="Depth")
    found = {}
    for depth in (6, 1):
        dial.fill(str(depth))
        page.locator(".time", has_text=f"depth {depth} ").wait_for()
        found[depth] = bars(page)
        assert found[depth] == [guess.word for guess in models["plain"].fill("a [MASK] and a cat ran", 8, depth=depth)]
        assert dial.get_attribute("aria-valuetext").startswith(f"{depth} of 6 layers")
    assert found[6] != found[1]
    page.locator(".every tbody tr").nth(5).wait_for()
    page.locator(".every tbody tr td:first-child", has_text="6").wait_for()
    rows = page.locator(".every tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == ["6", "5", "4", "3", "2", "1"]
    times = page.evaluate("Array.from(open.columns[0].dial.times.entries())")
    assert len(times) == 6 and all(time > 0 for _, time in times)


def test_two_side_by_side(use, models):
    page = use("plain")
    page.fill("textarea[name=text]", "the [MASK] ran far")
    page.get_by_role("button", name="Compare two").click()
    second = page.locator(".column").nth(1)
    second.get_by_role("combobox", name="Model").select_option("plain")
    second.get_by_role("slider").fill("2")
    second.locator(".time", has_text="depth 2 ").wait_for()
    for column, depth in ((page.locator(".column").first, None), (second, 2)):
        shown = column.locator(".answer .name").all_inner_texts()
        assert shown == [guess.word for guess in models["plain"].fill("the [MASK] ran far", 8, depth=depth)]
    second.get_by_role("combobox", name="Model").select_option("classify")
    second.locator(".answer", has_text="classify cannot answer this").wait_for()


@pytest.mark.parametrize("name", ["classify", "multilabel"])
def test_labels(name, use, models):
    page = use(name)
    page.get_by_label("Text").fill("a dog ran far away")
    best = max(models[name].predict("a dog ran far away").probabilities.items(), key=lambda one: one[1])
    assert bars(page)[0] == best[0]
    assert page.locator(".share").first.inner_text() == f"{100 * best[1]:.1f}%"


def test_an_answer_is_marked_in_its_text(use, models):
    page = use("span")
    row = {"question": "the cat", "context": "a dog ran far away and the cat sat on a mat ."}
    page.get_by_label("Question").fill(row["question"])
    page.get_by_label("Text with the answer").fill(row["context"])
    page.locator("mark").wait_for()
    assert page.inner_text("mark") == models["span"].predict(row).label


def test_columns_and_options_have_fields(use, models):
    page = use("pairs")
    for name, text in (("premise", "the cat"), ("more", "sat"), ("hypothesis", "a dog")):
        page.get_by_label(name, exact=True).fill(text)
    row = {"premise": "the cat", "more": "sat", "hypothesis": "a dog"}
    page.locator(".time", has_text=models["pairs"].predict([row])[0].label).wait_for()
    page = use("choice")
    page.get_by_label("Question").fill("the cat")
    page.get_by_label("Options").fill("sat\nran away")
    row = {"question": "the cat", "options": ["sat", "ran away"]}
    page.locator(".time", has_text=models["choice"].predict([row])[0].label).wait_for()


def test_exits_say_where_they_stopped(use):
    page = use("exits")
    page.get_by_label("Text").fill("the dog ran")
    page.get_by_label("Stop as soon as the answer is clear").check()
    page.locator(".time", has_text="stopped at depth").wait_for()
    assert page.get_by_role("slider").is_disabled()


def test_scripts_stay_text(use, opened, tmp_path):
    """In labels, texts, tokens, the model's name, and in the heading, the cells and the name of a table."""
    page = use(SCRIPT)
    page.get_by_label("Text").fill(f"the cat {SCRIPT}")
    assert SCRIPT in bars(page)
    page.get_by_role("button", name="Compare two").click()
    page.locator(".column").nth(1).locator(".bars, .failed").first.wait_for()
    assert SCRIPT in page.get_by_role("combobox", name="Model").first.locator("option").all_inner_texts()
    page = use(SCRIPT, "table")
    path = tmp_path / "<img src=x onerror=alert(1)>.csv"
    path.write_text(f'{SCRIPT},b\n"{SCRIPT}",<b>x</b>\nthe cat,y\n')
    page.set_input_files("input[type=file]", path)
    page.get_by_role("button", name="Label 2 rows").click()
    page.get_by_role("link", name="Save").wait_for()
    assert SCRIPT in page.locator("tbody td").all_inner_texts()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img, td b, li b").count() == 0


def test_a_table_comes_back_labelled(use, models, tmp_path):
    page = use("classify", "table")
    texts = ["the cat sat", 'a "dog", far\naway', "", "the mat", "a cat ran far " * 20]
    with (tmp_path / "in.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerows([["number", "label"], *([number, text] for number, text in enumerate(texts))])
    page.set_input_files("input[type=file]", tmp_path / "in.csv")
    page.get_by_label("Column for text").select_option(label="label")
    page.get_by_role("button", name="Label 5 rows").click()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save in-labelled.csv").click()
    with saved.value.path().open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert [row["label"] for row in rows] == texts
    for row, found in zip(rows, models["classify"].predict(texts), strict=True):
        assert row["predicted label"] == found.label
        assert float(row["probability"]) == pytest.approx(found.probability, abs=3e-4)
        assert float(row["maybe"]) == pytest.approx(found.probabilities["maybe"], abs=3e-4)


def test_labelling_can_be_stopped(use, tmp_path):
    page = use("classify", "table")
    (tmp_path / "long.tsv").write_text("text\n" + "the cat sat on a mat and a dog ran\n" * 20_000)
    page.set_input_files("input[type=file]", tmp_path / "long.tsv")
    page.get_by_role("button", name="Label 20,000 rows").click()
    page.locator("[role=status]", has_text="of 20,000 rows").last.wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Stop"
    page.keyboard.press("Enter")
    page.locator("[role=status]", has_text="Stopped after").wait_for()
    page.get_by_role("link", name="Save").wait_for()


def test_a_table_that_cannot_be_read_says_why(use, tmp_path):
    page = use("classify", "table")
    (tmp_path / "empty.csv").write_text("text\n")
    page.set_input_files("input[type=file]", tmp_path / "empty.csv")
    page.locator("[role=alert]", has_text="empty.csv: the file has no rows").wait_for()


def test_keys_alone_are_enough(use):
    """Tabs by arrows, texts and the dial by Tab, each with a name that is read out."""
    page = use("plain")
    page.locator("#tab-fill").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-order"
    page.keyboard.press("ArrowLeft")
    names = []
    for _ in range(9):
        page.keyboard.press("Tab")
        names.append(
            page.evaluate(
                "(document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim().slice(0, 12)"
            )
        )
    assert names[0].startswith("Text") and {"Every depth", "Compare two", "Depth"} <= set(names)
    before = page.get_by_role("slider").input_value()
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    assert int(page.get_by_role("slider").input_value()) == int(before) - 1
    assert page.locator(".time").first.get_attribute("aria-live") == "polite"
    unnamed = (
        "Array.from(document.querySelectorAll('input, textarea, select')).filter((one) => !one.labels.length).length"
    )
    assert page.evaluate(unnamed) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(use, opened, scheme, tmp_path):
    opened.set_viewport_size({"width": 360, "height": 740})
    opened.emulate_media(color_scheme=scheme)
    wide = "document.documentElement.scrollWidth"
    try:
        for name, tab in (("plain", "fill"), ("plain", "likeness"), ("span", "predict"), ("classify", "table")):
            page = use(name, tab)
            if tab == "table":
                (tmp_path / "a.csv").write_text("a,b,c,d\n" + ",".join(["averylongword" * 9] * 4) + "\n")
                page.set_input_files("input[type=file]", tmp_path / "a.csv")
                page.locator("tbody").wait_for()
            elif tab != "predict":
                page.get_by_role("button", name="Compare two").click()
                page.locator(".column").nth(1).wait_for()
            assert page.evaluate(wide) <= 360, (name, tab)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(244, 245, 242)", "dark": "rgb(16, 20, 19)"}[scheme]
    finally:
        opened.set_viewport_size({"width": 1180, "height": 900})
        opened.emulate_media(color_scheme="light")
