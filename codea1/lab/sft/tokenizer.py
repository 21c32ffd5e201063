"""A small tokenizer for policies made from nothing.

It is a Qwen2 tokenizer without merges: it spells text in bytes, so any text survives it (in Unicode's normal form C, as
with Qwen's). To keep documents short, the integers up to 99 and the most frequent clauses of a corpus are added tokens,
found wherever they stand in a text, the longest first. Transformers rebuilds the pre-tokenization of a Qwen2 model's
tokenizer from code, so tokens that span words cannot come from merges.
"""

import re
from collections import Counter
from collections.abc import Iterable

from codea1.data.tokenizer import END, START, ChatTokenizer
from codea1.game.prompts import ROLES
from codea1.runtime.errors import BadInput

_PAD = "<|endoftext|>"
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# Where one clause of a problem or program ends and the next begins.
_BOUNDARY = r"""
      [\n0-9] | -[0-9] | ``` | \Z
    | ,\ [a-z] | \ (?:if|for)\ \b
    | (?<=[\w)])\[[-:0-9]+\]
    | (?<=\[) | (?<=return\ ) | (?<===\ )
"""
_CLAUSE = re.compile(
    rf"""
      ```python | \n?```                        # fences of code blocks
    | (?<=[\w)])\[[-:0-9]+\]                    # a constant subscript or slice
    | \n?[^\n0-9]+?(?={_BOUNDARY})              # the rest, with the newline before it
    """,
    re.VERBOSE,
)


def make_tokenizer(texts: Iterable[str], vocab_size: int) -> ChatTokenizer:
    """Returns a tokenizer of bytes, the integers up to 99, lines of roles, and the most frequent clauses of the texts.

    A message has the same tokens wherever it stands in a chat, and alone: a program has those of the Code LLM's answer
    in the Test LLM's prompt, too.

    Args:
      texts: the contents of chat messages; the same texts in any order make the same tokenizer.
      vocab_size: at most so many tokens, special ones included.

    Raises:
      BadInput: not even bytes, integers and roles fit.
    """
    from transformers import AddedToken, Qwen2Tokenizer
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokenizer = Qwen2Tokenizer(
        vocab={byte: index for index, byte in enumerate(bytes_to_unicode().values())},
        merges=[],
        eos_token=END,
        pad_token=_PAD,
        extra_special_tokens=[START],
        chat_template=_CHAT_TEMPLATE,
    )
    fixed = [*map(str, range(10, 100)), *(f"{role}\n" for role in ROLES)]
    room = vocab_size - len(tokenizer) - len(fixed)
    if room < 0:
        raise BadInput(f"vocab_size {vocab_size} is too small: bytes, integers and roles take {-room} more.")
    # The decoder would take a character that is not ASCII for the byte that it stands for in the vocabulary.
    counts = Counter(
        clause for text in texts for clause in _CLAUSE.findall(text) if len(clause) > 1 and clause.isascii()
    )
    clauses = sorted(counts, key=lambda clause: (-counts[clause], clause))[:room]
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in [*fixed, *clauses]])
    return ChatTokenizer(tokenizer)
