"""The published Qwen2.5-Coder sizes, and one that learns on a laptop, by name."""

from codea1.models.config import Qwen2Config
from codea1.models.config_json import SpecialIds
from codea1.runtime.errors import BadInput


def _qwen(vocab: int, hidden: int, mlp: int, layers: int, heads: int, kv_heads: int, tied: bool = True) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=hidden // heads,
        tie_word_embeddings=tied,
    )


# What tells the published sizes apart.
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim")

# The config.json of each Qwen/Qwen2.5-Coder-*B-Instruct on the Hugging Face hub.
PUBLISHED = {
    "qwen2.5-coder-0.5b": _qwen(151936, 896, 4864, 24, 14, 2),
    "qwen2.5-coder-1.5b": _qwen(151936, 1536, 8960, 28, 12, 2),
    "qwen2.5-coder-3b": _qwen(151936, 2048, 11008, 36, 16, 2),
    "qwen2.5-coder-7b": _qwen(152064, 3584, 18944, 28, 28, 4, tied=False),
}

# The special tokens of their tokenizers: <|im_end|> ends an answer, <|endoftext|> pads.
PUBLISHED_IDS = SpecialIds(stop_ids=(151645,), pad_id=151643)


def tiny(vocab_size: int) -> Qwen2Config:
    """A model that learns on a laptop CPU: 0.8 M parameters beside its embedding table."""
    return _qwen(vocab_size, hidden=128, mlp=384, layers=4, heads=4, kv_heads=2)


def named(name: str, vocab_size: int) -> Qwen2Config:
    """The configuration called `name`, for a tokenizer whose largest id is below `vocab_size`.

    The published sizes have their own, larger, table, padded for sharding; "tiny" takes `vocab_size` as it is.
    Raises BadInput for an unknown name or a tokenizer that does not fit the published table.
    """
    if name == "tiny":
        return tiny(vocab_size)
    if name not in PUBLISHED:
        raise BadInput(f"unknown model {name!r}: the models are tiny, {', '.join(PUBLISHED)}")
    config = PUBLISHED[name]
    if vocab_size > config.vocab_size:
        raise BadInput(f"model {name!r} has {config.vocab_size} token ids, the tokenizer needs {vocab_size}")
    return config
