"""Damage in mapped files, which nobody looked at: readers give an error or an answer, and stay inside their arrays.

All of it is done in another process, which would die of an index out of bounds.
"""

import subprocess
import sys

SCRIPT = """
import sys, warnings
from pathlib import Path
import numpy as np
import scipy.sparse as sp
from bagwise import BagIndex, BagOfFeatures, Bags, BagwiseError
from bagwise.training import ItemIndex
from bagwise.training.index_words import IndexedWords
from changed_files import change_tensor

warnings.simplefilter("ignore")
folder, models = Path(sys.argv[1]), Path(sys.argv[2])
rng = np.random.default_rng(0)
told = {"given": 0, "refused": 0}

def tried(*actions):
    for action in actions:
        try:
            action()
            told["given"] += 1
        except BagwiseError:
            told["refused"] += 1

def changed(path, name, value, every):
    copy = folder / "changed"
    copy.write_bytes(path.read_bytes())
    def change(held):
        held.reshape(-1)[::every] = np.array(value).astype(held.dtype)
    return change_tensor(copy, name, change, checksum="old")

def opened(load, path):
    try:
        return load(path)
    except BagwiseError:
        told["refused"] += 1

# more than one piece of work for a thread, so that pages beside the arrays are not all ours
sizes = (300, 200, 400)
bags = Bags.from_list([rng.random((n, 4)) for n in sizes], [rng.random((n, 2)) for n in sizes])
whole = bags.save(folder / "bags")
KINDS = ("hard", "soft", "vlad")
words = {name: BagOfFeatures(5, assignment=name, pyramid=8, random_state=0).fit(bags) for name in KINDS}
for name, value in [(n, v) for n in ("values", "positions") for v in (np.nan, np.inf, -1e30, 1e30)]:
    found = Bags.load(changed(whole, name, value, 7))
    before = told["refused"]
    tried(*(lambda one=one: one.transform(found) for one in words.values()), lambda: [one.sum() for one in found])
    assert name == "values" or told["refused"] == before + 3, value

X = np.concatenate([rng.poisson(0.15, (60, 40)), rng.poisson(3, (60, 40))]).astype(float)
X[:, 0] += 1
index = BagIndex("chi2").add(X[:60], [f"item {k}" for k in range(60)]).add(X[60:], [f"row {k}" for k in range(60)])
whole = index.save(folder / "index")
CHANGES = {
    "items": (65535, 0), "values": (np.nan, -3e38), "dense": (np.inf, -1), "totals": (np.nan, -1),
    "id_text": (255,), "id_offsets": (-2**63, 2**62), "starts": (-1, 2**62),
}
for name, value, every in [(n, v, e) for n, values in CHANGES.items() for v in values for e in (1, 7)]:
    found = opened(BagIndex.load, changed(whole, name, value, every))
    if found is None:
        continue
    tried(
        lambda: found.search(X[:20], 100), lambda: found.search(X[:1], 5), lambda: found.row(0), lambda: found.row(119),
        lambda: found.contributions(X[:1], [0, 5, 119]), lambda: found.ids, lambda: found.save(folder / "again"),
        lambda: found.remove(["item 0", "row 7"]).search(X[:9], 5),
        lambda: found.add(X[:3], list("abc")).search(X[:9], 5),
    )

whole = ItemIndex.load(models / "files5/items.index").save(folder / "items")
for name, value in [(f"index.{n}", v) for n, values in CHANGES.items() for v in values] + [("model", 255)]:
    found = opened(ItemIndex.load, changed(whole, name, value, 3))
    if found is None:
        continue
    n = found.model.n_cells * found.model.hierarchy.n_words
    tried(
        lambda: found.similar(0, 3), lambda: found.search(np.ones((9, n)), 3), lambda: found.shared(0, [0, 1]),
        lambda: IndexedWords.of(found).features(found.model), lambda: IndexedWords.of(found).spread(found.model),
        lambda: IndexedWords.of(found).items_with(np.arange(n)), lambda: found.with_map(),
    )
print(told["given"], told["refused"])
"""


def test_damage_in_mapped_files_ends_no_process(tmp_path, request):
    models = request.path.parent / "models"
    ran = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path, models], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    given, refused = map(int, ran.stdout.split())
    assert given > 100
    assert refused > 40
