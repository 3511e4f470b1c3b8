"""Seeds: one run seed becomes an independent seed for every random decision of the run.

``seed_for`` hashes *where* the decision is made, so that a seed never depends on timing, order or process count, and
members of a group never share one (field case 26). Not here: random generators; each part makes its own from the seed.
"""

import hashlib

SEED_BITS = 63


def seed_for(run_seed: int, iteration: int, group: str, sample: int, turn: int, role: str, attempt: int = 0) -> int:
    """63-bit seed of one decision: blake2b over the run seed, iteration, group, sample, turn, role and attempt.

    The fields are length-prefixed, so no two different tuples give the same bytes. The result fits a signed int64.
    """
    parts = [
        str(part).encode("utf-8", "surrogatepass") for part in (run_seed, iteration, group, sample, turn, role, attempt)
    ]
    prefixed = b"".join([len(part).to_bytes(8, "big") + part for part in parts])
    return int.from_bytes(hashlib.blake2b(prefixed, digest_size=8).digest(), "big") >> (64 - SEED_BITS)
