"""Changes of the library that tests must notice; ``tests/mutants.py`` makes them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """A change that must not go unnoticed."""

    name: str
    path: str  # below src/bagwise
    old: str  # occurs once
    new: str
    tests: str  # files and folders below tests/, and perhaps -k and an expression

    def source(self, root: Path = ROOT) -> Path:
        return root / "src" / "bagwise" / self.path

    def is_stale(self, root: Path = ROOT) -> bool:
        source = self.source(root)
        return not source.exists() or source.read_text(encoding="utf-8").count(self.old) != 1


MUTANTS = [
    # merging: searches
    Mutant(
        "additive search: after packing, a lost partner becomes the first slot",
        "merging/searches/partners.py",
        "gone = self._order[self._partner] == _DEAD",
        "gone = np.zeros(len(place), dtype=bool)",
        "merging/test_greedy.py -k additive",
    ),
    Mutant(
        "additive search: after packing, lost second partners are still candidates",
        "merging/searches/partners.py",
        "        self._next_gains[self._order[self._next_partners] == _DEAD] = -np.inf\n",
        "",
        "merging/test_greedy.py -k additive",
    ),
    Mutant(
        "additive search: the row of a merged word is not scanned",
        "merging/searches/partners.py",
        "        self._scan(s)\n",
        "        self._gain[s] = -np.inf\n",
        "merging/test_greedy.py -k additive",
    ),
    Mutant(
        "search by order of weights: pairs of groups that have changed are merged",
        "merging/searches/_weight_kernels.py",
        "state.version[left] == state.versions[top, 0] and state.version[right] == state.versions[top, 1]",
        "state.version[left] >= 0 and state.version[right] >= 0",
        "merging/test_classifier_criterion.py -k searches",
    ),
    Mutant(
        "search by chains: the bound leaves out the mass of the other group",
        "merging/searches/_weight_kernels.py",
        "            if squares[j] < cost * (state.inverse[i] + inverse[j]):\n",
        "            if squares[j] < cost * state.inverse[i]:\n",
        "merging/test_classifier_criterion.py -k searches",
    ),
    Mutant(
        "compact classifier: frequent classes count more",
        "merging/teacher.py",
        "    return given / (sizes + _RARE * sizes.mean())[codes]\n",
        "    return given\n",
        "merging/test_classifier_criterion.py -k rare",
    ),
    Mutant(
        "trace ratio: the floor of the denominator does not follow the trace",
        "merging/searches/_kernels.py",
        "    traces[FLOOR_B] = max(traces[FLOOR_B], TINY * abs(traces[TRACE_B]))\n",
        "",
        "merging/test_searches.py -k vanishes",
    ),
    Mutant(
        "trace ratio: the floor of the numerator does not follow the trace",
        "merging/searches/_kernels.py",
        "    traces[FLOOR_A] = max(traces[FLOOR_A], TINY * abs(traces[TRACE_A]))\n",
        "",
        "merging/test_searches.py -k vanishes",
    ),
    Mutant(
        "bound search: the bound of a row ignores pairs left of its top",
        "merging/searches/_bound_kernels.py",
        "return at_top + max(max(right_of_it, left_of_it), 0.0)",
        "return at_top + max(right_of_it, 0.0)",
        "merging/test_searches.py",
    ),
    # merging: criteria
    Mutant(
        "mlt: samples are scaled together",
        "merging/criteria/posterior.py",
        "X = sp.diags_array(self.total / np.where(totals > 0, totals, 1.0)) @ X",
        "X = X * (self.total / totals.mean())",
        "merging/test_additive_scores.py",
    ),
    Mutant(
        "mfa: equally near pairs in another order",
        "merging/neighbors.py",
        "np.lexsort((columns, rows, -values))",
        "np.lexsort((rows, columns, -values))",
        "merging/test_criteria.py",
    ),
    Mutant(
        "mfa: equally near pairs as they come",
        "merging/neighbors.py",
        "kept = np.flatnonzero(new >= bar)",
        "kept = np.flatnonzero(new >= bar)[::-1][:n_pairs]",
        "merging/test_criteria.py",
    ),
    Mutant(
        "information: words that never occur are not folded into the first that does",
        "merging/scoring.py",
        "        numbers[probability == 0] = numbers[occurring[0]]\n",
        "        numbers[probability == 0] = numbers.max() + 1\n",
        "merging/test_additive_scores.py",
    ),
    Mutant(
        "kernels: one logarithm less in the direct Jensen-Shannon sums",
        "merging/searches/kernel.py",
        "sums[:] = values @ weights**2 + alone @ weights**2 - weights.sum() * (alone @ weights)",
        "sums[:] = values @ weights**2 - weights.sum() * (alone @ weights)",
        "merging/test_kernel_merging.py",
    ),
    Mutant(
        "kernels: a coarser quadrature of the Jensen-Shannon kernel",
        "merging/searches/kernel.py",
        "step, first, last = 0.9 * step, np.log(cut)",
        "step, first, last = 1.1 * step, np.log(cut)",
        "merging/test_kernel_merging.py",
    ),
    Mutant(
        "kernels: the quadrature of the Jensen-Shannon kernel ends too early",
        "merging/searches/kernel.py",
        "np.log(cut) - np.log(largest), -np.log(cut) - np.log(smallest)\n",
        "np.log(100 * cut) - np.log(largest), -np.log(cut) - np.log(smallest)\n",
        "merging/test_kernel_merging.py",
    ),
    Mutant(
        "statistics: products are not moved to the common centre",
        "merging/statistics.py",
        "return n_samples * step[i] * step[j] - step[i] * sums[j] - sums[i] * step[j]",
        "return n_samples * step[i] * step[j]",
        "merging/test_statistics.py",
    ),
    Mutant(
        "statistics: one chunk of whole numbers makes the sum whole",
        "merging/statistics.py",
        "whole=self.whole & other.whole,",
        "whole=self.whole | other.whole,",
        "merging/test_statistics.py",
    ),
    Mutant(
        "sparse store: the row of a merged word is kept",
        "merging/stores/factored.py",
        "        self.drop(s)\n        self.drop(t)\n",
        "        self.drop(t)\n",
        "merging/test_stores.py",
    ),
    # merging: hierarchies, groups, estimators
    Mutant(
        "hierarchy: a cut has one merge too many",
        "merging/hierarchy.py",
        "done = self.merges[: self.n_words - n]",
        "done = self.merges[: self.n_words - n + 1]",
        "merging/test_hierarchy.py",
    ),
    Mutant(
        "hierarchy: only one step towards the roots",
        "merging/hierarchy.py",
        "            if np.array_equal(further, root):\n                break\n            root = further\n",
        "            root = further\n            break\n",
        "merging/test_hierarchy.py",
    ),
    Mutant(
        "pooling: the square root of the size is forgotten",
        "merging/pooling.py",
        '{"sum": 0.0, "mean": 1.0, "sqrt": 0.5}',
        '{"sum": 0.0, "mean": 1.0, "sqrt": 1.0}',
        "merging/test_pooling.py",
    ),
    Mutant(
        "pooling: weights hold for the first cell of a pyramid only",
        "merging/pooling.py",
        "weights = None if weights is None else np.tile(weights, n_cells)",
        "weights = None if weights is None else np.tile(np.ones_like(weights), n_cells)",
        "merging/test_pooling.py",
    ),
    Mutant(
        "names of groups: equal names stay equal",
        "merging/naming.py",
        "        while name in names:\n",
        "        while False:\n",
        "merging/test_word_merger.py -k names",
    ),
    Mutant(
        "map: what cannot be told apart is told apart",
        "training/item_map.py",
        "    told = values > _NOTHING\n",
        "    told = values > -1\n",
        "training/test_item_map.py",
    ),
    Mutant(
        "map: columns that depend on others are kept",
        "training/item_map.py",
        "values > _NOTHING * size",
        "values >= 0",
        "training/test_item_map.py",
    ),
    Mutant(
        "map: no weight is added to the edges",
        "training/item_map.py",
        "    constant = own.mean() / n\n",
        "    constant = 0.0 / n\n",
        "training/test_item_map.py",
    ),
    Mutant(
        "index: answers of the model for training items",
        "training/item_answers.py",
        "for first in range(n_held_out, n_items, _BATCH):",
        "for first in range(0, n_items, _BATCH):",
        "training/test_item_index.py",
    ),
    Mutant(
        "explorer: words of a group counted in each of its lists",
        "retrieval/_kernels.py",
        "                    buffer[i] = _ZERO\n",
        "",
        "explorer/test_stored.py",
    ),
    Mutant(
        "cross-validation: one standard error above the best",
        "merging/sizes.py",
        "scores >= scores[best] - errors[best]",
        "scores >= scores[best] + errors[best]",
        "merging/test_word_merger_cv.py",
    ),
    Mutant(
        "cross-validation: standard deviations for standard errors",
        "merging/path.py",
        "return self.scores.std(axis=0, ddof=1) / np.sqrt(n_folds)",
        "return self.scores.std(axis=0, ddof=1)",
        "merging/test_word_merger_cv.py",
    ),
    Mutant(
        "cross-validation: words are merged on the test samples as well",
        "merging/path.py",
        "merged = clone(merger).fit(merge_on[train], y[train], **own)",
        "merged = clone(merger).fit(merge_on, y, **(merge_params or {}))",
        "merging/test_word_merger_cv.py",
    ),
    Mutant(
        "sketch: samples are numbered from zero in each chunk",
        "merging/sketching/sketch.py",
        "hashed_coefficients(self._state(self.first_sample + self.n_samples), self.n_hashes, out)",
        "hashed_coefficients(self._state(self.first_sample), self.n_hashes, out)",
        "merging/test_sketch.py",
    ),
    # codebooks
    Mutant(
        "k-means: an empty cluster takes the only point of another",
        "codebooks/kmeans.py",
        "if sizes[labels[point]] > 1:",
        "if sizes[labels[point]] > 0:",
        "codebooks/test_kmeans.py",
    ),
    Mutant(
        "k-means: the worst of several runs",
        "codebooks/kmeans.py",
        "if best is None or found.cost < best.cost:",
        "if best is None or found.cost > best.cost:",
        "codebooks/test_kmeans.py",
    ),
    Mutant(
        "k-means: seeds are drawn without looking at distances",
        "codebooks/kmeans.py",
        "reach = np.cumsum(self.weights * distances)",
        "reach = np.cumsum(self.weights * (distances > 0))",
        "codebooks/test_kmeans.py",
    ),
    Mutant(
        "normaliser: rows are not scaled by their largest value",
        "codebooks/normalizing.py",
        "np.repeat(np.where(largest > 0, largest, 1).astype(np.float64), lengths)",
        "np.repeat(np.ones(len(largest)), lengths)",
        "codebooks/test_normalizing.py",
    ),
    Mutant(
        "encoders: soft assignment by squared distances",
        "codebooks/encoders.py",
        "            np.sqrt(codes, out=codes)\n",
        "",
        "codebooks/test_encoders.py",
    ),
    Mutant(
        "encoders: localized codes do not sum to one",
        "codebooks/encoders.py",
        "            weights /= weights.sum(axis=1, keepdims=True)\n",
        "",
        "codebooks/test_encoders.py",
    ),
    Mutant(
        "pyramid: cells are numbered column by column",
        "codebooks/pyramids.py",
        "cells[:, level] = row * columns + column",
        "cells[:, level] = column * rows + row",
        "codebooks/test_encoding.py",
    ),
    # topics
    Mutant(
        "topics: Newton steps of an asymmetric prior are not controlled",
        "topics/training.py",
        "after.max() <= _LARGEST and prior_objective(after, mean_logs) >= before:",
        "after.max() <= _LARGEST:",
        "topics/test_inference.py -k line_search",
    ),
    Mutant(
        "topics: Newton steps of a symmetric prior are not controlled",
        "topics/training.py",
        "            if objective(after) >= before:\n",
        "            if True:\n",
        "topics/test_inference.py -k prior",
    ),
    Mutant(
        "topics: steps of a symmetric prior may be of any length",
        "topics/training.py",
        "        step = float(np.clip(step, -2.0, 2.0))\n",
        "        step = float(step)\n",
        "topics/test_inference.py -k prior",
    ),
    Mutant(
        "topics: an online step forgets nothing",
        "topics/training.py",
        "counts += (1 - rate) * state.counts",
        "counts += state.counts",
        "topics/test_training.py",
    ),
    Mutant(
        "topics: a draw counts the words it is to give a topic",
        "topics/_kernels.py",
        "            row[old] -= n\n",
        "",
        "topics/test_training.py",
    ),
    Mutant(
        "topics: the bound of the topics without their entropy",
        "topics/inference.py",
        "of_words = ((eta - counts) * logs + gammaln(counts) - gammaln(eta)).sum()",
        "of_words = ((eta - counts) * logs - gammaln(eta)).sum()",
        "topics/test_inference.py",
    ),
    Mutant(
        "naive Bayes: classes are equally likely",
        "topics/naive_bayes.py",
        "self.class_log_prior_ = np.log(totals / totals.sum())",
        "self.class_log_prior_ = np.log(np.full(len(totals), 1 / len(totals)))",
        "topics/test_scores.py",
    ),
    # retrieval, metrics, clustering
    Mutant(
        "index: Euclidean distances are squared",
        "retrieval/histograms.py",
        "return np.sqrt(keys) if self.kind == plain.EUCLIDEAN else keys",
        "return keys",
        "retrieval/test_bag_index.py",
    ),
    # models: cuts, names, a few items without compiled code
    Mutant(
        "derived classifiers: shares without square roots",
        "model/cutting.py",
        'factors = np.sqrt(shares * _shares(masses, fine, n_fine)) if "power" in model.normalize else shares',
        "factors = shares",
        "first_hour/test_cut.py -k derived",
    ),
    Mutant(
        "derived classifiers: parts of a group that was split have its whole weight",
        "model/cutting.py",
        "np.sqrt(shares * _shares(masses, fine, n_fine))",
        "np.sqrt(shares)",
        "model/test_editing.py -k derived_weights",
    ),
    Mutant(
        "edited groups: a group takes the place of the old one with the fewest of its words",
        "merging/regrouping.py",
        "order = np.lexsort((pairs % n_old, -counts, pairs // n_old))",
        "order = np.lexsort((pairs % n_old, counts, pairs // n_old))",
        "merging/test_regrouping.py -k walking",
    ),
    Mutant(
        "edited groups: scores of single merges are kept although the groups before them changed",
        "merging/regrouping.py",
        "kept = np.maximum.accumulate(joined[:n]) <= np.arange(n)",
        "kept = joined[:n] <= np.arange(n)",
        "merging/test_regrouping.py -k walking",
    ),
    Mutant(
        "edits: locked groups are merged with others in larger groups",
        "model/editor.py",
        "regroup(state.free, labels, labels, whole=whole, closed=closed)",
        "regroup(state.free, labels, labels, whole=whole)",
        "model/test_editing.py -k locked",
    ),
    Mutant(
        "links: a merged group does not inherit what its second part must be apart from",
        "merging/constrained.py",
        "            refused[s] |= refused[t]\n",
        "",
        "merging/test_constrained.py -k best_allowed",
    ),
    Mutant(
        "links: groups made by hand are merged like all others",
        "merging/constrained.py",
        "    kept[[*held, *closed]] = True\n",
        "    kept[closed] = True\n",
        "merging/test_constrained.py -k best_allowed",
    ),
    Mutant(
        "links: words that may not be together stay in one group",
        "merging/constrained.py",
        "if own != target and own in apart[target]:",
        "if False:",
        "merging/test_constrained.py -k satisfy",
    ),
    Mutant(
        "trimmed models keep larger classifiers",
        "model/cutting.py",
        "for size, one in getattr(model, name).items() if size <= n",
        "for size, one in getattr(model, name).items()",
        "first_hour/test_cut.py",
    ),
    Mutant(
        "names stay with groups that changed",
        "model/groups.py",
        "if others[new] == sizes[number]",
        "if others[new]",
        "first_hour/test_groups.py -k kept",
    ),
    Mutant(
        "a row alone is summed in another order",
        "merging/pooling.py",
        "turns[len(found) - len(found) % n_sums :] = 0",
        "turns[:] = 0",
        "merging/test_pooling.py -k alone",
    ),
    Mutant(
        "a query alone finds equal items in another order",
        "retrieval/_plain.py",
        'nearest = np.argsort(keys, kind="stable")[:k]',
        'nearest = len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[:k]',
        "retrieval/test_bag_index.py -k alone",
    ),
    Mutant(
        "search by words and classes: classes fit every query",
        "retrieval/class_blend.py",
        "fit = (1 + np.tanh(excess / 2)) / 2",
        "fit = np.ones(len(scores))",
        "retrieval/test_class_blend.py training/test_item_index.py",
    ),
    Mutant(
        "search by words and classes: the query's own certainty plays no part",
        "retrieval/class_blend.py",
        "return np.minimum(fit, self._most(chances, typical))",
        "return fit",
        "retrieval/test_class_blend.py training/test_item_index.py",
    ),
    Mutant(
        "index files: items of a list need not rise",
        "retrieval/files.py",
        "if not (begins[1:-1] | (block.items[1:] > block.items[:-1])).all():",
        "if False:",
        "retrieval/test_index_files.py",
    ),
    Mutant(
        "metrics: a recall of 0.3 of 10 needs 4 items",
        "metrics.py",
        "np.ceil(LEVELS * totals[row] - 1e-9)",
        "np.ceil(LEVELS * totals[row])",
        "test_metrics.py",
    ),
    Mutant(
        "metrics: equally near items in any order",
        "metrics.py",
        'order = np.argsort(distance(queries[rows], gallery), axis=1, kind="stable")',
        "order = np.argsort(-distance(queries[rows], gallery), axis=1)[:, ::-1]",
        "test_metrics.py",
    ),
    # baselines
    Mutant(
        "ditc: an empty group takes the only word of another",
        "baselines/divisive.py",
        "word = int(np.where(sizes[labels] > 1, losses, -1.0).argmax())",
        "word = int(losses.argmax())",
        "baselines/test_divisive.py -k reseeding",
    ),
    # sources, models, runtime
    Mutant(
        "sources: numbers of items are those of results",
        "sources/items.py",
        "self.kept.append(number)",
        "self.kept.append(len(self.kept))",
        "sources/test_items.py",
    ),
    Mutant(
        "sources: the last batch is lost",
        "sources/items.py",
        "            if batch:\n                yield join(batch)\n",
        "",
        "sources/test_items.py",
    ),
    Mutant(
        "sources: all items may be skipped",
        "sources/items.py",
        "    if len(skipped) == n_items:\n",
        "    if len(skipped) > n_items:\n",
        "sources/test_items.py",
    ),
    Mutant(
        "tensor files: strings may overlap",
        "_io/tensors.py",
        "offsets[-1] != len(text) or (offsets[1:] < offsets[:-1]).any():",
        "offsets[-1] != len(text):",
        "model/test_hostile_model_files.py model/test_model_files.py retrieval/test_index_files.py",
    ),
    Mutant(
        "tensor files: tensors may overlap",
        "_io/tensors.py",
        "if [first for first, _ in spans] != [0, *(last for _, last in spans)][:-1] or spans[-1][1] != n_bytes:",
        "if spans[-1][1] != n_bytes:",
        "test_tensor_files.py",
    ),
    Mutant(
        "runtime: arrays of a file may overlap",
        "runtime.py",
        "_check(sorted(first for *_, first, _ in arrays.values()) == ends[:-1], ",
        "_check(True, ",
        "model/test_hostile_model_files.py model/test_runtime.py",
    ),
    Mutant(
        "runtime: merges may join a word twice",
        "runtime.py",
        "_check(np.all(absorbed[t] == level) and np.all(absorbed[s] > level), ",
        "_check(np.all(absorbed[t] == level), ",
        "model/test_hostile_model_files.py model/test_runtime.py",
    ),
    # answers
    Mutant(
        "explanation: contributions of a word are not divided by its occurrences",
        "model/explanation.py",
        "found[number] / occurrences[number] / len(places)",
        "found[number] / len(places)",
        "model/test_explanation.py",
    ),
    Mutant(
        "explanation: words of all cells share the feature of the first",
        "model/explanation.py",
        "own = cells * n + table[words]",
        "own = 0 * cells + table[words]",
        "model/test_explanation.py",
    ),
    Mutant(
        "calibration: scores of two classes have the wrong sign",
        "training/calibration.py",
        "np.stack([-given.ravel(), given.ravel()], axis=1)",
        "np.stack([given.ravel(), -given.ravel()], axis=1)",
        "training/test_calibration.py",
    ),
    Mutant(
        "training items: those beyond the sample count as compared",
        "training/seen.py",
        "        compared &= hashes <= known[-1]\n",
        "        pass\n",
        "first_hour/test_training_error.py -k sample",
    ),
    # reports, notebooks and the explorer from Python
    Mutant(
        "a name may end the data of a report",
        "report/icicle.py",
        '    return whole.replace("<", "\\\\u003c").replace(">", "\\\\u003e").replace("&", "\\\\u0026")\n',
        "    return whole\n",
        "report/test_html.py -k hostile",
    ),
    Mutant(
        "a name is not escaped in a notebook",
        "report/notebook.py",
        '    return f"<td><bdi{title}>{escape(shown)}</bdi></td>"\n',
        '    return f"<td><bdi{title}>{shown}</bdi></td>"\n',
        "test_notebooks.py -k hostile",
    ),
    Mutant(
        "the first baseline is not the strongest",
        "training/baselines.py",
        '    return sorted(found, key=lambda one: float(one["error"]))\n',
        "    return found\n",
        "training/test_baselines.py -k folds",
    ),
    Mutant(
        "items of a fit are answered by the model that was trained on them",
        "explorer/running.py",
        "held_out_top=fit.held_out_top if same else None",
        "held_out_top=None",
        "explorer/test_running.py -k fitted",
    ),
]
