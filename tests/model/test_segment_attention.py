"""Every way of attending within segments is attention one segment at a time."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from dialrl.model.segment_attention import block_mask, segment_attention

LENGTHS = (1, 130, 7, 60)  # one segment longer than a block of 128


def attended(wanted: str, *, key_heads: int, scaling: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``wanted`` gives for random queries, keys and values, and what each segment gives by itself."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, heads, sum(LENGTHS), 8, generator=generator, dtype=torch.float64)
        for heads in (4, key_heads, key_heads)
    )
    bounds = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)], dtype=torch.int32)
    with torch.no_grad():
        found, _ = segment_attention(
            None, query, key, value, scaling=scaling, cu_seq_lens_q=bounds, max_length_q=max(LENGTHS),
            wanted=wanted,  # type: ignore[arg-type]
        )  # fmt: skip
    parts = zip(*(tensor.split(LENGTHS, dim=2) for tensor in (query, key, value)), strict=True)
    alone = [scaled_dot_product_attention(*part, is_causal=True, scale=scaling, enable_gqa=True) for part in parts]
    return found, torch.cat(alone, dim=2).transpose(1, 2)


@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("wanted", ["auto", "sdpa", "flex"])
def test_segments_attend_as_if_each_were_alone(wanted: str, key_heads: int) -> None:
    found, alone = attended(wanted, key_heads=key_heads, scaling=0.3)
    torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)


def test_a_place_sees_its_own_segment_to_its_left() -> None:
    mask = block_mask(torch.tensor([0, 2, 3, 5], dtype=torch.int32), 5)
    seen = [[int(mask.mask_mod(0, 0, torch.tensor(i), torch.tensor(j))) for j in range(5)] for i in range(5)]
    assert seen == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]


def test_the_mask_of_the_same_bounds_is_made_once_and_of_others_anew() -> None:
    bounds = torch.tensor([0, 4], dtype=torch.int32)
    assert block_mask(bounds, 4) is block_mask(bounds, 4)
    assert block_mask(torch.tensor([0, 2, 4], dtype=torch.int32), 4) is not block_mask(bounds, 4)


@pytest.mark.parametrize("wanted", ["sdpa", "flex"])
def test_under_autocast_all_three_attend_in_its_type(wanted: str) -> None:
    # Norms leave queries and keys in float32 and values in bfloat16; a kernel takes one type.
    query, key, value = (torch.randn(1, 2, 6, 8) for _ in range(3))
    bounds = torch.tensor([0, 2, 6], dtype=torch.int32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = segment_attention(
            None, query, key, value.bfloat16(), cu_seq_lens_q=bounds, max_length_q=4,
            wanted=wanted,  # type: ignore[arg-type]
        )  # fmt: skip
    assert found.dtype == torch.bfloat16
