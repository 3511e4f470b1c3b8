"""The stage ``returns``: reward channels, their weighted sum, missing values, and discounted returns."""
