"""The cleaning of litebert-en's text: what goes, what stays, how it reads afterwards; on small texts like the real."""

import subprocess

import pytest

from litebert_lab.litebert_en import books, clean, sources, wikipedia
from litebert_lab.litebert_en.prose import Seen, fault
from litebert_lab.litebert_en.tally import KEPT, Tally

PROSE = "It was the custom of the house that nobody spoke before the soup had been carried out of the room again."
LONG = " ".join([PROSE] * 3)


def wrapped(text: str, width: int = 70) -> str:
    """``text`` with its lines broken as Project Gutenberg breaks them."""
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) >= width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        (
            "Paramaribo (], nickname: Par'bo) is the capital and largest city of the country of Suriname.",
            "Paramaribo (nickname: Par'bo) is the capital and largest city of the country of Suriname.",
        ),
        (
            "The Roman Catholic Diocese of Daet () is a diocese located in the city of Daet in the province.",
            "The Roman Catholic Diocese of Daet is a diocese located in the city of Daet in the province.",
        ),
        (
            "Egor Mekhontsev (Егор Мехонцев; born on 14 November 1984 in Asbest) is a Russian boxer who won the cup.",
            "Egor Mekhontsev is a Russian boxer who won the cup.",
        ),
        (
            "The mountain is about east of the massif. It was first visited by a small expedition of the army in 1955.",
            "It was first visited by a small expedition of the army in 1955.",
        ),
        (
            "Most of the population (as of 2000[ [update]]) speaks German and many of them speak French, too.<br>",
            "Most of the population (as of 2000) speaks German and many of them speak French, too.",
        ),
        (
            "Everything in it—from the produce to the canned goods—was taken from a shop that had closed before.",
            "Everything in it — from the produce to the canned goods — was taken from a shop that had closed before.",
        ),
    ],
)
def test_traces_of_the_extraction_are_mended(line, reads):
    assert wikipedia.paragraph(line) == (reads, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("History.", "heading or short line"),
        (
            "The Companion to the Northern Valley (Commonwealth Publishing Group, 2007), second volume",
            "no full stop (list item, caption)",
        ),
        (
            "The function formula_3 is also called a distance function or simply a distance of the given space.",
            "markup or reference",
        ),
        ("12 May 1994: 3-2, 4-1, 17-16; 13 May 1994: 2-2, 1-1, 18-17; 14 May 1994: 0-0, 1-0, 22-18 (1994).", "digits"),
        (
            "Le château fut construit par le roi au bord de la rivière, et ses jardins furent dessinés plus tard "
            "par un architecte venu de la ville voisine, qui mourut avant la fin des travaux.",
            "no English words (names, another language)",
        ),
    ],
)
def test_lines_that_are_no_prose_are_named(line, reason):
    assert wikipedia.paragraph(line)[1] == reason


def test_an_article_ends_at_its_references_and_stubs_are_left_out():
    text = (
        f'<doc id="1" url="u" title="House">\nHouse\n\n{LONG}\nHistory.\n{LONG}\nReferences.\n{LONG}\n\n</doc>\n'
        f'<doc id="2" url="u" title="Stub">\nStub\n\n{PROSE}\n\n</doc>\n'
        f'<doc id="3" url="u" title="List of houses">\nList of houses\n\n{LONG}\n{LONG}\n\n</doc>\n'
    )
    tally = Tally()
    assert list(wikipedia.articles("", text, tally)) == [[LONG, LONG]]
    assert tally.counts["references and links"].paragraphs == 2
    assert tally.counts["stub"].documents == 1
    assert tally.counts["list by its title"].documents == 1


def gutenberg(body: str, language: str = "English") -> str:
    """A file as the project writes it."""
    text = (
        f"The Project Gutenberg EBook of A House\n\nTitle: A House\n\nLanguage: {language}\n\n"
        f"*** START OF THIS PROJECT GUTENBERG EBOOK A HOUSE ***\n\n\nProduced by Somebody\n\n{body}\n\n"
        "End of the Project Gutenberg EBook of A House\n\n"
        "*** END OF THIS PROJECT GUTENBERG EBOOK A HOUSE ***\n\nLicence\n"
    )
    return text.replace("\n", "\r\n")


def chapter_of(word: str, count: int = 10) -> list[str]:
    """Paragraphs enough for a chapter."""
    return [f"{word} {number}: {LONG}".replace(f" {number}:", ",") for number in range(count)]


def test_a_book_becomes_chapters_of_joined_lines():
    one, two = chapter_of("Then"), chapter_of("Now")
    verse = "The moon was on the water,\nThe boat was on the sea,\nAnd no one in the harbour\nHad time to wait for me."
    contents = "CONTENTS\n\n  I. THE HOUSE                          3\n  II. THE GARDEN                        19"
    first = ["A HOUSE", "by Nobody", contents, "CHAPTER I", *map(wrapped, one), verse, "[Illustration: the house]"]
    second = ["CHAPTER II.", "The Garden", *map(wrapped, two), '"Yes."', "THE END", LONG]
    body = "\n\n".join(first + second)
    tally = Tally()
    found = list(books.gutenberg_chapters("A House.txt", gutenberg(body), tally))
    assert found == [one, [*two, '"Yes."']]
    assert tally.counts["verse or list"].paragraphs == 1
    assert tally.counts["note or illustration"].paragraphs == 1
    assert tally.counts["licence"].paragraphs == 2
    assert tally.counts["index, notes, advertisements at the end"].paragraphs == 1


def test_books_in_other_languages_and_without_marks_are_left_out():
    tally = Tally()
    body = "\n\n".join(map(wrapped, chapter_of("Then")))
    assert not list(books.gutenberg_chapters("a.txt", gutenberg(body, "French"), tally))
    assert not list(books.gutenberg_chapters("a.txt", body, tally))
    assert tally.counts["not English"].documents == 1
    assert tally.counts["without Gutenberg's marks of start and end"].documents == 1


def test_a_markdown_book_loses_its_head_and_its_marks():
    paragraphs = chapter_of("Then")
    text = "# Title: A House\n\n## Author: Nobody\n\n-------\n\n## CHAPTER 1 - The House\n\n" + "\n\n".join(paragraphs)
    text = text.replace("custom", "_custom_").replace("nobody", "**nobody**")
    assert list(books.markdown_chapters("a.md", text, Tally())) == [paragraphs]


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("He had gone--so they said--to the sea.[12]", "He had gone -- so they said -- to the sea."),
        ('"You have done nothing but--"', '"You have done nothing but--"'),
        ("The house of M^{r} Brown {p. 12} was [Footnote: or had been] sold.", "The house of Mr Brown was sold."),
    ],
)
def test_marks_in_books_are_mended(text, reads):
    assert books.paragraph(text)[0].replace("  ", " ") == reads


def test_one_book_in_ten_keeps_its_curly_quotes():
    text = "-------\n".join(["\n", "\n\n".join(f"“{paragraph}”" for paragraph in chapter_of("Then"))])
    kept = sum("“" in next(books.markdown_chapters(f"book {number}.md", text, Tally()))[0] for number in range(200))
    assert 5 <= kept <= 40


def test_ordinary_prose_has_no_fault():
    assert fault(PROSE) is None
    assert fault('"Insignificant!"') is None


def test_copies_are_found_across_editions():
    seen = Seen()
    first, second = chapter_of("Then"), chapter_of("Now")
    assert seen.new([*dict.fromkeys(first), PROSE]) == ([first[0], PROSE], [])
    assert seen.new([first[0].upper().replace(" ", "  "), "Yes."]) is None
    fresh = [f"{word} {LONG}" for word in ("One", "Two", "Three", "Four")]
    assert seen.new([*fresh, PROSE, "Yes."]) == ([*fresh, "Yes."], [PROSE])
    assert second[0] != first[0]


@pytest.fixture
def clone(tmp_path):
    """A repository with two articles of which one is there under two names."""
    folder = tmp_path / "clone"
    (folder / "text" / "AA").mkdir(parents=True)
    article = f'<doc id="1" url="u" title="House">\nHouse\n\n{LONG}\n{LONG} Not again.\n\n</doc>\n'
    (folder / "text" / "AA" / "wiki_00").write_text(article)
    (folder / "text" / "AA" / "wiki_01").write_text(article)
    (folder / "text" / "AA" / "wiki_02").write_text(article.replace("House", "Hut"))
    (folder / "README").write_text("no text")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def test_a_source_is_read_from_git_and_each_text_kept_once(clone, tmp_path):
    source = sources.Source(
        name="wiki-long", repository="a/b", commit="HEAD", files=r"text/A[A-Z]/wiki_\d+", licence=""
    )
    tally = clean.clean(source, clone, Seen(), tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == f"{LONG}\n{LONG} Not again.\n\n"
    assert tally.counts[KEPT].documents == 1
    assert tally.counts["file under two names"].documents == 1
    assert tally.counts["duplicate document"].documents == 1
    assert tally.figures()[KEPT]["characters"] == len(LONG) * 2 + len(" Not again.")
