"""The environment ``support``: a person with a card, played by a language model and steered by a director."""
