"""The model against transformers' Qwen2, Qwen3 and Qwen3-MoE, and its cache against its own full forward pass.

`python -m tests.models_qwen2_test`, where torch is installed, writes tests/golden/qwen2_logits.json again. Do that only
when the weights' recipe below changes: the file is the reference where torch is absent.
"""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file

from codea1.lab import model_writer
from codea1.models import qwen2
from codea1.models.config import PUBLISHED, Qwen2Config
from codea1.models.kv_cache import Cache
from codea1.runtime.errors import BadInput
from tests.model_folders import load, transformers_model
from tests.pages import decoding, prefilling

GOLDEN = Path(__file__).parent / "golden" / "qwen2_logits.json"
SMALL = Qwen2Config(
    vocab_size=32, hidden_size=32, intermediate_size=48, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8
)
QWEN3 = dataclasses.replace(SMALL, qkv_bias=False, qk_norm=True, head_dim=16)
MOE = dataclasses.replace(QWEN3, head_dim=32, intermediate_size=16, num_experts=32, experts_per_token=4)
CONFIGS = {
    "tied": SMALL,
    "untied": dataclasses.replace(SMALL, tie_word_embeddings=False),
    "qwen3": QWEN3,
    "qwen3 untied": dataclasses.replace(QWEN3, tie_word_embeddings=False),
    "moe": MOE,
    "moe untied": dataclasses.replace(
        MOE, tie_word_embeddings=False, num_experts=128, experts_per_token=8, norm_experts=False
    ),
}
PADDED_CONFIGS = CONFIGS | {
    "mqa": dataclasses.replace(SMALL, num_kv_heads=1),
    "qwen3 mqa": dataclasses.replace(QWEN3, num_kv_heads=1),
}
LENGTHS = np.array([48, 17, 5])  # of rows padded to 48; logits are stored at the first and the last token of each
PADDED_TOKENS = np.random.default_rng(2).integers(0, SMALL.vocab_size, (3, 48)).astype(np.int32)
PADDED_DTYPES = ("float32", "bfloat16")
TOKENS = np.random.default_rng(1).integers(0, SMALL.vocab_size, (2, 8)).astype(np.int32)


def checkpoint_shapes(config: Qwen2Config) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Qwen2ForCausalLM checkpoint, written out independently of the loader's table."""
    D, F, V = config.hidden_size, config.intermediate_size, config.vocab_size
    Q, K = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    found = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    for layer in range(config.num_layers):
        block = {"input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,)}
        block |= {f"self_attn.{x}_proj.weight": (n, D) for x, n in (("q", Q), ("k", K), ("v", K))}
        if config.qkv_bias:
            block |= {f"self_attn.{x}_proj.bias": (n,) for x, n in (("q", Q), ("k", K), ("v", K))}
        if config.qk_norm:
            block |= {f"self_attn.{x}_norm.weight": (config.head_dim,) for x in "qk"}
        block["self_attn.o_proj.weight"] = (D, Q)
        mlps = ["mlp"]
        if config.num_experts:
            block["mlp.gate.weight"] = (config.num_experts, D)
            mlps = [f"mlp.experts.{expert}" for expert in range(config.num_experts)]
        for mlp in mlps:
            block |= {f"{mlp}.{x}_proj.weight": (F, D) for x in ("gate", "up")} | {f"{mlp}.down_proj.weight": (D, F)}
        found |= {f"model.layers.{layer}.{name}": shape for name, shape in block.items()}
    return found if config.tie_word_embeddings else found | {"lm_head.weight": (V, D)}


def write_checkpoint(folder: Path, config: Qwen2Config) -> None:
    """A checkpoint whose every tensor matters: biases are not 0, norms are not 1, attention is far from uniform."""
    rng = np.random.default_rng(0)
    tensors = {}
    for name, shape in sorted(checkpoint_shapes(config).items()):
        noise = rng.normal(size=shape)
        tensors[name] = (1 + 0.1 * noise if "norm" in name else 0.3 * noise).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model_writer.config_content(config, "float32")))


def reference_logits(folder: Path) -> np.ndarray:
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return transformers_model(folder)(torch.tensor(TOKENS)).logits.numpy()


def padded_reference_logits(folder: Path, dtype: str) -> np.ndarray:
    """[3, 2, V] at the first and last tokens of rows that are padded on the left, as transformers generates."""
    torch = pytest.importorskip("torch")
    longest = LENGTHS.max()
    is_token = np.arange(longest) >= longest - LENGTHS[:, None]
    tokens = np.full(is_token.shape, 7)
    for row, length in enumerate(LENGTHS):
        tokens[row, -length:] = PADDED_TOKENS[row, :length]
    with torch.no_grad():
        logits = transformers_model(folder, dtype)(
            torch.tensor(tokens),
            attention_mask=torch.tensor(is_token.astype(np.int64)),
            position_ids=torch.tensor(np.maximum(np.cumsum(is_token, axis=1) - 1, 0)),
        ).logits
    logits = logits.float().numpy()
    return np.stack([logits[np.arange(3), longest - LENGTHS], logits[:, -1]], axis=1)


def positions(tokens) -> jax.Array:
    return jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)


def make_forward(config: Qwen2Config):
    graphdef, _ = qwen2.abstract(config)

    @jax.jit
    def forward(params, tokens_BT, positions_BT, cache=None):
        model = nnx.merge(graphdef, params)
        hidden_BTD, cache, _ = model(tokens_BT, positions_BT, cache)
        return model.logits(hidden_BTD), cache

    return forward


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    write_checkpoint(folder, SMALL)
    config, params = load(folder)
    assert config == SMALL
    return jax.device_put(params), make_forward(SMALL)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_stored_transformers_logits(name, tmp_path):
    write_checkpoint(tmp_path, CONFIGS[name])
    config, params = load(tmp_path)
    logits, cache = make_forward(config)(params, TOKENS, positions(TOKENS))
    assert cache is None
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits, np.array(json.loads(GOLDEN.read_text())[name]), atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_transformers_live(name, tmp_path):
    write_checkpoint(tmp_path, CONFIGS[name])
    reference = reference_logits(tmp_path)
    config, params = load(tmp_path)
    logits, _ = make_forward(config)(params, TOKENS, positions(TOKENS))
    np.testing.assert_allclose(logits, reference, atol=1e-4)
    np.testing.assert_allclose(np.array(json.loads(GOLDEN.read_text())[name]), reference, atol=1e-5)


def stored_padded_logits(name: str, dtype: str) -> np.ndarray:
    return np.array(json.loads(GOLDEN.read_text())[f"{name} padded {dtype}"])


def padded_logits(folder: Path, name: str, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Ours of rows padded on the right: at first and last tokens [3, 2, V], and at the last by the cache [3, V]."""
    write_checkpoint(folder, PADDED_CONFIGS[name])
    config, params = load(folder)
    config = dataclasses.replace(config, dtype=dtype)
    forward, rows, last = make_forward(config), np.arange(3), LENGTHS - 1
    tokens = np.where(np.arange(LENGTHS.max()) < LENGTHS[:, None], PADDED_TOKENS, 7)
    logits, _ = forward(params, tokens, positions(tokens))
    # The last token by itself, after a prefill that ends anywhere.
    cache = prefilling(Cache.zeros(config, pages=3), rows=3)
    _, cache = forward(params, np.where(np.arange(LENGTHS.max()) < last[:, None], tokens, 7), positions(tokens), cache)
    decoded, _ = forward(params, tokens[rows, last][:, None], last[:, None], decoding(cache))
    return np.stack([logits[:, 0], logits[rows, last]], axis=1), np.array(decoded[:, 0])


@pytest.mark.parametrize("name", PADDED_CONFIGS)
def test_padded_rows_equal_transformers_rows_padded_on_the_left(name, tmp_path):
    expected = stored_padded_logits(name, "float32")
    logits, decoded = padded_logits(tmp_path, name, "float32")
    np.testing.assert_allclose(logits, expected, atol=2e-4)
    np.testing.assert_allclose(decoded, expected[:, 1], atol=2e-4)


@pytest.mark.parametrize("name", PADDED_CONFIGS)
def test_bfloat16_rounds_about_as_transformers_does(name, tmp_path):
    exact, theirs = (stored_padded_logits(name, dtype) for dtype in PADDED_DTYPES)
    logits, decoded = padded_logits(tmp_path, name, "bfloat16")
    error = root_mean_square(theirs - exact)
    assert 0.3 * error < root_mean_square(logits - exact) < 1.5 * error  # activations are float32 on a CPU
    assert 0.3 * error < root_mean_square(decoded - exact[:, 1]) < 2 * error


def root_mean_square(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


@pytest.mark.parametrize("name", PADDED_CONFIGS)
@pytest.mark.parametrize("dtype", PADDED_DTYPES)
def test_stored_padded_logits_are_those_of_transformers(name, dtype, tmp_path):
    pytest.importorskip("torch")
    write_checkpoint(tmp_path, PADDED_CONFIGS[name])
    reference = padded_reference_logits(tmp_path, dtype)
    atol = 2e-5 if dtype == "float32" else 0.1
    np.testing.assert_allclose(stored_padded_logits(name, dtype), reference, atol=atol)


@pytest.fixture(scope="module")
def decoded(small):
    """Prompts of 4 and 2 tokens padded to 4, prefilled together, then both rows decoded from where they end."""
    params, forward = small
    full, _ = forward(params, TOKENS, positions(TOKENS))
    lengths = np.array([4, 2])
    prompt = np.where(np.arange(4) < lengths[:, None], TOKENS[:, :4], 31)
    # What another sequence left in the pages must not show.
    cache = prefilling(jax.tree.map(lambda x: x + 7.0, Cache.zeros(SMALL, pages=2)), rows=2)
    prefill, cache = forward(params, prompt, positions(prompt), cache)
    cache = decoding(cache)
    steps = []
    for step in range(4):
        at = (lengths + step)[:, None]
        logits, cache = forward(params, np.take_along_axis(TOKENS, at, axis=1), at, cache)
        steps.append(logits[:, 0])
    return full, prefill, np.stack(steps, axis=1), cache


def test_prefill_and_decode_equal_the_full_forward(decoded):
    full, prefill, steps, _ = decoded
    for row, length in enumerate((4, 2)):
        np.testing.assert_allclose(prefill[row, :length], full[row, :length], atol=2e-5)
        np.testing.assert_allclose(steps[row], full[row, length : length + 4], atol=2e-5)


def test_positions_beyond_the_cache_write_nothing(small, decoded):
    params, forward = small
    cache = decoded[-1]
    _, after = forward(params, TOKENS[:, :1], np.array([[64], [-1]]), cache)
    jax.tree.map(np.testing.assert_array_equal, after, cache)


def loss_with(remat: str):
    """A function of the parameters that needs all of what the model computes."""
    graphdef, _ = qwen2.abstract(dataclasses.replace(SMALL, remat=remat))
    return lambda params: jnp.sum(jnp.square(nnx.merge(graphdef, params)(TOKENS, positions(TOKENS))[0]))


def test_rematerialisation_changes_no_gradient_but_what_the_backward_pass_keeps(small):
    params, _ = small
    none, full = (jax.jit(jax.grad(loss_with(remat)))(params) for remat in ("none", "full"))
    assert min(float(jnp.abs(x).max()) for x in jax.tree.leaves(none["layers"])) > 0
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), full, none)

    def kept(remat: str) -> int:
        _, backward = jax.eval_shape(lambda p: jax.vjp(loss_with(remat), p), params)
        return sum(x.size for x in jax.tree.leaves(backward))

    assert kept("full") < kept("dots") < kept("none")


def test_parameter_counts_are_the_published_ones():
    # As the Qwen2.5-Coder report rounds them; of the two largest, what the hub counts in their files.
    published = {"0.5b": 0.49e9, "1.5b": 1.54e9, "3b": 3.09e9, "7b": 7.61e9, "14b": 14.77e9, "32b": 32.76e9}
    for size, count in published.items():
        _, params = qwen2.abstract(PUBLISHED[f"qwen2.5-coder-{size}"])
        assert sum(x.size for x in jax.tree.leaves(params)) == pytest.approx(count, abs=0.01e9)


def test_initial_parameters_fit_the_definition():
    _, expected = qwen2.abstract(SMALL)
    params = qwen2.initialise(SMALL, jax.random.key(3))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, nnx.to_pure_dict(expected))
    up_kernel = params["layers"]["mlp"]["up_kernel"]
    assert not np.array_equal(up_kernel[0], up_kernel[1])
    assert np.std(up_kernel) == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads 3"),
        ({"head_dim": 7}, "head_dim"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"remat": "some"}, "none, dots, full"),
    ],
)
def test_contradictory_configurations_are_refused(change, complaint):
    with pytest.raises(BadInput, match=complaint):
        dataclasses.replace(SMALL, **change)


if __name__ == "__main__":
    import tempfile

    stored = {}
    for name, config in PADDED_CONFIGS.items():
        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(Path(folder), config)
            if name in CONFIGS:
                stored[name] = reference_logits(Path(folder)).round(6).tolist()
            for dtype in PADDED_DTYPES:
                found = padded_reference_logits(Path(folder), dtype).round(5 if dtype == "float32" else 3)
                stored[f"{name} padded {dtype}"] = found.tolist()
    GOLDEN.write_text(json.dumps(stored) + "\n")
