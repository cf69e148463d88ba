"""Checks the ticket files that ship with litebert and prints the figures of their data card.

Run it as `python examples/tickets/check.py`: it counts, then looks for broken encodings, near-duplicates, the wrong
language, contact data and names of real companies, and ends with a bag-of-words baseline (which needs scikit-learn).
It leaves with status 1 if it finds a fault. A list of company names can only find the names that are on it.
"""

import csv
import re
import sys
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
QUEUES = ("technical", "delivery", "billing", "account", "returns", "sales")
LANGUAGES = ("en", "ja", "ko", "zh")
LABELLED = ["subject", "body", "queue", "language"]
UNLABELLED = ["subject", "body", "language"]
SHINGLE = 5  # characters; words would not do for Japanese and Chinese
LIKENESS = 0.25  # two tickets that share more than this of all their shingles are near-duplicates

# Words by which a naive rule would route an English ticket. Where one stands in a ticket of another queue it misleads.
TELLTALES = {
    "delivery": r"parcel|courier|deliver\w*|tracking|shipp\w+|driver",
    "billing": r"invoice\w*|refund\w*|charge[ds]?|bill\w*|payment\w*|paid",
    "account": r"account|password|log ?in|logged|profile|subscription",
    "returns": r"return\w*|exchange\w*|replacement|warranty|rma",
}

COMPANIES = re.compile(
    r"""
    \b(?:amazon|apple|google|microsoft|samsung|sony|philips|siemens|bosch|miele|dyson|braun|krups|tefal|nestle|nespresso
    |nescafe|starbucks|costa|lavazza|illy|segafredo|tchibo|jura|delonghi|gaggia|saeco|breville|rancilio|lelit|profitec
    |baratza|mazzer|acaia|hario|kalita|chemex|bialetti|melitta|moccamaster|smeg|kitchenaid|ikea|ebay|etsy|paypal
    |mastercard|klarna|stripe|revolut|alipay|wechat|whatsapp|telegram|instagram|facebook|twitter|youtube|tiktok|iphone
    |ipad|android|alexa|siri|gmail|gmx|outlook|hotmail|yahoo|dhl|ups|fedex|usps|hermes|evri|dpd|gls|tnt|yodel|airbnb
    |uber|netflix|spotify|tesco|walmart|aldi|lidl)\b
    |アマゾン|楽天|ヤマト|佐川|ゆうパック|ヤフー|メルカリ|ソニー|パナソニック|象印|タイガー|無印
    |아마존|쿠팡|네이버|카카오|삼성|엘지|당근|토스|우체국|한진|스타벅스
    |亚马逊|淘宝|天猫|京东|拼多多|支付宝|微信|顺丰|圆通|中通|申通|韵达|菜鸟|星巴克|瑞幸|小米|华为|闲鱼
    """,
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """One row of a ticket file; queue is empty where the file has none."""

    subject: str
    body: str
    queue: str
    language: str

    @property
    def text(self) -> str:
        """What a reader sees: the subject, then the body."""
        return f"{self.subject}\n{self.body}".strip()


def read_tickets(path: Path, columns: list[str]) -> list[Ticket]:
    """The rows of a ticket file, which must be UTF-8 and have exactly these columns."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        if reader.fieldnames != columns:
            raise ValueError(f"{path.name} has the columns {reader.fieldnames}; they should be {columns}.")
        return [Ticket(**{"queue": "", **row}) for row in reader]


def shingles(text: str) -> frozenset[str]:
    """Every run of SHINGLE characters, case and figures and spacing set aside."""
    plain = re.sub(r"\d", "0", re.sub(r"\s+", " ", text.casefold()))
    return frozenset(plain[start : start + SHINGLE] for start in range(max(1, len(plain) - SHINGLE + 1)))


def near_duplicates(tickets: list[Ticket], above: float = LIKENESS) -> list[tuple[float, Ticket, Ticket]]:
    """Pairs whose shingles overlap (Jaccard) by more than `above`, most alike first."""
    prints = sorted(((shingles(ticket.body), ticket) for ticket in tickets), key=lambda pair: len(pair[0]))
    found = []
    for later, (longer, ticket) in enumerate(prints):
        for shorter, other in reversed(prints[:later]):
            if len(shorter) <= above * len(longer):
                break  # and every further one is shorter still
            shared = len(longer & shorter)
            likeness = shared / (len(longer) + len(shorter) - shared)
            if likeness > above:
                found.append((likeness, other, ticket))
    return sorted(found, key=lambda pair: -pair[0])


def encoding_faults(ticket: Ticket) -> list[str]:
    """Control characters, replacement characters, text not in NFC, stray space."""
    faults = []
    for name, value in (("subject", ticket.subject), ("body", ticket.body)):
        if any(unicodedata.category(letter) in ("Cc", "Cf", "Co", "Cn") and letter != "\n" for letter in value):
            faults.append(f"{name} holds a control character")
        if "\ufffd" in value:
            faults.append(f"{name} holds a replacement character")
        if unicodedata.normalize("NFC", value) != value:
            faults.append(f"{name} is not in NFC")
        if value != value.strip():
            faults.append(f"{name} begins or ends with space")
    if not ticket.body:
        faults.append("body is empty")
    return faults


def language_faults(ticket: Ticket) -> list[str]:
    """A ticket whose script is not that of its language."""
    kana, hangul, han = (
        bool(re.search(letters, ticket.text)) for letters in ("[\u3041-\u30fa]", "[\uac00-\ud7a3]", "[\u4e00-\u9fff]")
    )
    expected = {
        "en": not (kana or hangul or han),
        "ja": (kana or han) and not hangul,
        "ko": hangul and not kana,
        "zh": han and not (kana or hangul),
    }
    return [] if expected.get(ticket.language) else [f"does not look like {ticket.language!r}"]


def privacy_faults(ticket: Ticket) -> list[str]:
    """E-mail addresses outside example.com, web addresses, long numbers, names of companies."""
    text = ticket.text
    faults = [
        f"e-mail address {address}"
        for address, domain in re.findall(r"([\w.+-]+@([\w.-]+))", text)
        if not re.search(r"(^|\.)example\.com$", domain.rstrip("."))
    ]
    faults += [f"web address {address}" for address in re.findall(r"(?:https?://|www\.)\S+", text)]
    faults += [f"long number {number}" for number in re.findall(r"\+?\d(?:[ -]?\d){11,}", text)]
    return faults + [f"company {name}" for name in COMPANIES.findall(text)]


def faults_of(tickets: list[Ticket]) -> list[str]:
    """Everything wrong with single tickets and with pairs of them, a line each."""
    faults = [
        f"{ticket.text[:60]!r}: {fault}"
        for ticket in tickets
        for fault in (*encoding_faults(ticket), *language_faults(ticket), *privacy_faults(ticket))
    ]
    return faults + [
        f"{likeness:.0%} alike: {one.text[:60]!r} and {other.text[:60]!r}"
        for likeness, one, other in near_duplicates(tickets)
    ]


def misleading(tickets: list[Ticket]) -> int:
    """How many tickets use a tell-tale word of a queue that is not theirs."""
    return sum(
        any(
            queue != ticket.queue and re.search(rf"\b(?:{words})\b", ticket.text, re.IGNORECASE)
            for queue, words in TELLTALES.items()
        )
        for ticket in tickets
    )


def baseline(tickets: list[Ticket], analyzer: str, longest: int) -> float:
    """Accuracy of TF-IDF and logistic regression in five-fold cross-validation, same folds every time."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    classifier = make_pipeline(
        TfidfVectorizer(analyzer=analyzer, ngram_range=(1, longest), sublinear_tf=True),
        LogisticRegression(C=10, max_iter=2000),
    )
    queues = [ticket.queue for ticket in tickets]
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    guesses = cross_val_predict(classifier, [ticket.text for ticket in tickets], queues, cv=folds)
    right = sum(bool(guess == queue) for guess, queue in zip(guesses, queues, strict=True))
    return right / len(queues)


def print_counts(tickets: list[Ticket]) -> None:
    """Tickets by queue and language, lengths, empty subjects."""
    counts = Counter((ticket.queue, ticket.language) for ticket in tickets)
    print(f"{'':10}" + "".join(f"{language:>6}" for language in LANGUAGES) + f"{'all':>6}")
    for queue in QUEUES:
        row = [counts[queue, language] for language in LANGUAGES]
        print(f"{queue:10}" + "".join(f"{number:6}" for number in (*row, sum(row))))
    totals = [sum(counts[queue, language] for queue in QUEUES) for language in LANGUAGES]
    print(f"{'all':10}" + "".join(f"{number:6}" for number in (*totals, sum(totals))))
    english = [ticket for ticket in tickets if ticket.language == "en"]
    words = sorted(len(ticket.text.split()) for ticket in english)
    print(f"\nEnglish, words a ticket: {words[0]} to {words[-1]}, median {words[len(words) // 2]}")
    print(f"empty subjects: {sum(not ticket.subject for ticket in tickets)}")
    share = misleading(english) / len(english)
    print(f"English tickets with a tell-tale word of another queue: {misleading(english)} ({share:.0%})")


def main() -> int:
    """Print the figures and the faults; 0 if there is no fault."""
    tickets = read_tickets(HERE / "tickets.csv", LABELLED)
    fresh = read_tickets(HERE / "new_tickets.csv", UNLABELLED)
    answers = read_tickets(HERE / "new_tickets_answers.csv", LABELLED)
    print_counts(tickets)

    faults = faults_of([*tickets, *fresh])
    if [(ticket.subject, ticket.body) for ticket in fresh] != [(ticket.subject, ticket.body) for ticket in answers]:
        faults.append("new_tickets.csv and new_tickets_answers.csv do not hold the same tickets in the same order")
    faults += [f"unknown queue {ticket.queue!r}" for ticket in [*tickets, *answers] if ticket.queue not in QUEUES]
    print(f"\nfaults: {len(faults)}")
    for fault in faults:
        print(f"  {fault}")
    nearest = near_duplicates([*tickets, *fresh], above=0.1)
    if nearest:
        likeness, one, other = nearest[0]
        print(f"most alike ({likeness:.0%} of shingles shared): {one.body[:50]!r} and {other.body[:50]!r}")

    print("\nTF-IDF and logistic regression, five-fold cross-validation, accuracy:")
    for language in LANGUAGES:
        part = [ticket for ticket in tickets if ticket.language == language]
        kind = ("word", 2) if language == "en" else ("char", 3)
        print(f"  {language}, {kind[0]}s up to {kind[1]}: {baseline(part, *kind):.1%}")
    print(f"  all, chars up to 5: {baseline(tickets, 'char_wb', 5):.1%}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
