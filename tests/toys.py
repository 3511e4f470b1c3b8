"""Toy tokenizers, chat templates in the style of the common families, and tiny random-weight policies.

``ToyTokenizer`` has the vocabulary of the field cases, worked out by hand; ``fast_tokenizer`` is a real byte-level BPE
tokenizer made here; ``tiny_policy`` saves a two-layer causal language model beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

CHATML = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)

LLAMA3 = (
    "{{- bos_token -}}"
    "{%- for message in messages -%}"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%}"
)

# Drops the thoughts of every reply that a user message follows; with enable_thinking false the header of a reply holds
# an empty think block, which history does not.
THINKING = (
    "{%- set ns = namespace(last_user=0) -%}"
    "{%- for message in messages if message.role == 'user' -%}{%- set ns.last_user = loop.length -%}{%- endfor -%}"
    "{%- set seen = namespace(users=0) -%}"
    "{%- for message in messages -%}"
    "{%- if message.role == 'user' -%}{%- set seen.users = seen.users + 1 -%}{%- endif -%}"
    "{%- set text = message.content -%}"
    "{%- if message.role == 'assistant' and seen.users < ns.last_user and '</think>' in text -%}"
    "{%- set text = text.split('</think>')[-1].lstrip('\n') -%}"
    "{%- endif -%}"
    "{{- '<|im_start|>' + message.role + '\n' + text + '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}"
    "{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}"
    "{%- endif -%}"
)

# No special token ends a turn: the cut after a reply lies between ordinary characters.
PLAIN = (
    "{%- for message in messages -%}{{- message.role + ': ' + message.content + '\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- 'assistant: ' -}}{%- endif -%}"
)

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<think>",
    "</think>",
)

CORPUS = (
    "hello there, how are you feeling today?",
    "I hear that you are worried about the exam and about your brother.",
    "system user assistant tool\n\nThat sounds hard. What happened then?",
    "Yes. That is hard. That was hard. That sounds hard. That hurts.",
    "thinking about a plan: ask first, then listen, then answer.",
) * 4


class ToyTokenizer:
    """The vocabulary of the field cases: 1 "he", 2 "llo", 3 "hello", 8 newline, 9 end of turn; greedy longest match.

    Any other character has the id 100 + its code point. ``render`` is the chat template.
    """

    VOCABULARY: ClassVar[dict[str, int]] = {"he": 1, "llo": 2, "hello": 3, "\n": 8, "<eot>": 9}
    eos_token_id = 9

    def __init__(self, render: Callable[[Sequence[Mapping[str, str]], bool], str]) -> None:
        self._render = render

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool, **_: Any) -> str:
        if tokenize:
            raise ValueError("the toy template renders text only")
        return self._render(conversation, add_generation_prompt)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        if add_special_tokens:
            raise ValueError("the template has written the special tokens already")
        by_length = sorted(self.VOCABULARY, key=len, reverse=True)
        ids = []
        while text:
            word = next((word for word in by_length if text.startswith(word)), text[0])
            ids.append(self.VOCABULARY.get(word, 100 + ord(word[0])))
            text = text[len(word) :]
        return ids

    def decode(self, token_ids: Any, *, skip_special_tokens: bool) -> str:
        words = {number: word for word, number in self.VOCABULARY.items()}
        return "".join(words.get(token) or chr(token - 100) for token in token_ids)


def newline_after_eot(messages: Sequence[Mapping[str, str]], generation_prompt: bool) -> str:
    """Field case 2: every message is its text, ``<eot>`` and a newline; replies have no header."""
    return "".join(message["content"] + "<eot>\n" for message in messages)


def fast_tokenizer(chat_template: str, eos_token: str = "<|im_end|>") -> Any:
    """A byte-level BPE tokenizer of 360 tokens with the special tokens of ChatML, Llama 3 and Qwen3."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=chat_template,
        bos_token="<|begin_of_text|>",
        eos_token=eos_token,
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL_TOKENS),
    )


def tiny_policy(directory: Path, *, seed: int = 0, chat_template: str = CHATML, **changes: Any) -> Path:
    """A random Qwen3 of two layers, 32 wide, saved with its tokenizer in ``directory/model``."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = fast_tokenizer(chat_template)
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "tie_word_embeddings": True,
        "eos_token_id": [
            tokenizer.convert_tokens_to_ids("<|im_end|>"),
            tokenizer.convert_tokens_to_ids("<|endoftext|>"),
        ],
        "pad_token_id": tokenizer.convert_tokens_to_ids("<|endoftext|>"),
        "bos_token_id": None,
    }
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(Qwen3Config(**{**settings, **changes}))
    model.save_pretrained(directory / "model")
    tokenizer.save_pretrained(directory / "model")
    return directory
