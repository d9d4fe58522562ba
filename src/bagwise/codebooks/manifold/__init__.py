"""Words that are moved until histograms show the manifold of the data (MO-BoF)."""
