"""Near misses of a program: the same source with one comparison or arithmetic operator replaced by another."""

import ast
import random

FLIPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
}


def flip_one_operator(program: str, key: str) -> str | None:
    """Returns `program` with one operator of FLIPS replaced, chosen by `key`; None where it holds no such operator.

    The choice is a function of (program, key) alone. Formatting and comments are lost: the result is unparsed.

    Raises SyntaxError, or what else `ast.parse` does: `program` is none.
    """
    tree = ast.parse(program)
    places: list[tuple[ast.AST, int | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            places += [(node, index) for index, operator in enumerate(node.ops) if type(operator) in FLIPS]
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in FLIPS:
            places.append((node, None))
    if not places:
        return None
    choice = random.Random(key)
    node, index = choice.choice(places)
    if index is None:
        node.op = choice.choice(FLIPS[type(node.op)])()
    else:
        node.ops[index] = choice.choice(FLIPS[type(node.ops[index])])()
    return ast.unparse(tree)
