"""The page that a server gives for ``GET /``, used in Chromium as a person does."""

import pytest
from toy_models import LABELS

import litebert

pytestmark = pytest.mark.browser
SCRIPT = "<img src=x onerror='hacked=1'>"


@pytest.fixture
def opened(browser, server):
    """The page of a server, ready to ask."""
    context = browser.new_context(viewport={"width": 1180, "height": 900})
    page = context.new_page()
    errors, elsewhere = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: elsewhere.append(request.url))
    home = f"http://127.0.0.1:{server.port}/"
    page.goto(home)
    page.locator("#status", has_text="Connected").wait_for()
    yield page
    assert errors == []
    assert all(url.startswith((home, "blob:")) for url in elsewhere)
    context.close()


def settled(page) -> None:
    page.locator(".columns[aria-busy=false]").wait_for()


def use(page, name: str) -> None:
    """Ask the model of this name."""
    page.get_by_role("button", name="Compare two").click()
    page.get_by_role("combobox", name="Model").first.select_option(name)
    settled(page)


def test_words_by_depth(opened, folders):
    runtime = litebert.load(folders["en"])
    opened.get_by_label("Text").fill(f"the [MASK] sat {SCRIPT}")
    slider = opened.get_by_role("slider")
    found = {}
    for depth in (3, 1):
        slider.fill(str(depth))
        settled(opened)
        found[depth] = opened.locator(".answer .name").all_inner_texts()
        assert found[depth] == [guess.word for guess in runtime.fill(f"the [MASK] sat {SCRIPT}", 8, depth=depth)]
    assert found[3] != found[1]
    times = opened.evaluate("Array.from(open.columns[0].dial.times.values())")
    assert len(times) == 2 and all(time > 0 for time in times)
    opened.get_by_label("Every depth").check()
    opened.locator(".every tbody tr").nth(2).wait_for()
    assert opened.evaluate("window.hacked") is None and opened.locator("main img").count() == 0
    opened.get_by_label("Text").fill("the [MASK] sat" + " on a mat" * 20)
    opened.locator(".notice", has_text="longer than the model reads").wait_for()


def test_two_models_side_by_side_and_their_labels(opened, folders):
    use(opened, "labels")
    assert opened.locator("#tab-predict").inner_text() == "Labels"
    opened.get_by_label("Text", exact=True).fill("a dog ran far away")
    settled(opened)
    expected = litebert.load(folders["labels"]).predict("a dog ran far away")
    names, shares = (opened.locator(f".answer .{part}").all_inner_texts() for part in ("name", "share"))
    shown = dict(zip(names, shares, strict=True))
    assert shown == {name: f"{100 * share:.1f}%" for name, share in expected.probabilities.items()}
    assert set(shown) == set(LABELS["classify"])


def test_a_table_comes_back_labelled(opened, folders, tmp_path):
    use(opened, "labels")
    opened.locator("#tab-table").click()
    texts = [f"the cat {word}" for word in ("sat", "ran", "far", "away", ", dog") * 12]
    (tmp_path / "in.csv").write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
    opened.set_input_files("input[type=file]", tmp_path / "in.csv")
    opened.get_by_role("button", name="Label 60 rows").click()
    with opened.expect_download() as saved:
        opened.get_by_role("link", name="Save in-labelled.csv").click()
    rows = saved.value.path().read_text(encoding="utf-8-sig").splitlines()[1:]
    found = litebert.load(folders["labels"]).predict(texts)
    assert [row.split(",")[-5] for row in rows] == [one.label for one in found]


def test_it_fits_a_phone(opened):
    opened.set_viewport_size({"width": 360, "height": 740})
    opened.get_by_role("button", name="Compare two").click()
    settled(opened)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_server_with_a_key_asks_for_it(browser, serve, folders):
    server = serve(f"en={folders['en']}", environment={"LITEBERT_KEY": "very secret"})
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    for key, status in (("wrong", "That key is not right"), ("very secret", "Connected")):
        page.get_by_label("Key").fill(key)
        page.get_by_role("button", name="Open").click()
        page.locator("#status", has_text=status).wait_for()
    settled(page)
    assert page.locator(".answer .name").count() == 8
    page.close()
