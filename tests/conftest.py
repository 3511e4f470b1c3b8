"""Makes ``tests/toys.py`` (toy tokenizers, chat templates, tiny random policies) importable from every test folder."""
