"""Draws greedy replies from vLLM inside this interpreter: ``python greedy_in_process.py POLICY PROMPTS.json OUT.json``.

Run by a test in vLLM's own environment. Not a test module.
"""

import asyncio
import json
import sys
from pathlib import Path

from dialrl.engine import EngineOptions, open_engine
from dialrl.engine.base import Generation, GenerationRequest, SamplingSettings


async def draw(engine, prompts: list[list[int]]) -> list[Generation]:
    """One reply after the other."""
    sampling = SamplingSettings(temperature=0.0, max_reply_tokens=32)
    return [await engine.generate(GenerationRequest(prompt, seed=0), sampling) for prompt in prompts]


def main(policy: str, prompts: str, output: str) -> None:
    options = {
        "mode": "in-process",
        "extra_arguments": ["--enforce-eager"],
        "environment": {"VLLM_CPU_KVCACHE_SPACE": "1"},
    }
    engine = open_engine("vllm", Path(policy), EngineOptions(more=options))
    try:
        replies = asyncio.run(draw(engine, json.loads(Path(prompts).read_text())))
    finally:
        engine.close()
    drawn = [{"ids": reply.reply_ids, "logprobs": reply.logprobs, "finish": reply.finish_reason} for reply in replies]
    Path(output).write_text(json.dumps(drawn))


if __name__ == "__main__":  # vLLM starts processes that import this file
    main(*sys.argv[1:])
