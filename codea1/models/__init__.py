"""The policy network: Qwen2 in Flax NNX, its key/value cache, its published sizes, Hugging Face weights in and out."""
