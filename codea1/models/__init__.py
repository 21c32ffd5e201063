"""Models: Qwen2 and Qwen3, their cache of keys and values, and their files.

The letters of axes, in names (`logits_BTV`) and in annotations (`Float32[Array, "B T V"]`), which tests check. One
letter is one axis, here and in `codea1.learn`; a digit is an axis of that size, "_" one of any size.

  B rows                   T tokens of a row         X tokens of all rows   S tokens of a row that are seen, as keys
  D embedding              d a device's part of it   F width of the MLP     V vocabulary
  L layers                 E inputs of a kernel      O outputs of it        r rank of adapters
  H heads, of queries where there are others         K key/value heads      G heads of queries for each of those
  A heads of keys and of values, in turn: 2 K        h head dimensions      f half of them
  p head dimensions, padded to whole tiles
  N pages of a cache       P positions of a page     M pages of a row       Y pages of all layers
  I pages that are read    Z pages that are copied   W shards of the batch axis
  Q blocks of queries      J blocks of keys          s keys of a block
  C positions of a chunk   U chunks                  t tokens that are predicted: T - 1
  R terms of a reward      e experts                c chosen for a token   n places of sorted rows
"""
