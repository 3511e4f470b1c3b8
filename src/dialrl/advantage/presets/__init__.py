"""Published estimators as data: one file or row each. Not here: how a term is computed (``estimate``)."""
