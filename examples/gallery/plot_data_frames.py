"""
Do DataFrames go in and come out?
=================================

With ``set_output(transform="pandas")`` the groups come out as columns with names, in the rows of the frame that went
in. Here 30 measurements of tumours become 5 groups, which go on in pandas.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from bagwise import WordMerger

data = load_breast_cancer(as_frame=True)
merger = WordMerger(n_groups=5).set_output(transform="pandas")
groups = merger.fit_transform(data.data, data.target)  # a DataFrame
groups.columns = [" + ".join(name.split("+")[:2]) + " …" for name in groups.columns]

named = data.target.map(dict(enumerate(data.target_names))).rename("tumour")
ranked = groups.rank(pct=True).groupby(named).median()
figure, axes = plt.subplots(figsize=(8.5, 3.6), layout="constrained")
ranked.T.plot.barh(ax=axes, color=["C3", "C0"])
axes.legend(title="tumour", loc="upper left", bbox_to_anchor=(1, 1))
axes.set(title="30 measurements in 5 groups", xlabel="median rank among all tumours")
plt.show()
