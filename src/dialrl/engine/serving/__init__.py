"""A model of this machine behind an OpenAI-compatible address, on transformers alone (``dialrl serve``, ``hf:DIR``)."""
