"""A corpus of English sentences about six subjects, written by templates."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from bagwise._utils.checks import check_integer, generator
from bagwise.datasets.photos import even_classes
from bagwise.errors import BagwiseError

__all__ = ["make_corpus"]

# Subjects, their topics, and of each topic nouns | verbs | adjectives. No word belongs to two topics.
_SUBJECTS = {
    "astronomy": {
        "planets": "planet moon orbit crater asteroid comet ring satellite probe lander eclipse meteor | "
        "orbits circles rotates eclipses approaches flies | rocky icy lunar solar outer dwarf",
        "stars": "star galaxy nebula supernova cluster constellation pulsar quasar universe photon spectrum redshift | "
        "shines explodes collapses expands glows radiates | stellar galactic cosmic bright faint distant",
        "telescopes": "telescope mirror lens observatory detector antenna dome eyepiece camera mount exposure filter | "
        "observes records resolves points tracks magnifies | optical infrared sharp dark robotic calibrated",
    },
    "cooking": {
        "baking": "bread dough flour yeast oven cake crust butter sugar pastry loaf cookie | "
        "bakes rises kneads browns cools dusts | crisp sweet golden floury buttery fluffy",
        "soups": "soup broth onion carrot celery lentil ladle pot stew bean noodle dumpling | "
        "simmers boils thickens stirs seasons strains | savoury hearty spicy salty creamy thick",
        "grilling": "grill steak charcoal marinade sausage rib skewer ember barbecue pepper sauce flame | "
        "grills sears smokes chars turns bastes | smoky tender juicy rare charred peppery",
    },
    "finance": {
        "stocks": "stock share dividend portfolio broker index fund market investor trader rally bull | "
        "invests trades gains falls soars hedges | bullish volatile quarterly undervalued listed profitable",
        "banking": "bank loan mortgage deposit interest account credit debt lender branch teller balance | "
        "lends borrows pays owes deposits transfers | fixed monthly overdue secured annual unpaid",
        "taxes": "tax audit income receipt deduction refund invoice revenue auditor budget expense treasury | "
        "files taxes deducts audits reports claims | taxable fiscal exempt federal itemized gross",
    },
    "gardening": {
        "flowers": "rose tulip petal bouquet orchid daisy lavender bloom lily blossom stem vase | "
        "blooms wilts opens fades blossoms flowers | fragrant red delicate purple wild yellow",
        "vegetables": "tomato lettuce cucumber pumpkin harvest seedling bed radish spinach zucchini greenhouse vine | "
        "ripens sprouts grows harvests climbs picks | ripe organic leafy fresh edible homegrown",
        "soil": "soil compost mulch spade rake weed worm fertilizer manure shovel trowel hoe | "
        "digs waters fertilizes weeds drains loosens | muddy sandy moist fertile sunny rich",
    },
    "medicine": {
        "heart": "heart artery valve pulse blood pressure stent cardiologist vessel clot rhythm cholesterol | "
        "beats pumps clogs throbs circulates narrows | cardiac arterial irregular high congenital weak",
        "infections": "virus fever vaccine bacteria antibiotic cough infection flu immunity swab epidemic symptom | "
        "infects spreads coughs vaccinates mutates recovers | contagious viral feverish bacterial chronic mild",
        "surgery": "surgeon scalpel incision narcosis stitch operation scar nurse patient clinic bandage transplant | "
        "operates heals stitches bleeds removes examines | surgical sterile painful numb invasive careful",
    },
    "sailing": {
        "boats": "boat sail mast hull rudder keel yacht deck cabin rope anchor tiller | "
        "sails steers anchors leans drifts moors | wooden sturdy nautical narrow fast leaky",
        "weather": "wind storm wave breeze gale fog squall current tide swell cloud barometer | "
        "blows rages swells clears howls calms | windy stormy rough calm foggy gusty",
        "harbours": "harbour pier lighthouse dock buoy ferry crew captain sailor port cargo island | "
        "docks unloads departs arrives waits loads | coastal busy foreign sheltered remote southern",
    },
}
# N: a noun, V: a verb, A: an adjective of the topic; C: a common noun.
_TEMPLATES = (
    "The A N V near the N.",
    "Every N V when the A N V.",
    "We looked at the N and the A N for a C.",
    "In the C the N V, but the N is still A.",
    "One A N and a N were part of the C.",
    "She says that the A N V after each C.",
    "There was no N, only the N of last C.",
    "It is a A N, as the C of the N shows.",
    "Most people find the N A, and so the N V.",
    "He wrote about the N, the N and the A N.",
    "Why is this N so A? Because the N V.",
    "After a C the N V and the N V again.",
)
_PLACES = re.compile(r"\b[NVAC]\b")
_HEAD = 3  # the k-th word of a list comes in proportion to 1 / (k + 3)
_ARTICLES = re.compile(r"\ba (?=[aeio]|u(?!ni))")
_COMMON = "year day week story question friend book place problem lesson visit report morning plan group way"


def make_corpus(
    n_samples: int = 300,
    *,
    n_sentences: tuple[int, int] = (4, 12),
    noise: float = 0.3,
    random_state: Any = 0,
    return_X_y: bool = False,
) -> Any:
    """Write short English texts about six subjects: astronomy, cooking, finance, gardening, medicine and sailing.

    Each subject has three topics, and each topic 24 words of its own; all texts share common words. A text has
    sentences on the topics of its subject, in proportions of its own, and some on any topic. Groups of words that
    are merged by labels belong to one subject each; latent Dirichlet allocation finds the topics.

    Parameters
    ----------
    n_samples : int, default=300
        Number of texts, as many of each subject.
    n_sentences : tuple of two int, default=(4, 12)
        Least and largest number of sentences of a text.
    noise : float, default=0.3
        Probability that a sentence is about any of the topics of all subjects.
    random_state : int, Generator, RandomState or None, default=0
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    corpus : Bunch
        - data : list of str
        - target : int array of shape (n_samples,)
        - target_names : list of str, the subjects
        - topic_names : list of str, such as "cooking: soups"
        - topics : int array of shape (n_samples, 18), the number of sentences of each text on each topic
        - word_topics : dict, the number of the topic of each word that belongs to one
        - DESCR : str

    See Also
    --------
    write_dataset : Writes them as files, for ``bagwise fit``.

    Examples
    --------
    >>> from bagwise.datasets import make_corpus
    >>> corpus = make_corpus(60)
    >>> corpus.target_names[corpus.target[10]], corpus.topic_names[corpus.word_topics["ladle"]]
    ('cooking', 'cooking: soups')
    >>> corpus.data[10].partition(".")[0]
    'She says that the fluffy bread bakes after each book'
    """
    n_samples = check_integer(n_samples, "n_samples", 1)
    if not isinstance(n_sentences, (tuple, list)) or len(n_sentences) != 2:
        raise BagwiseError(f"n_sentences must be the least and the largest number, got {n_sentences!r:.60}.")
    least = check_integer(n_sentences[0], "n_sentences", 1, 10_000)
    most = check_integer(n_sentences[1], "n_sentences", least, 10_000)
    if isinstance(noise, bool) or not isinstance(noise, (int, float)) or not 0 <= noise <= 1:
        raise BagwiseError(f"noise must be a number from 0 to 1, got {noise!r:.60}.")
    rng = generator(random_state)
    subjects = list(_SUBJECTS)
    words = [topic.split(" | ") for subject in subjects for topic in _SUBJECTS[subject].values()]
    by_topic = [dict(zip("NVA", map(str.split, kinds), strict=True)) | {"C": _COMMON.split()} for kinds in words]
    names = [f"{subject}: {topic}" for subject in subjects for topic in _SUBJECTS[subject]]
    starts = np.cumsum([0, *(len(topics) for topics in _SUBJECTS.values())])
    target, counts = even_classes(n_samples, len(subjects)), np.zeros((n_samples, len(names)), np.int64)
    texts = []
    for number, subject in enumerate(target.tolist()):
        of_subject = np.arange(starts[subject], starts[subject + 1])
        shares = rng.dirichlet(np.full(len(of_subject), 0.7))
        sentences = []
        for _ in range(rng.integers(least, most + 1)):
            topic = int(rng.integers(len(names)) if rng.random() < noise else rng.choice(of_subject, p=shares))
            counts[number, topic] += 1
            sentences.append(_sentence(by_topic[topic], rng))
        texts.append(" ".join(sentences))
    if return_X_y:
        return texts, target
    topics = {word: k for k, kinds in enumerate(words) for kind in kinds for word in kind.split()}
    about = f"{n_samples} texts written by templates about {', '.join(subjects)}; synthetic, made by bagwise."
    return Bunch(
        data=texts,
        target=target,
        target_names=subjects,
        topic_names=names,
        topics=counts,
        word_topics=topics,
        DESCR=about,
    )


def _sentence(words: dict[str, list[str]], rng: np.random.Generator) -> str:
    """Fill a template with words of a topic, first ones of a list more often; no word comes twice in a sentence."""
    left = {}
    for kind, known in words.items():
        turns = rng.exponential(size=len(known)) * (np.arange(len(known)) + _HEAD)
        left[kind] = [known[k] for k in np.argsort(-turns).tolist()]
    template = _TEMPLATES[rng.integers(len(_TEMPLATES))]
    return _ARTICLES.sub("an ", _PLACES.sub(lambda match: left[match[0]].pop(), template))
