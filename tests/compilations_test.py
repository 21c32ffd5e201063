"""Where compiled functions are kept."""

import json
import os
import subprocess
import sys

import pytest
from jax._src import compilation_cache

from codea1.runtime import compilations
from tests import gcs_emulator
from tests.conftest import ROOT

COMPILES = """
import json, sys, jax, jax.numpy as jnp
from etils import epath
from jax._src import monitoring
from codea1.runtime.compilations import keep_compiled_in

counts = {"hits": 0, "misses": 0}
monitoring.register_event_listener(
    lambda event, **_: counts.update({name: counts[name] + 1 for name in counts if event.endswith("cache_" + name)})
)
jax.jit(lambda x: x + 1)(jnp.zeros(3))  # kept nowhere yet
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
counts.update(hits=0, misses=0)
keep_compiled_in(epath.Path(sys.argv[1]))
jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((4, 4)))
print(json.dumps(counts))
"""


def compiles(folder: str, environment: dict[str, str]) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", COMPILES, folder],
        cwd=ROOT,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": "", "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_second_machine_finds_in_the_bucket_what_the_first_compiled(gcs: gcs_emulator.Emulator, bucket: str):
    first, second = (compiles(f"{bucket}/run/compiled", gcs.environment) for _ in range(2))
    assert first["misses"] > 0
    assert first["hits"] == 0
    assert second == {"hits": first["misses"], "misses": 0}


@pytest.mark.parametrize("at", [0, 50, 99, 100, 115])
def test_an_entry_with_a_flipped_bit_is_compiled_again(tmp_path, capfd, at):
    compilations._say_once.cache_clear()
    cache, _ = compilation_cache.get_file_cache(str(tmp_path))  # as JAX makes its own
    assert cache.get("f") is None
    cache.put("f", entry := bytes(range(100)))
    assert cache.get("f") == entry
    content = bytearray((tmp_path / "f-cache").read_bytes())
    content[at] ^= 1
    for damaged in (bytes(content), entry, b""):  # the second as JAX alone writes it
        (tmp_path / "f-cache").write_bytes(damaged)
        assert cache.get("f") is None
        assert not (tmp_path / "f-cache").exists()
    cache.put("f", entry)
    assert cache.get("f") == entry
    assert capfd.readouterr().err == (
        f"{tmp_path} has entries that are damaged or have no checksum yet: they are compiled again\n"
    )
