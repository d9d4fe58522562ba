"""The last lines of a fit say which number of groups, of those that the model has already, errs measurably less."""

import shlex

from bagwise import Model
from commands import as_json, bagwise

KINDS = {"boats": "sail keel mast", "birds": "wing nest beak", "bread": "crust flour oven", "bikes": "pedal chain bell"}


def test_a_better_number_of_groups_is_one_command_away(tmp_path):
    lines = [f"{kind},{words} it is {n}" for n in range(10) for kind, words in KINDS.items()]
    source, path = tmp_path / "texts.csv", tmp_path / "texts.bagwise"
    source.write_text("\n".join(["label,text", *lines]))
    fit = ("fit", source, "--folds", 2, "--no-page", "--no-index", "--out", path, "--force")
    said = bagwise(*fit, "--groups", 2).splitlines()[-1]
    model = Model.load(path)
    better, errors = model.path.better_than(2), dict(zip(model.path.sizes, model.path.errors, strict=True))
    assert better == model.path.auto
    assert errors[better] == 0 < errors[2]
    start, end = "Without fitting again: ", f": error 0.0 % instead of {100 * errors[2]:.1f} %"
    assert (said[: len(start)], said[-len(end) :]) == (start, end)
    command = shlex.split(said[len(start) : -len(end)])
    assert command[-3:] == ["ITEMS", "--groups", str(better)]
    command = [str(source) if word == "ITEMS" else word for word in command[command.index("predict") :]]
    assert as_json(*command)["n_groups"] == better
    assert as_json(*fit, "--groups", 2)["better_groups"] == better
    for groups in (better, "auto", "best"):
        assert "better_groups" not in as_json(*fit, "--groups", groups)
        assert "Without fitting again" not in bagwise(*fit, "--groups", groups)
