"""Reddit's posts, podcasts, opinions and textbooks as prose: what goes, what stays, what is replaced."""

import csv
import io
import json

import pytest

from litebert_lab.litebert_en import marked_up, posts
from litebert_lab.litebert_en.tally import Tally

PROSE = "It was the custom of the house that nobody spoke before the soup had been carried out of the room again."


@pytest.mark.parametrize(
    ("block", "reads"),
    [
        ("Ask [the people here](http://a.example/x_(y)) what **they** think of _that_.", None),
        ("* Write to jane.doe@mail.example.org or call (555) 123-4567.", "Write to [email] or call [phone]."),
        ("Thanks to /u/some_one and @another for it &amp all.", "Thanks to [user] and [user] for it &amp all."),
        (
            "**Tim Smith:** \\[01:46\\] Well, that is how it began. \\[laughter\\] Yes.",
            "Well, that is how it began. Yes.",
        ),
        ("It is 5 * 3 and a_b stays.", "It is 5 * 3 and a_b stays."),
    ],
)
def test_a_block_reads_as_text(block, reads):
    text, reason = posts.paragraph(block)
    assert reason is None
    if reads is None:
        assert text.startswith("Ask the people here") and "http" not in text and "*" not in text
    else:
        assert text == reads


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("> Somebody else said that it was so and not otherwise.", "quotation"),
        ("    for line in file: print(line)", "code"),
        ("a|b|c|d", "table"),
        ("----", "rule"),
        ("See http://www.example.org/a/very/long/address/of/a/page/somewhere", "mostly addresses"),
        ("Yes.", "short line"),
    ],
)
def test_a_block_that_is_no_prose_is_named(block, reason):
    assert posts.paragraph(block)[1] == reason


def reddit_file(*rows: dict[str, str]) -> str:
    """A subreddit's file with some rows."""
    file = io.StringIO()
    writer = csv.DictWriter(file, ["title", "selftext", "is_self", "over_18"])
    writer.writeheader()
    writer.writerows({"is_self": "True", "over_18": "False", **row} for row in rows)
    return file.getvalue()


def test_posts_are_documents_with_their_titles_first():
    tally = Tally()
    text = reddit_file(
        {"title": "My aunt&amp;uncle's house", "selftext": f"{PROSE}\n\n&gt; quoted by me\n\n{PROSE}"},
        {"title": "Only a picture of it", "selftext": "", "is_self": "False"},
        {"title": "Not for everybody here", "selftext": PROSE, "over_18": "True"},
        {"title": "Only links in this post", "selftext": "http://a.example/page " * 30},
    )
    assert list(posts.reddit_posts("", text, tally)) == [["My aunt&uncle's house", PROSE, PROSE]]
    assert tally.counts["marked for adults"].documents == 1
    assert tally.counts["little prose"].documents == 1
    assert tally.counts["quotation"].paragraphs == 1


def test_an_opinion_keeps_its_sentences_and_loses_citations_and_footnotes():
    tally = Tally()
    body = f"{PROSE} <i>Humes</i> v. <i>Knoxville,</i> 1 U. S. 403 (1871); 2 U. S. 5. {PROSE}<sup>[2]</sup>"
    page = f"<p class='x'>{body}</p>" + f"<p>{PROSE} {PROSE}</p>" * 20 + "<p>No. 12.</p>"
    [paragraphs] = marked_up.opinions("", json.dumps({"html_lawbox": page, "html": ""}), tally)
    assert paragraphs[0] == f"{PROSE} {PROSE}"
    assert len(paragraphs) == 21
    assert list(marked_up.opinions("", json.dumps({"html": "<p>Certiorari denied.</p>"}), tally)) == []
    assert tally.counts["order or short opinion"].documents == 1


def test_a_module_of_a_textbook_keeps_its_paragraphs():
    tally = Tally()
    para = f"<para>{PROSE} A <term>presentist</term> view<note>aside</note> of it.</para>"
    text = (
        '<document xmlns="http://cnx.rice.edu/cnxml"><title>T</title><content>'
        '<section class="learning-objectives"><para>By the end of this section you will be able to list them.</para>'
        f"</section>{para * 8}<list><item>one</item></list></content></document>"
    )
    [paragraphs] = marked_up.textbook_modules("", text, tally)
    assert paragraphs == [f"{PROSE} A presentist view of it."] * 8
    assert list(marked_up.textbook_modules("", "<document>", tally)) == []
    assert tally.counts["damaged XML"].documents == 1
