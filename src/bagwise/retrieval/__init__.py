"""Search: which histograms are nearest to another one, exactly or nearly so."""
