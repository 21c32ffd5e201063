"""One of two processes with two devices each: `sharding_two_processes.py ADDRESS RANK`."""

import sys

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from codea1 import sharding

address, rank = sys.argv[1:]
jax.distributed.initialize(address, num_processes=2, process_id=int(rank))
mesh = sharding.make_mesh(1, 2, 2)
x = np.arange(24).reshape(4, 6)
for spec in (PartitionSpec("fsdp", "tensor"), PartitionSpec(), PartitionSpec(None, "tensor")):
    array = jax.device_put(x, NamedSharding(mesh, spec))
    np.testing.assert_array_equal(sharding.to_host([array])[0], x)
