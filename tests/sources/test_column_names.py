"""Columns are found whatever the case of their names, and those that may matter are told."""

import pandas as pd
import pytest

from bagwise import BagwiseError, fit_model
from bagwise.app import evaluate_model, plan_fit

TEXTS = [f"{'win a prize now' if k % 2 else 'see you at home'} word{k % 5} word{k}" for k in range(20)]
KINDS = ["spam" if k % 2 else "ham" for k in range(20)]


def test_fit_and_plan_tell(tmp_path):
    path = tmp_path / "a.csv"
    shops = ["x" if k % 3 else "y" for k in range(20)]
    pd.DataFrame({"Sentiment": KINDS, "shop": shops, "text": TEXTS}).to_csv(path, index=False)
    model = fit_model(path, n_groups=4)
    for found in (plan_fit(path), model.fit_):
        assert any(
            note.endswith("If 'Sentiment' or 'shop' holds the labels, choose it, as in label='Sentiment'")
            for note in found.notes
        )
    assert model.classes == ()
    labelled = tmp_path / "b.csv"
    pd.DataFrame({"Category": KINDS, "Message": TEXTS}).to_csv(labelled, index=False)
    model = fit_model(labelled, text="Message", n_groups=4, folds=0)
    assert model.classes == ("ham", "spam")
    assert "Labels are in the column 'Category'; label= chooses another one." in model.fit_.notes
    # the text is found by the name that the fit was told, whatever its case is there
    other = tmp_path / "c.csv"
    pd.DataFrame({"category": KINDS, "message": TEXTS}).to_csv(other, index=False)
    assert evaluate_model(model, other).errors == evaluate_model(model, labelled).errors
    with pytest.raises(BagwiseError, match=r"have no labels.* If 'Sentiment' or 'shop' holds the labels"):
        evaluate_model(model, path)
