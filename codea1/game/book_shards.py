"""Which of the Mistake Book's shards a question is in, and which shards a host holds."""

from codea1.runtime.shares import stable_hash

NUM_SHARDS = 64  # for good: books are kept by shard, whatever the number of hosts

ALL_SHARDS = range(NUM_SHARDS)


def shard_of(question_id: str) -> int:
    """The shard of a question: a function of its id alone."""
    return stable_hash(question_id) % NUM_SHARDS


def shards_of_host(index: int, count: int) -> range:
    """The shards that host `index` of `count` holds. Every shard has one host; beyond 64 hosts some hold none."""
    return range(index, NUM_SHARDS, count)
