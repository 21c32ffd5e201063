"""EasyDeL: `CodeVerifier` of `easydel/trainers/rlvr_trainer/reward_verifiers.py`."""

import importlib.util

import peers

path = peers.PEERS / "EasyDeL/easydel/trainers/rlvr_trainer/reward_verifiers.py"
spec = importlib.util.spec_from_file_location("reward_verifiers", path)
verifiers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verifiers)


def paid(question: dict, program: str) -> bool | None:
    if question["kind"] == "stdin":
        return None
    batch = {"tests": ["\n".join(question["asserts"])]}
    return verifiers.CodeVerifier()(completions=[f"```python\n{program}\n```"], batch=batch) == [1.0]
