"""Qwen2 (Yang et al., 2024) and Qwen3 (2025) declared in Flax NNX and run as a function of a plain pytree.

Qwen3 is Qwen2 with normalised queries and keys instead of biases on queries, keys and values, and may have a
mixture of experts instead of an MLP (`codea1.models.moe`).

NNX is the declaration: shapes, initial values, logical axis names. Compiled functions never carry a module. They take

    graphdef, abstract = qwen2.abstract(config)                # nothing is allocated
    params = qwen2.initialise(config, key, shardings)          # a nested dict of arrays

and inside any jitted function

    hidden_BTD, cache, routing = nnx.merge(graphdef, params)(tokens_BT, positions_BT, cache)

`params` is what `jax.jit`, `jax.grad`, optax and Orbax see; `graphdef` is static, and equal for equal configurations,
so two players of one shape share their compiled functions. Layers are stacked on a leading axis and scanned: compile
time does not grow with depth.

Axes have the letters of `codea1.models`.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Bool, Float, Float32, Int, Integer

from codea1.models.attention import Packing, SplashPacking, attend_causally, rope
from codea1.models.config import PROJECTION, REMAT_POLICIES, Qwen2Config
from codea1.models.kv_cache import Cache, table_of
from codea1.models.moe import Routing, mixed, route
from codea1.models.weights import (
    dense,
    dense_of_forms,
    for_many,
    gathered,
    has_forms,
    look_up,
    product,
    product_of_few,
    rounded,
)
from codea1.sharding import Array, constrain

Params = dict[str, Any]  # nested dict of arrays, as `nnx.to_pure_dict` gives it


def _param(value: Array, axes: tuple[str | None, ...]) -> nnx.Param:
    # Eager sharding would place each parameter while the module is built; here the caller's jit does, all at once.
    return nnx.Param(value, out_sharding=axes, eager_sharding=False)


class _Initialiser:
    """Makes the parameters of one module.

    Those that train are in the configuration's parameter dtype. The base of adapters is in `dtype`, that of products.
    """

    def __init__(self, config: Qwen2Config, rngs: nnx.Rngs) -> None:
        self._config = config
        self._dtype = config.dtype if config.lora_rank else config.param_dtype
        self._rngs = rngs

    def weight(self, shape: tuple[int, ...], axes: tuple[str | None, ...]) -> nnx.Param:
        """Draws from a normal with deviation 0.02, the `initializer_range` of every Qwen2.5 configuration."""
        return _param(0.02 * jax.random.normal(self._rngs.params(), shape, self._dtype), axes)

    def kernel(
        self, module: nnx.Module, name: str, shape: tuple[int, ...], axes: tuple[str, ...], contracted: int = 1
    ) -> None:
        """Gives a module the kernel called `name`, and its adapter where there are adapters: A drawn as PEFT does, B 0.

        The first `contracted` dimensions of `shape`, which `axes` names, are inputs. `project` multiplies by them.
        """
        setattr(module, f"{name}_kernel", self.weight(shape, axes))
        if rank := self._config.lora_rank:
            inputs, dtype = shape[:contracted], self._config.param_dtype
            bound = math.prod(inputs) ** -0.5
            a = jax.random.uniform(self._rngs.adapters(), (*inputs, rank), dtype, -bound, bound)
            b = jnp.zeros((rank, *shape[contracted:]), dtype)
            setattr(module, f"{name}_lora_a", _param(a, (*axes[:contracted], "rank")))
            setattr(module, f"{name}_lora_b", _param(b, ("rank", *axes[contracted:])))

    def zeros(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> nnx.Param:
        return _param(jnp.zeros(shape, self._dtype), axes)

    def ones(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> nnx.Param:
        return _param(jnp.ones(shape, self._dtype), axes)


def project(
    module: Any, name: str, x: Float[Array, "B T *E"], axes: tuple[str, ...], contracted: int = 1
) -> Float[Array, "B T *O"]:
    """Multiplies x by a kernel of a module, see `dense`, and adds what its adapter makes of x, where it has one."""
    kernel, config = getattr(module, f"{name}_kernel")[...], module.config
    if has_forms(kernel):
        y = dense_of_forms(x, kernel, config.dtype, contracted)
    else:
        y = dense(x, kernel, axes, config.dtype, contracted)
    if config.lora_rank:
        a, b = (getattr(module, f"{name}_lora_{factor}")[...] for factor in "ab")
        scaled_BTr = (
            config.lora_alpha / config.lora_rank * dense(x, a, (*axes[:contracted], "rank"), config.dtype, contracted)
        )
        y += dense(scaled_BTr, b, ("rank", *axes[contracted:]), config.dtype)
    return checkpoint_name(y, PROJECTION)


class RMSNorm(nnx.Module):
    """Root mean square normalisation (Zhang and Sennrich, 2019), computed in float32."""

    def __init__(self, config: Qwen2Config, size: int, *, rngs: nnx.Rngs) -> None:
        self.eps = config.rms_norm_eps
        self.scale = _Initialiser(config, rngs).ones((size,), ("norm",))

    def __call__(self, x: Float[Array, "*rows D"]) -> Float[Array, "*rows D"]:
        """Normalises the last dimension of `x`."""
        x32 = x.astype(jnp.float32)
        normal = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + self.eps)
        # float32 holds the product of two bfloat16 exactly, so one rounding gives their bfloat16 product.
        normal32 = normal.astype(x.dtype).astype(jnp.float32)
        return (normal32 * rounded(self.scale[...], x.dtype)).astype(x.dtype)


class Attention(nnx.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: Qwen2Config, *, rngs: nnx.Rngs) -> None:
        self.config = config
        D, H, K, h = config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim
        make = _Initialiser(config, rngs)
        make.kernel(self, "q", (D, H, h), ("embed", "heads", "head_dim"))
        make.kernel(self, "k", (D, K, h), ("embed", "kv_heads", "head_dim"))
        make.kernel(self, "v", (D, K, h), ("embed", "kv_heads", "head_dim"))
        make.kernel(self, "o", (H, h, D), ("heads", "head_dim", "embed"), contracted=2)
        if config.qkv_bias:
            self.q_bias = make.zeros((H, h), ("heads", "head_dim"))
            self.k_bias = make.zeros((K, h), ("kv_heads", "head_dim"))
            self.v_bias = make.zeros((K, h), ("kv_heads", "head_dim"))
        if config.qk_norm:
            self.q_norm = RMSNorm(config, h, rngs=rngs)
            self.k_norm = RMSNorm(config, h, rngs=rngs)

    def __call__(
        self,
        x_BTD: Float[Array, "B T D"],
        positions_BT: Int[Array, "B T"],
        cache: Cache | None,
        layer: Int[Array, ""],
        packing: Packing | SplashPacking | None,
    ) -> tuple[Float[Array, "B T D"], Cache | None]:
        dtype, theta = self.config.activations, self.config.rope_theta

        def heads_of(name: str, heads: str) -> Float[Array, "B T H h"]:
            y_BTHh = project(self, name, x_BTD, ("embed", heads, "head_dim"))
            if self.config.qkv_bias:
                bias = rounded(getattr(self, f"{name}_bias")[...], dtype)
                y_BTHh = (y_BTHh.astype(jnp.float32) + bias).astype(dtype)
            return constrain(y_BTHh, "batch", None, heads, "head_dim")

        q_BTHh, k_BTKh, v_BTKh = heads_of("q", "heads"), heads_of("k", "kv_heads"), heads_of("v", "kv_heads")
        if self.config.qk_norm:
            q_BTHh, k_BTKh = self.q_norm(q_BTHh), self.k_norm(k_BTKh)
        q_BTHh, k_BTKh = rope(q_BTHh, positions_BT, theta), rope(k_BTKh, positions_BT, theta)
        if cache is not None and not table_of(cache).is_prefill:
            cache = cache.write(layer, positions_BT[:, 0], k_BTKh[:, 0], v_BTKh[:, 0])
            y_BTHh = cache.attend(layer, q_BTHh[:, 0], positions_BT[:, 0])[:, None]
        else:
            y_BTHh = attend_causally(q_BTHh, k_BTKh, v_BTKh, self.config.platform, packing, self.config.dtype)
            cache = cache and cache.write_prompts(layer, k_BTKh, v_BTKh)
        return project(self, "o", y_BTHh.astype(dtype), ("heads", "head_dim", "embed"), contracted=2), cache


class MLP(nnx.Module):
    """SwiGLU (Shazeer, 2020)."""

    def __init__(self, config: Qwen2Config, *, rngs: nnx.Rngs) -> None:
        self.config = config
        D, F = config.hidden_size, config.intermediate_size
        make = _Initialiser(config, rngs)
        make.kernel(self, "gate", (D, F), ("embed", "mlp"))
        make.kernel(self, "up", (D, F), ("embed", "mlp"))
        make.kernel(self, "down", (F, D), ("mlp", "embed"))

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        gate_BTF = project(self, "gate", x_BTD, ("embed", "mlp"))
        up_BTF = project(self, "up", x_BTD, ("embed", "mlp"))
        hidden_BTF = constrain(jax.nn.silu(gate_BTF) * up_BTF, "batch", None, "mlp")
        return project(self, "down", hidden_BTF, ("mlp", "embed"))


class Experts(nnx.Module):
    """A mixture of SwiGLU experts with its router, without adapters; see `codea1.models.moe`."""

    def __init__(self, config: Qwen2Config, *, rngs: nnx.Rngs) -> None:
        self.config = config
        e, D, F = config.num_experts, config.hidden_size, config.intermediate_size
        make, axes = _Initialiser(config, rngs), ("experts", None, None)
        self.router = make.weight((D, e), ("embed", None))
        self.gate_experts = make.weight((e, D, F), axes)
        self.up_experts = make.weight((e, D, F), axes)
        self.down_experts = make.weight((e, F, D), axes)

    def __call__(
        self,
        x_BTD: Float[Array, "B T D"],
        routes_BTc: Integer[Array, "B T c"] | None,
        counted_BT: Bool[Array, "B T"] | None,
    ) -> tuple[Float[Array, "B T D"], Routing]:
        weight_BTc, routing = route(x_BTD, self.router[...], self.config, routes_BTc, counted_BT)
        kernels = self.gate_experts[...], self.up_experts[...], self.down_experts[...]
        return mixed(x_BTD, routing.chosen_BTc, weight_BTc, *kernels, self.config), routing


class Layer(nnx.Module):
    """One pre-norm transformer block."""

    def __init__(self, config: Qwen2Config, *, rngs: nnx.Rngs) -> None:
        self.attention_norm = RMSNorm(config, config.hidden_size, rngs=rngs)
        self.attention = Attention(config, rngs=rngs)
        self.mlp_norm = RMSNorm(config, config.hidden_size, rngs=rngs)
        self.mlp = Experts(config, rngs=rngs) if config.num_experts else MLP(config, rngs=rngs)

    def __call__(
        self,
        x_BTD: Float[Array, "B T D"],
        positions_BT: Int[Array, "B T"],
        cache: Cache | None,
        layer: Int[Array, ""],
        packing: Packing | SplashPacking | None,
        routes_BTc: Integer[Array, "B T c"] | None,
        counted_BT: Bool[Array, "B T"] | None,
    ) -> tuple[Float[Array, "B T D"], Cache | None, Routing | None]:
        y_BTD, cache = self.attention(self.attention_norm(x_BTD), positions_BT, cache, layer, packing)
        x_BTD = constrain(x_BTD + y_BTD, "batch", None, None)
        y_BTD, routing = self.mlp_norm(x_BTD), None
        if isinstance(self.mlp, Experts):
            y_BTD, routing = self.mlp(y_BTD, routes_BTc, counted_BT)
        else:
            y_BTD = self.mlp(y_BTD)
        return constrain(x_BTD + y_BTD, "batch", None, None), cache, routing


class Qwen2(nnx.Module):
    """The decoder. Calling it gives final hidden states; `logits` or `head_VD` turn them into predictions."""

    def __init__(self, config: Qwen2Config, *, rngs: nnx.Rngs) -> None:
        self.config = config
        make = _Initialiser(config, rngs)
        table, axes = (config.vocab_size, config.hidden_size), ("vocab", "embed")
        self.embedding = make.weight(table, axes)
        stack = nnx.vmap(lambda rngs: Layer(config, rngs=rngs), transform_metadata={nnx.PARTITION_NAME: "layers"})
        self.layers = stack(rngs.split(config.num_layers))
        self.norm = RMSNorm(config, config.hidden_size, rngs=rngs)
        if not config.tie_word_embeddings:
            self.lm_head = make.weight(table, axes)

    def __call__(
        self,
        tokens_BT: Int[Array, "B T"],
        positions_BT: Int[Array, "B T"],
        cache: Cache | None = None,
        packing: Packing | None = None,
        routes_BTLc: Integer[Array, "B T L c"] | None = None,
        counted_BT: Bool[Array, "B T"] | None = None,
    ) -> tuple[Float[Array, "B T D"], Cache | None, Routing | None]:
        """Returns final hidden states in config.activations, after the last norm, and the cache with these tokens.

        And the routing of all layers where there are experts; see `moe.route`.

        Without a cache, token t of a row sees tokens 0..t of that row, whatever `positions_BT` says (it turns the
        rotary angles alone): sequences start at index 0 and are padded on the right, and padding reaches no real token.
        With a packing a row holds several sequences, and a token sees what is its own.

        With a cache whose table is of a prefill: as without, and keys and values go to the pages that it has for
        positions 0..T-1 (prompts are padded on the right: the padding is overwritten before any query reaches it).
        Else it is a decode step of one token per row, each at its own position p: its key and value are written there,
        and its query sees positions 0..p. A token whose position is beyond the table is not written.
        """
        table_VD: Any = self.embedding[...]
        table_VD = table_VD.stack if has_forms(table_VD) else table_VD
        x_BTD = look_up(table_VD, tokens_BT, self.config.dtype, self.config.activations)
        visible = packing.for_kernel() if packing and self.config.platform == "tpu" else packing

        def step(carry: tuple, layer: tuple[Layer, Array, Array | None]) -> tuple[tuple, Routing | None]:
            block, index, routes_BTc = layer
            x_BTD, cache = carry
            *carry, routing = block(x_BTD, positions_BT, cache, index, visible, routes_BTc, counted_BT)
            return tuple(carry), routing

        # The cache is carried, not scanned over: the loop then writes in place instead of copying it.
        indices_L, routing = jnp.arange(self.config.num_layers), None
        routes_LBTc = None if routes_BTLc is None else jnp.moveaxis(routes_BTLc, 2, 0)
        step = REMAT_POLICIES[self.config.remat](step)
        if self._has_forms and cache is not None and not table_of(cache).is_prefill:
            for index in range(self.config.num_layers):
                layer = jax.tree.map(lambda leaf, index=index: leaf[index], self.layers, is_leaf=has_forms)
                (x_BTD, cache), _ = step((x_BTD, cache), (layer, indices_L[index], None))  # no experts have forms
        else:
            layers = jax.tree.map(for_many, self.layers, is_leaf=has_forms)
            (x_BTD, cache), routing = jax.lax.scan(step, (x_BTD, cache), (layers, indices_L, routes_LBTc))
        return self.norm(x_BTD), cache, routing

    @property
    def _has_forms(self) -> bool:
        return any(map(has_forms, jax.tree.leaves(self.layers, is_leaf=has_forms)))

    @property
    def head_VD(self) -> Float[Array, "V D"]:
        """The output head, in the dtype and layout of the parameters; see `logits`."""
        head_VD: Any = (self.embedding if self.config.tie_word_embeddings else self.lm_head)[...]
        return head_VD.layers[0] if has_forms(head_VD) else head_VD

    def logits(self, hidden_BTD: Float[Array, "B T D"]) -> Float32[Array, "B T V"]:
        """Returns logits in float32, which take much memory: for long sequences see `learn.log_probs`."""
        if self._has_forms and hidden_BTD.shape[1] == 1:
            rows_XD = hidden_BTD.reshape(-1, self.config.hidden_size)
            return product_of_few(rows_XD, self.head_VD, self.config.dtype).reshape(*hidden_BTD.shape[:2], -1)
        head_VD = gathered(self.head_VD, ("vocab", "embed"), self.config.dtype)
        return constrain(logits(head_VD, hidden_BTD), "batch", None, "vocab")


def logits(head_VD: Float[Array, "V D"], hidden_BTD: Float[Array, "B T D"]) -> Float32[Array, "B T V"]:
    """Returns hidden @ head.T in the dtype of the head, accumulated in float32."""
    B, T, D = hidden_BTD.shape
    rows_XD = hidden_BTD.reshape(B * T, D)  # see `weights.dense`
    return product(rows_XD, head_VD.T, head_VD.dtype, jnp.float32).reshape(B, T, -1)


def abstract(config: Qwen2Config) -> tuple[nnx.GraphDef, nnx.State]:
    """Returns the model's static definition, and its parameters as shapes that carry their logical axis names."""
    return nnx.split(nnx.eval_shape(lambda: Qwen2(config, rngs=nnx.Rngs(0))))


def initialise(config: Qwen2Config, key: Array, shardings: Any = None) -> Params:
    """Draws random parameters, each on its own devices where `shardings` (of `sharding.param_shardings`) is given.

    The values depend on `key` alone, not on the sharding. Adapters do not change the weights of the base.
    """

    def create(key: Array) -> Params:
        rngs = nnx.Rngs(key, adapters=jax.random.fold_in(key, 0))
        return nnx.to_pure_dict(nnx.state(Qwen2(config, rngs=rngs)))

    return jax.jit(create, out_shardings=shardings)(key)
