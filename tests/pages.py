"""Tables of pages for the model by itself, without the engine's scheduler."""

import dataclasses

import numpy as np

from codea1.models.kv_cache import Cache, PageTable, num_reads


def prefilling(cache: Cache, rows: int, shards: int = 1) -> Cache:
    """The cache for so many prompts, with a page each, one after another."""
    own = np.arange(rows // shards, dtype=np.int32)
    reads_WI3 = np.full((shards, num_reads(len(own), 1, "cpu"), 3), len(own), np.int32)
    reads_WI3[:, : len(own)] = np.stack([own, own, np.zeros_like(own)], axis=1)
    counts_W = np.full(shards, len(own), np.int32)
    return cache.of_rows(PageTable(np.tile(own, shards)[:, None], reads_WI3, counts_W, is_prefill=True))


def decoding(cache: Cache) -> Cache:
    """The cache for the tokens that follow."""
    return cache.of_rows(dataclasses.replace(cache.table, is_prefill=False))
