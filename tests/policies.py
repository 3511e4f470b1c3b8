"""A random tiny policy of the demo world, to be trained in seconds. Not a test module."""

from pathlib import Path


def random_policy(directory: Path, *, seed: int = 0) -> Path:
    """A plain transformers directory: one layer, 32 wide, with the demo world's tokenizer."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from dialrl.environment.demo.base_tokenizer import build_tokenizer

    tokenizer = build_tokenizer()
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **shape, **ids))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
