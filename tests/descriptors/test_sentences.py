import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import normalize

from bagwise import Bags, BagwiseError, open_collection
from bagwise.descriptors import SentenceVectors, split_sentences
from bagwise.sources import ItemError, SkippedItemsWarning

CASES = {
    "marks": "It ends.|Does it?|It does!|Good…|And on",
    "titles": "Dr. Who met Mrs. Smith vs. Prof. X.|They left.",
    "latin": "Take fruit, e.g. apples, i.e. food.|Cf. the list.",
    "numbers": "It cost $3.50, i.e. 2.75 euros.|Over .5 was tax.|In 1999.|He left.",
    "before numbers": "See Fig. 3 and No. 5 on p. 7.|He said no.|Then came Jan. 5.",
    "initials": "J. R. R. Tolkien and J.K. Rowling wrote.|You and I.|We read.",
    "letters": "The U.S. Army left the U.S.|The end came at 5 p.m. on Monday.",
    "doubtful": "Acme Inc. Chairman Bob Jr. spoke.|It was Acme Inc.|The others left, etc.|Bob stayed.",
    "small letters": '"Why?" she asked.|"Stop!" he cried, and left.',
    "quotes": '"I quit."|He left.|(She did not.)|‘No.’|«Oui.»|End',
    "brackets": "He left ( at last ! ) and she ( sadly . )|Then all.",
    "ellipses": "Well... maybe . . . or not...|Then yes.|A… b",
    "many marks": "What?!|No way!!!|Really??|Yes",
    "addresses": "See www.example.com or a.b@c.org.|Node.js is v1.2.3.|File a.txt",
    "items": "1. Buy milk.|2. Go home.|A. Sleep.",
    "items and text": "It has 3 parts.|1. Buy milk.",
    "no space": "the end.Then more",
    "chinese": "今天很好。|明天呢？|“好。”他说。|价格是３．５元。",
    "japanese": "はい。|「いいえ。」と言った。|「A。」|「B。」",
    "hindi": "यह है।|वह था॥|और",
    "arabic": "كيف حالك؟|أنا بخير۔|نعم",
    "armenian and ethiopic": "Բարեւ։|ሰላም።|x",
    "spanish": "¿Cómo?|¡Bien!|Adiós.",
    "small texts": "no capitals here.|mr. smith left.|he paid 3.50.|the u.s. army too",
    "tokens": "mr . smith came .|he left ( at last ! )|d . w . griffith , too .|really ?|yes",
    "commas": "He sang ! , she thought, etc . , and left.|End",
}


@pytest.mark.parametrize("name", CASES)
def test_sentences(name):
    expected = CASES[name].split("|")
    if name in ("chinese", "japanese", "hindi", "armenian and ethiopic"):
        assert split_sentences("".join(expected)) == expected
    assert split_sentences(" ".join(expected)) == expected
    assert split_sentences("\n".join(expected)) == expected
    assert split_sentences("\n\n".join(expected)) == expected
    assert split_sentences("\t " + " \r\n".join(expected) + " \n") == expected


def test_lines_and_paragraphs():
    assert split_sentences("a heading\n\nA line that\ngoes on. Then\r\nmore") == [
        "a heading",
        "A line that goes on.",
        "Then more",
    ]
    assert split_sentences("Or\u2003not .\u00a0. .\tand on") == ["Or not . . . and on"]
    for paragraph in ("\n \t\n", "\r\n\r\n", "\r\r", "\u2029", "\f", "\v"):
        assert split_sentences(f"one{paragraph}two") == ["one", "two"]
    for line in ("\n", "\r\n", "\r", "\u2028", "\x85"):
        assert split_sentences(f"one{line}two") == ["one two"]
        assert split_sentences(f"one{line}two", line_breaks=True) == ["one", "two"]


def test_pieces_without_words_stay_with_others():
    assert split_sentences("* * *\n\nOne. *** Two. ...\n\n---\n\nThree") == ["* * * One.", "*** Two. ... ---", "Three"]
    assert split_sentences("?! ...\n\n!") == ["?! ... !"]
    assert split_sentences("") == split_sentences(" \n\n \t") == []


marks = st.text(st.sampled_from("aB1 .!?…\n\"')(。」と．,;:“$-\u2029\r"), max_size=60)


@given(marks | st.text(max_size=60), st.booleans())
def test_no_character_is_lost(text, line_breaks):
    sentences = split_sentences(text, line_breaks=line_breaks)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == " ".join(sentence.split()) and sentence for sentence in sentences)
    if any(map(str.isalnum, text)):
        assert all(any(map(str.isalnum, sentence)) for sentence in sentences)


@pytest.mark.parametrize("unit", [".", ". ", "a. ", '."', ".)", "\n", "。", "\n ", "e.g. ", "?!. ", "...a", " .) "])
def test_strange_texts_end(unit):
    text = unit * 20_000 + "x"
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


TEXTS = [
    "The plot is thin. The actors are good!",
    "",
    "A good plot. Good actors, e.g. Mr. Bean. A thin man is seen with a good dog.",
    "Dogs run after the actors. No dog is as thin as the plot!",
    "Zebra xylophone.",
]


def numbers_of_letters(sentences):
    assert sentences
    return np.array([[len(sentence), sentence.count("a"), 1] for sentence in sentences])


def test_vectors_are_the_decomposed_weights_of_sentences():
    sentences = [sentence for text in TEXTS for sentence in split_sentences(text)]
    weights = TfidfVectorizer(dtype=np.float32).fit_transform(sentences)
    expected = TruncatedSVD(4, random_state=0).fit(weights).transform(weights)
    plain = SentenceVectors(4, normalize=False, random_state=0).fit(TEXTS)
    assert plain.n_sentences_ == len(sentences)
    bags = plain.transform(TEXTS)
    assert bags.lengths.tolist() == [2, 0, 3, 2, 1]
    assert bags.positions is None
    np.testing.assert_allclose(abs(bags.values), abs(expected), atol=1e-5)
    np.testing.assert_allclose(bags.values @ bags.values.T, expected @ expected.T, atol=1e-5)  # signs are free
    scaled = SentenceVectors(4, random_state=0).fit_transform(TEXTS)
    np.testing.assert_allclose(scaled.values, normalize(bags.values), atol=1e-5)


def test_other_vectorizers():
    counts = CountVectorizer(stop_words="english", min_df=2)
    described = SentenceVectors(2, vectorizer=counts, random_state=0).fit(TEXTS)
    assert described.vectorizer_.get_feature_names_out().tolist() == ["actors", "dog", "good", "plot"]
    assert not hasattr(counts, "vocabulary_")
    assert described.word_vectors_.shape == (4, 2)
    assert not described.transform(TEXTS)[4].any()  # no word that is known
    assert SentenceVectors(2, vectorizer=counts).set_params(vectorizer__min_df=1).vectorizer.min_df == 1


def test_splitters():
    texts = ["one line\nand another. Yes", "Mr. Bean"]
    counts = {"embedding": numbers_of_letters, "normalize": False}
    assert SentenceVectors(**counts).transform(texts).lengths.tolist() == [2, 1]
    assert SentenceVectors(**counts, splitter="lines").transform(texts).lengths.tolist() == [3, 1]
    by_word = SentenceVectors(**counts, splitter=lambda text: ["", *text.split(), " "])
    assert by_word.transform(texts).lengths.tolist() == [5, 2]
    with pytest.raises(ItemError, match="must be a str, got int"):
        SentenceVectors(**counts, splitter=lambda text: [1]).transform(texts)
    with pytest.raises(ItemError, match="must be a str, got bytes"):
        by_word.transform([b"bytes"])


@pytest.mark.parametrize("texts", [["word"], ["same word", "same word"], ["Word. Word.", "word"]])
def test_few_words(texts):
    vectors = SentenceVectors(1, random_state=0).fit_transform(texts).values
    np.testing.assert_allclose(abs(vectors), 1, rtol=1e-6)


def test_the_same_seed_gives_the_same_vectors():
    one, same = (SentenceVectors(3, random_state=7).fit_transform(TEXTS) for _ in range(2))
    assert one == same


def test_any_way_through_is_the_same(tmp_path):
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_text(text)
    collection = open_collection(tmp_path)
    learned = SentenceVectors(3, random_state=0).fit(TEXTS)
    expected = learned.transform(TEXTS)
    assert SentenceVectors(3, random_state=0).fit(collection).transform(collection) == expected
    assert SentenceVectors(3, random_state=0).fit(iter(TEXTS)).transform(iter(TEXTS)) == expected
    assert learned.transform(np.array(TEXTS)) == expected
    assert Bags.concatenate(learned.iter_transform(collection, batch_size=2)) == expected
    assert pickle.loads(pickle.dumps(learned)).transform(TEXTS) == expected
    assert learned.set_params(n_jobs=2).transform(collection) == expected
    values, positions = learned.describe(TEXTS[2])
    assert positions is None
    np.testing.assert_array_equal(values, expected[2])


def test_the_cache_knows_what_was_learned(tmp_path, monkeypatch):
    first = SentenceVectors(3, random_state=0, cache=tmp_path).fit(TEXTS)
    expected = first.transform(TEXTS)
    other = SentenceVectors(3, random_state=0, cache=tmp_path).fit(TEXTS[2:])
    assert other.transform(TEXTS) == clone(other).set_params(cache=None).fit(TEXTS[2:]).transform(TEXTS)
    rough = clone(first).set_params(normalize=False).fit(TEXTS)
    assert rough.transform(TEXTS) == clone(rough).set_params(cache=None).fit(TEXTS).transform(TEXTS)
    again = pickle.loads(pickle.dumps(first))

    def fail(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(SentenceVectors, "_describe", fail)
    assert again.transform(TEXTS) == expected
    with pytest.raises(AssertionError, match="computed again"):
        again.transform(["Something else."])
    with pytest.raises(NotFittedError):
        SentenceVectors(cache=tmp_path).transform(TEXTS)
    with pytest.raises(BagwiseError, match="embedding cannot be cached"):
        SentenceVectors(embedding=numbers_of_letters, cache=tmp_path).transform(TEXTS)
    with pytest.raises(BagwiseError, match="splitter of your own cannot be cached"):
        SentenceVectors(2, splitter=str.splitlines, cache=tmp_path).fit(TEXTS).transform(TEXTS)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_any_embedding(n_jobs):
    described = SentenceVectors(embedding=numbers_of_letters, normalize=False, n_jobs=n_jobs)
    for texts in (TEXTS, ["", *TEXTS], ["", " "]):  # the first may be empty, or all
        bags = described.transform(texts)
        assert bags.n_features == 3
        expected = [numbers_of_letters(split_sentences(text)) for text in texts if text.strip()]
        np.testing.assert_array_equal(bags.values, np.concatenate([np.empty((0, 3)), *expected]))
    assert described.fit() is described.fit(TEXTS) is described
    scaled = SentenceVectors(embedding=lambda sentences: [[0, 0] for _ in sentences]).transform(TEXTS)
    assert not scaled.values.any()


@pytest.mark.parametrize(
    ("embedding", "reason"),
    [
        (lambda sentences: np.ones((len(sentences) + 1, 2)), "gave 3 vectors for 2 sentences; one each"),
        (lambda sentences: np.full((len(sentences), 2), np.nan), "what embedding gave must be finite numbers"),
        (lambda sentences: np.ones(len(sentences)), r"what embedding gave must have two dimensions"),
        (lambda sentences: [["a"] for _ in sentences], "what embedding gave must be real numbers"),
    ],
)
def test_wrong_embeddings(embedding, reason):
    with pytest.raises(ItemError, match=f"Cannot read 'text 0': .*{reason}"):
        SentenceVectors(embedding=embedding).transform(TEXTS)


@pytest.mark.parametrize("width", [len, lambda sentences: 4 - len(sentences)])
def test_embeddings_of_changing_width(width):
    with pytest.raises(BagwiseError, match="All items must give vectors of the same width"):
        SentenceVectors(embedding=lambda s: np.ones((len(s), width(s)))).transform(["One. Two. Three.", "One.", "A. B"])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (b"bytes", r"must be a str, got bytes\. Decode it first"),
        (None, "must be a str, got NoneType"),
        (3.5, "must be a str, got float"),
        (["a"], "must be a str, got list"),
    ],
)
def test_what_is_no_text_is_refused_by_its_number(wrong, reason):
    learned = SentenceVectors(3, random_state=0).fit(TEXTS)
    texts = [TEXTS[0], wrong, *TEXTS[2:]]
    with pytest.raises(ItemError, match=f"Cannot read 'text 1': A text {reason}"):
        learned.transform(texts)
    with pytest.raises(ItemError, match=f"Cannot read 'text 1': A text {reason}"):
        SentenceVectors(3).fit(texts)
    right = [text for text in texts if text is not wrong]
    with pytest.warns(SkippedItemsWarning, match="1 of 5 items"):
        assert learned.transform(texts, on_error="skip") == learned.transform(right)
    with pytest.warns(SkippedItemsWarning, match="1 of 5 items of the list .* text 1: "):
        fitted = SentenceVectors(3, random_state=0).fit(texts, on_error="skip")
    assert fitted.transform(right) == SentenceVectors(3, random_state=0).fit_transform(right)


def test_texts_that_cannot_be_read(tmp_path):
    (tmp_path / "a.txt").write_text("Good. Bad.")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xff")
    collection = open_collection(tmp_path)
    with pytest.raises(ItemError, match=r"Cannot read 'b\.txt'"):
        SentenceVectors(2).fit(collection)
    with pytest.warns(SkippedItemsWarning, match=r"1 of 2 items .* b\.txt"):
        SentenceVectors(2).fit(collection, on_error="skip")


def test_what_it_cannot_use():
    with pytest.raises(NotFittedError):
        SentenceVectors().transform(TEXTS)
    with pytest.raises(NotFittedError):
        SentenceVectors().describe("A text.")
    with pytest.raises(BagwiseError, match=r"n_components=50 is too many for 8 sentences.* Choose at most 8"):
        SentenceVectors().fit(TEXTS)
    for empty in (["", " "], ["?!"]):
        with pytest.raises(BagwiseError, match="No words can be learned"):
            SentenceVectors().fit(empty)
    with pytest.raises(BagwiseError, match="nothing to describe: got no texts"):
        SentenceVectors().fit([])
    with pytest.raises(BagwiseError, match="Expected a list of texts or a collection, got str"):
        SentenceVectors().fit("one text")
    with pytest.raises(BagwiseError, match="Unknown on_error"):
        SentenceVectors().fit(TEXTS, on_error="ignore")
    for wrong in (
        {"n_components": 0},
        {"embedding": "bert"},
        {"vectorizer": 3},
        {"normalize": "l1"},
        {"splitter": "words"},
    ):
        with pytest.raises(BagwiseError, match=f"^{next(iter(wrong))} of .* must be"):
            SentenceVectors(**wrong).fit(TEXTS)
