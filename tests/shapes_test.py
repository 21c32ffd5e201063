"""Shapes are what signatures state: calls are checked, and a letter is one axis."""

import ast
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from codea1 import models
from codea1.learn.batch import RowLayout, RowShape, TrainSample, micro_batches
from codea1.learn.log_probs import token_log_probs
from tests.conftest import ROOT

LETTERS = set(re.findall(r"(?:^|  )([A-Za-z]) (?=[a-z])", models.__doc__, re.MULTILINE))


def test_swapped_axes_are_refused():
    head_VD, hidden_BTD, tokens_BT = jnp.zeros((11, 4)), jnp.zeros((3, 8, 4)), jnp.zeros((3, 8), int)
    assert token_log_probs(head_VD, hidden_BTD, tokens_BT, 1.0, 3)[0].shape == (3, 8)
    for wrong in (tokens_BT.T, tokens_BT[0], tokens_BT.astype(float)):
        with pytest.raises(TypeCheckError, match="parameter 'tokens_BT'"):
            token_log_probs(head_VD, hidden_BTD, wrong, 1.0, 3)


def test_a_batch_holds_arrays_of_one_shape_or_what_stands_in_their_place():
    sample = TrainSample([1, 2], [3], [-1.0])
    (batch,) = micro_batches([sample], RowLayout([RowShape(2, 8)], "token-mean", max_response_length=4, pad_id=0))
    assert jax.tree.map(lambda x: x.ndim, batch).tokens_BT == 2
    for wrong in (np.zeros((2, 9), np.float32), np.zeros((2, 8), int)):
        with pytest.raises(TypeCheckError, match="parameter 'advantages_BT'"):
            dataclasses.replace(batch, advantages_BT=wrong)


@pytest.mark.parametrize(
    "path", [*ROOT.glob("codea1/learn/*.py"), *ROOT.glob("codea1/models/*.py")], ids="{0.stem}".format
)
def test_names_and_annotations_have_the_same_letters(path):
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    named = [(node.arg, node.annotation) for node in nodes if isinstance(node, ast.arg)]
    fields = [node for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    named += [(field.target.id, field.annotation) for field in fields]
    arrays = re.compile(r"\w+\[(?:\w+\.)?(?:Array|ndarray), '([^']*)'\]")
    for name, annotation in named:
        suffix = re.search(r"_([A-Z]\w*)$", name)
        for axes in arrays.findall(ast.unparse(annotation)) if annotation and suffix else ():
            assert suffix[1] == re.sub(r"[ #]", "", axes), name
    texts = [ast.unparse(node) for node in nodes if isinstance(node, ast.Subscript)]
    for axes in (axes for text in texts for axes in arrays.findall(text)):
        assert set(re.findall(r"\b[A-Za-z]\b", axes)) <= LETTERS, axes
