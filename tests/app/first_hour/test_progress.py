"""Every step of a fit shows how far it is."""

import pytest

from bagwise import fit_model
from small_sources import write_image_folder, write_records, write_table


@pytest.mark.parametrize("kind", ["two vocabularies", "texts", "table"])
def test_progress_of_every_step_grows_to_its_end(kind, tmp_path):
    options = {"folds": 2}
    if kind == "two vocabularies":
        source = write_image_folder(tmp_path / "images", color=True)
        options |= {"n_words": 8, "n_groups": 4, "max_side": 24, "descriptor": "sift+color"}
    elif kind == "texts":
        source = write_records(tmp_path / "texts.csv")
    else:
        source = write_table(tmp_path / "table.csv")
    seen = {}
    model = fit_model(source, progress=lambda step, *some: seen.setdefault(step, []).append(some), **options)
    assert model.hierarchy.criterion == "classifier"
    for step, counts in seen.items():
        assert counts == sorted(counts), step
        assert len({total for _, total in counts}) == 1, step
        assert counts[-1][0] == counts[-1][1] > 0, step
    assert {"Training a classifier on all words", "Merging words", "Training classifiers"} < set(seen)
    if kind == "two vocabularies":
        assert len(seen["Learning 12 words"]) > 6  # seeds and iterations of both
