"""The Python lines that give what a page shows.

Names and texts of users are written by `repr`, so that they are string literals whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bagwise.app.modalities import MODALITIES
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.explorer.comparison import ModelComparison
    from bagwise.app.explorer.pages.groups import GroupQuery
    from bagwise.app.explorer.pages.items import ItemQuery
    from bagwise.app.explorer.workspace import Origin, Workspace

__all__ = [
    "Lines",
    "between_lines",
    "cluster_lines",
    "compare_lines",
    "group_lines",
    "item_lines",
    "items_lines",
    "label_lines",
    "map_lines",
    "overview_lines",
    "search_lines",
]


class Lines:
    """Lines of Python, with the imports that they need; opens a model and its items.

    Parameters
    ----------
    space : Workspace
        Opened from a file.
    n : int or None
        Number of groups.

    Examples
    --------
    >>> from bagwise.app.explorer.workspace import Origin, Workspace
    >>> from bagwise import Hierarchy, Model
    >>> space = Workspace(Model(modality="table", hierarchy=Hierarchy(2, [], []), n_groups=2))
    >>> space.origin = Origin("it's.bagwise", is_index=False)
    >>> print(Lines(space, 2).add("groups = model.describe_groups()"))
    from bagwise import Model
    <BLANKLINE>
    model = Model.load("it's.bagwise").cut(2)
    groups = model.describe_groups()
    """

    def __init__(self, space: Workspace, n: int | None) -> None:
        if space.origin is None:
            raise BagwiseError("The model was not opened from a file, so that there are no lines that open it.")
        self.space, self.cut, self.origin = space, space.cut(n), space.origin
        self._imports: dict[str, set[str]] = {}
        self._lines: list[str] = []
        self._has: set[str] = set()
        self._model("", self.origin, f".cut({self.cut.model.n_groups})")

    def _model(self, suffix: str, origin: Origin, cut: str) -> None:
        if origin.is_index:
            self.use("bagwise.app", "ItemIndex")
            self.add(f"index{suffix} = ItemIndex.load({origin.path!r})", f"model{suffix} = index{suffix}.model{cut}")
        else:
            self.use("bagwise", "Model")
            self.add(f"model{suffix} = Model.load({origin.path!r}){cut}")

    def use(self, module: str, *names: str) -> Lines:
        """Import names."""
        self._imports.setdefault(module, set()).update(names)
        return self

    def add(self, *lines: str) -> Lines:
        """Add lines."""
        self._lines += lines
        return self

    def __str__(self) -> str:
        plain = ["import numpy as np"] if any("np." in line for line in self._lines) else []
        imports = [f"from {name} import {', '.join(sorted(what))}" for name, what in sorted(self._imports.items())]
        return "\n".join([*plain, *imports, "", *self._lines])

    @property
    def stored(self) -> bool:
        """Whether items are shown as an index knows them."""
        return self.origin.is_index and self.origin.source is None

    @property
    def words(self) -> str:
        """Add what tells the words of items that are shown as an index knows them; return how to make it."""
        assert self.space.items is not None
        if self.space.items.histograms is None:
            self.use("bagwise.app.index.index_words", "IndexedWords")
            return "IndexedWords.of(index)"
        self.items().use("bagwise.app.index.index_words", "CountedWords")
        return "CountedWords(index.model, index.model.histograms(items))"

    def items(self) -> Lines:
        """Open the items."""
        if "items" not in self._has:
            self._has.add("items")
            self.use("bagwise.app", "open_items")
            if self.stored:
                self.use("bagwise.app", "FitOptions")
                self.add("items = open_items(model, index.source, FitOptions(**index.reading))")
            else:
                said = _arguments(self.origin.reading)
                options = f", FitOptions({said})" if said else ""
                if said:
                    self.use("bagwise.app", "FitOptions")
                self.add(f"items = open_items(model, {self.origin.source!r}{options})")
        return self

    def answers(self) -> Lines:
        """Add ids, labels and answers: `ids`, `labels`, `predicted`, `margins`."""
        if "answers" in self._has:
            return self
        self._has.add("answers")
        if self.stored:
            return self.add(
                "ids, labels = index.ids, index.labels",
                "top = index.answers.top.at(index.answers.nearest(model.n_groups))",
                "predicted = [model.classes[k] for k in top.predicted]",
                "margins = top.margin",
            )
        self.items().use("bagwise.app.training.item_answers", "TopClasses")
        return self.add(
            "ids, labels = items.ids, items.labels.tolist()",
            "histograms = model.histograms(items)",
            "scores = model.decision_function(histograms)",
            "top = TopClasses.of(scores)",
            "predicted = [model.classes[k] for k in top.predicted]",
            "margins = top.margin",
        )

    @property
    def uncut(self) -> str:
        """The model as it was opened."""
        return "index.model" if self.origin.is_index else f"Model.load({self.origin.path!r})"

    def second_model(self, comparison: ModelComparison) -> Lines:
        """Add the other model, `model_2`."""
        cut = f".cut({comparison.second.model.n_groups})"
        if comparison.other.space is self.space:
            return self.add(f"model_2 = {self.uncut}{cut}")
        if comparison.against == "unedited":
            return self.add(f"model_2 = model.undo(len(model.edits)){cut}")
        origin = comparison.other.space.origin
        if origin is None:
            raise BagwiseError("The other model was not opened from a file, so that there are no lines that open it.")
        self._model("_2", origin, cut)
        return self

    def second(self, comparison: ModelComparison) -> Lines:
        """Add the other model, `model_2`, and its answers for the same items, `predicted_2`."""
        m, other = comparison.second.model.n_groups, comparison.other
        if other.space is self.space:
            if self.stored:
                return self.second_model(comparison).add(
                    f"top_2 = index.answers.top.at(index.answers.nearest({m}))",
                    "predicted_2 = [model_2.classes[k] for k in top_2.predicted]",
                )
            return self.second_model(comparison).add("predicted_2 = model_2.predict(histograms).tolist()")
        self.second_model(comparison)
        origin = other.space.origin
        if other.recounts and self.stored:
            return self.add(
                f"words = {self.words}",
                "predicted = [model.classes[k] for k in model.head.scores(words.features(model)).argmax(axis=1)]",
                "scores_2 = model_2.head.scores(words.features(model_2))",
                "predicted_2 = [model_2.classes[k] for k in scores_2.argmax(axis=1)]",
            )
        if other.recounts:
            return self.add("predicted_2 = model_2.predict(histograms).tolist()")
        if origin is not None and origin.is_index and origin.source is None:
            return self.add(
                f"top_2 = index_2.answers.top.at(index_2.answers.nearest({m}))",
                "answers_2 = {id: model_2.classes[k] for id, k in zip(index_2.ids, top_2.predicted)}",
                "predicted_2 = [answers_2.get(id) for id in ids]",
            )
        return self.items().add("predicted_2 = model_2.predict(items).tolist()")

    def fair(self, comparison: ModelComparison) -> bool:
        """Add which items neither of the answers was learned from, `fair`, if errors are compared on these alone."""
        items = self.space.items
        assert items is not None
        if not (comparison.matched & (items.codes >= 0) & ~comparison.counted).any():
            return False
        if self.stored:
            fair_items = "index.answers.seen(ids).new" if comparison.other.recounts else "index.answers.fair(ids)"
            self.add(f"fair = {fair_items}")
        else:
            self.use("bagwise.app.training.seen", "seen_items")
            self.add("fair = seen_items(model, items, histograms).new")
        other, origin = comparison.other, comparison.other.space.origin
        if other.recounts or other.space is self.space or other.space.items is None or other.space.items.seen is None:
            return True
        if origin is not None and origin.is_index and origin.source is None:
            return bool(
                self.add(
                    "fair_2 = dict(zip(index_2.ids, index_2.answers.fair(index_2.ids)))",
                    "fair = [one and fair_2.get(id, False) for id, one in zip(ids, fair)]",
                )
            )
        self.use("bagwise.app.training.seen", "seen_items")
        return bool(self.items().add("fair = fair & seen_items(model_2, items, model_2.histograms(items)).new"))


def _arguments(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def overview_lines(space: Workspace, n: int | None) -> str:
    """Errors along the path of merging, and the confusion matrix."""
    lines = Lines(space, n)
    if space.model.path is not None:
        lines.add("errors = dict(zip(model.path.sizes, model.path.errors))")
    if lines.cut.confusion is not None:
        lines.answers().use("sklearn.metrics", "confusion_matrix")
        lines.add(
            "known = [k for k, label in enumerate(labels) if label in model.classes]",
            "true, answers = [labels[k] for k in known], [predicted[k] for k in known]",
            "confusion = confusion_matrix(true, answers, labels=model.classes)",
            "print(confusion)",
        )
    return str(lines)


def group_lines(space: Workspace, n: int | None, query: GroupQuery, number: int | None = None) -> str:
    """Groups of a cut, or one of them."""
    lines = Lines(space, n).add("groups = model.describe_groups()")
    if number is not None:
        return str(lines.add(f"group = groups[{number:d}]", "print(group.title, group.words)"))
    if query.find:
        lines.add(f"groups = [g for g in groups if any({query.find.casefold()!r} in w.casefold() for w in g.words)]")
    if query.label is not None:
        _class_weights(lines)
        lines.add(f"groups = [g for g in groups if weights[:, g.number].argmax() == {query.label:d}]")
    lines.add("for group in groups:", "    print(group.number, group.title, group.words[:12])")
    return str(lines)


def _class_weights(lines: Lines) -> None:
    """Add what groups add to the scores of classes, `weights`."""
    if lines.space.items is None:
        lines.use("bagwise.app.model.explanation", "sum_cells")
        lines.add("weights = sum_cells(model.head.coef, model.n_groups)")
    elif lines.stored:
        lines.use("bagwise.app.training.group_data", "class_weights_of_spread")
        lines.add(f"weights = class_weights_of_spread(model, {lines.words}.spread(model))")
    else:
        lines.items().use("bagwise.app.training.group_data", "class_weights")
        lines.add("weights = class_weights(model, model.transform(items))")


def items_lines(space: Workspace, n: int | None, query: ItemQuery, comparison: ModelComparison | None) -> str:
    """The ids of items that filters leave, in their order."""
    lines = Lines(space, n)
    if not lines.cut.has_answers:
        _plain_items(lines)
    else:
        lines.answers()
    conditions = _conditions(lines, query, comparison)
    lines.add(f"chosen = [k for k in range(len(ids)){' if ' + ' and '.join(conditions) if conditions else ''}]")
    if query.sort == "id":
        lines.add("chosen.sort(key=lambda k: ids[k])")
    elif query.sort in ("certainty", "-certainty"):
        lines.add(f"chosen.sort(key=lambda k: {query.sort.removesuffix('certainty')}index.clusters.certainty[k])")
    elif query.sort in ("margin", "-margin", "score"):
        key = {"margin": "margins[k]", "-margin": "-margins[k]", "score": "top.score[k]"}[query.sort]
        lines.add(f"chosen.sort(key=lambda k: {key})")
    return str(lines.add("for k in chosen:", f"    print(ids[k]{', predicted[k]' if lines.cut.has_answers else ''})"))


def _plain_items(lines: Lines) -> None:
    if lines.stored:
        lines.add("ids, labels = index.ids, index.labels")
    else:
        lines.items().add("ids, labels = items.ids, items.labels.tolist()")


def _conditions(lines: Lines, query: ItemQuery, comparison: ModelComparison | None) -> list[str]:
    """Return what items have to fulfil, as conditions on their numbers k."""
    classes, wanted = lines.cut.model.classes, []
    if query.label is not None:
        wanted.append(f"labels[k] == {classes[query.label]!r}")
    if query.predicted is not None:
        wanted.append(f"predicted[k] == {classes[query.predicted]!r}")
    if query.cluster is not None:
        wanted.append(f"index.clusters.labels[k] == {query.cluster:d}")
    if query.right:
        sign = "==" if query.right == "right" else "!="
        wanted.append(f"labels[k] in model.classes and predicted[k] {sign} labels[k]")
    if query.seen:
        if lines.stored:
            lines.use("bagwise.app.training.item_answers", "TRAINING").add("seen = index.answers.origins >= TRAINING")
        else:
            lines.items().use("bagwise.app.training.seen", "seen_items")
            lines.add("seen = seen_items(model, items, model.histograms(items)).seen")
        wanted.append("seen[k]" if query.seen == "training" else "not seen[k]")
    if query.group is not None:
        if lines.stored:
            lines.add(f"has_group = {lines.words}.items_with(model.groups()[{query.group:d}])")
        else:
            lines.items().add(
                "features = model.transform(items)",
                f"has_group = abs(features[:, {query.group:d} :: model.n_groups]).sum(axis=1) > 0",
            )
        wanted.append("has_group[k]")
    if query.selection:
        assert lines.space.items is not None
        numbers = lines.space.items.mapped.selected(query.selection).tolist()
        lines.add(f"selected = {{{', '.join(repr(lines.space.ids[k]) for k in numbers)}}}")
        wanted.append("ids[k] in selected")
    if query.at_least is not None or query.at_most is not None:
        name = "margins"
        if lines.cut.confidence_name == "probability":
            name = "probable"
            lines.add("probable = model.probabilities(scores).max(axis=1)")
        low = f"{query.at_least!r} <= " if query.at_least is not None else ""
        wanted.append(f"{low}{name}[k]" + (f" <= {query.at_most!r}" if query.at_most is not None else ""))
    if comparison is not None:
        lines.second(comparison)
        wanted += _compared(lines, query, comparison)
    if query.find:
        wanted.append(f"{query.find.casefold()!r} in ids[k].casefold()")
    return wanted


def _compared(lines: Lines, query: ItemQuery, comparison: ModelComparison) -> list[str]:
    wanted = []
    if query.which in ("agree", "disagree"):
        sign = "==" if query.which == "agree" else "!="
        wanted.append(f"predicted_2[k] is not None and predicted[k] {sign} predicted_2[k]")
    elif query.which:
        first = "!=" if query.which in ("first_wrong", "both_wrong") else "=="
        second = "!=" if query.which in ("second_wrong", "both_wrong") else "=="
        wanted.append("labels[k] in model.classes and predicted_2[k] is not None")
        wanted.append(f"predicted[k] {first} labels[k] and predicted_2[k] {second} labels[k]")
        wanted += ["fair[k]"] if lines.fair(comparison) else []
    if query.second is not None:
        wanted.append(f"predicted_2[k] == {comparison.classes[query.second]!r}")
    return wanted


def item_lines(space: Workspace, n: int | None, number: int, label: int | None, than: int | str = "") -> str:
    """Why one item gets its class."""
    lines = Lines(space, n).items()
    lines.add(f"item = items[items.ids.index({space.ids[number]!r})]")
    if lines.cut.model.n_groups not in lines.cut.model.heads:
        return str(lines.add("content = item.load()"))
    classes, items = lines.cut.model.classes, space.items
    assert items is not None
    if than == "" and label is None and items.codes[number] not in (-1, int(lines.cut.answers.predicted[number])):
        than = int(items.codes[number])
    named = [] if label is None else [repr(classes[label])]
    named += [f"against={classes[than]!r}"] if isinstance(than, int) else []
    at = lines.cut.model.n_groups
    lines.add(f"why = index.explain({number}, {at}, content=item)" if lines.stored else "why = model.explain(item)")
    lines.add(f"for term in why.groups({', '.join(named)}):", "    print(term.name, term.contribution)")
    return str(lines.add("change = why.changes()"))


def _scored(lines: Lines) -> Callable[[str], str]:
    """Add the words of the items; return what writes a call of `score_items` with further arguments."""
    lines.use("bagwise.app.index.item_scores", "score_items")
    if lines.stored:
        lines.add(f"words = {lines.words}")
    else:
        lines.items().use("bagwise.app", "ItemIndex").use("bagwise.app.index.index_words", "CountedWords")
        lines.use("bagwise.app.training.seen", "seen_items").add(
            "histograms = model.histograms(items)",
            f"index = ItemIndex.build({lines.uncut}, items, histograms, answered=False)",
            "words, seen = CountedWords(index.model, histograms), seen_items(model, items, histograms)",
        )
    return (
        "score_items(index, model, words=words{})"
        if lines.stored
        else "score_items(index, model, words=words, seen=seen{})"
    ).format


def between_lines(space: Workspace, n: int | None, first: int, second: int, without: Sequence[int]) -> str:
    """What groups add to the score of one class less that of another, and the error without some of them."""
    lines = Lines(space, n)
    scored, classes = _scored(lines), f"{first:d}, {second:d}"
    lines.use("bagwise.app.index.item_scores", "separate_classes").add(
        f"scored = {scored('')}",
        f"of_both = np.isin(scored.codes, ({classes}))",
        "numbers = np.flatnonzero(of_both & scored.fair if (of_both & scored.fair).any() else of_both)",
        f"added = separate_classes(index, model, {classes}, numbers, words=words)",
        f"of_first = scored.codes[numbers] == {first:d}",
        "apart = added[of_first].mean(axis=0) - added[~of_first].mean(axis=0)",
    )
    if without:
        lines.add(f"without = np.flatnonzero(np.isin(model.lookup, {list(without)!r}))")
        lines.add(f"scored = {scored(', without=without')}")
    return str(lines.add("print(apart, scored.measured)"))


def label_lines(space: Workspace, n: int | None, order: str, label: int | None) -> str:
    """Items whose label is contradicted by a model that has not seen them."""
    lines = Lines(space, n)
    if label is not None:
        lines.cut.check_class(label)
    scored = _scored(lines)("")
    lines.use("bagwise.app.index.label_issues", "label_issues").add(f"scored = {scored}")
    lines.add(f"issues = label_issues(scored, {order!r})")
    of = "" if label is None else f" if scored.codes[k] == {label:d}"
    lines.add(f"chosen = [(index.ids[k], model.classes[s]) for k, s in zip(issues.numbers, issues.suggested){of}]")
    return str(lines.add("for id, suggested in chosen:", "    print(id, suggested)"))


def cluster_lines(space: Workspace) -> str:
    """Clusters of items, the labels that they give, and the edits that were made."""
    lines = Lines(space, None)
    if space.clusters is None or not lines.origin.is_index:
        raise BagwiseError("These items have no clusters in an index.")
    lines.add("for cluster in index.clusters.describe(index.model):", "    print(cluster.name, cluster.size)")
    lines.use("bagwise.app.index.cluster_edits", "measure_clusters")
    lines.add("print(measure_clusters(index))")
    lines.add("labels = [k if k < 0 else index.clusters.name(k) for k in index.clusters.labels.tolist()]")
    edits = space.clusters.edits
    if edits:
        listed = "".join(f"    {one.whole(space.ids)!r},\n" for one in edits)
        lines.add(f"edits = [  # that were made by hand\n{listed}]")
        lines.add(f"again = index.undo({len(edits)}).apply(edits)")
    return str(lines)


def search_lines(
    space: Workspace, n: int | None, query: str | int, k: int, by: str | None, metric: str | None = None
) -> str:
    """Items that are similar to one of them, by its number, or to a text; images are read from a file."""
    lines = Lines(space, n)
    if not lines.stored:
        lines.items().use("bagwise.app", "ItemIndex").add("histograms = model.histograms(items)")
        lines.add(f"index = ItemIndex.build({lines.uncut}, items, histograms)")
    if by == "groups":
        features = 'model.group(histograms, normalize=("l1",))'
        if lines.stored:
            features = f'{lines.words}.features(model, ("l1",))'
        lines.add(f"index = index.compared_by_groups(model, {features}, {metric or 'hellinger'!r})")
    how = f", by={by!r}" if by and by != "groups" else ""
    if isinstance(query, int):
        query_text = f"index.ids.index({space.ids[query]!r})"
        lines.add(
            f"number = {query_text}", f"hits = index.similar(number, {k + 1:d}{how})  # the item itself is among them"
        )
        lines.add("shared = index.shared(number, [index.ids.index(hit.id) for hit in hits]" + how + ")")
    else:
        if MODALITIES[space.model.modality].readable:
            lines.add(f"query = index.model.histograms([{query!r}])")
        else:
            lines.use("bagwise", "open_collection")
            lines.add('query = index.model.histograms(open_collection("FOLDER_OF_THE_IMAGE"))')
        lines.add(f"hits = index.search(query, {k:d}{how})[0]")
        lines.add("shared = index.shared(query, [index.ids.index(hit.id) for hit in hits]" + how + ")")
    return str(lines.add("for hit in hits:", "    print(hit.id, hit.score, hit.label)"))


def map_lines(space: Workspace, n: int | None) -> str:
    """The items in two dimensions."""
    lines, places = Lines(space, n), None if space.items is None else space.items.mapped.places
    if places is None:
        raise BagwiseError("There is no map of these items yet.")
    assert space.items is not None
    if not lines.stored:
        lines.items().use("bagwise.app", "ItemIndex").add("histograms = model.histograms(items)")
        lines.add(f"index = ItemIndex.build({lines.uncut}, items, histograms)")
    if not lines.stored or places.version:
        lines.add(f"index = index.with_map({places.map.method!r})")
    return str(lines.add("x, y = index.map.points.T", "clusters = index.map.clusters"))


def compare_lines(comparison: ModelComparison) -> str:
    """Errors of two models in pairs, and the overlap of their groups."""
    lines = Lines(comparison.space, comparison.first.model.n_groups)
    lines.use("bagwise.app.training.comparing", "overlap_of_groups")
    if comparison.has_answers:
        lines.answers().second(comparison).use("bagwise.app.training.comparing", "compare_answers")
        fair = " and fair[k]" if lines.fair(comparison) else ""
        known = f"labels[k] in model.classes and predicted_2[k] is not None{fair}"
        lines.add(f"both = [k for k in range(len(ids)) if {known}]")
        lines.add(
            "paired = compare_answers(*([given[k] for k in both] for given in (labels, predicted, predicted_2)))",
            "print(paired.errors, paired.difference, paired.interval, paired.p_value)",
        )
    else:
        lines.second_model(comparison)
    lines.add("overlap = overlap_of_groups(model, model_2)", "print(overlap.adjusted_rand, overlap.moved.sum())")
    return str(lines)
