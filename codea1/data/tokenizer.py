"""One interface to any Hugging Face chat tokenizer."""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from codea1.game.answers import THOUGHT_BEGINS
from codea1.game.prompts import Message
from codea1.models.files import ModelFolder
from codea1.runtime.errors import BadInput, StorageOutage

if TYPE_CHECKING:  # it takes seconds to import
    from transformers import PreTrainedTokenizerBase

# What describes a tokenizer. Folders that transformers 5 wrote have the first three, older ones some of the others.
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)

_PUBLISHED = re.compile(r"Qwen[\d.]+(-Coder)?-[\d.]+B(-Base|-Instruct)?")  # models of Qwen on the Hugging Face hub
START, END = "<|im_start|>", "<|im_end|>"

_QUESTION = "8 x 8?"  # that a chat template writes
# Holds what tokenizers split, join or normalise in different ways.
_SAMPLE = "def f(a1, b):\n    return 1000 + a1  # it's\n\n\tÉe\u0301ﬁ①\uff21 日本\r\n"

# Added tokens that are no words of a vocabulary: many folders do not mark <tool_call> or <|fim_middle|> as special.
_MARK = "\ue000"  # for private use
_MARKUP = re.compile(r"<+[^<>\s]+>+|\[/?[A-Z_]+\]")


class ChatTokenizer:
    """Text to tokens and back, as chat models read and write it.

    Control tokens come from the chat template alone. A message's text that spells one is read as those characters.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        thinking: str = "",
        ends: Sequence[int] = (),
        name: str = "the tokenizer",
    ):
        """Takes `thinking` as `load_tokenizer` does, the ids of further tokens that end an answer, and its name.

        Raises BadInput: the chat template fails.
        """
        self._tokenizer: Any = tokenizer  # what its methods return depends on their arguments
        self._name = name  # in a sentence
        added = tokenizer.added_tokens_decoder.values()
        # Some tokenizers look for added tokens in a text only after it has been normalised, from wide letters say.
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._normalizer = backend.normalizer if backend and any(token.normalized for token in added) else None
        controls = sorted({token.content for token in added if token.special or _MARKUP.fullmatch(token.content)})
        firsts = {first: [re.escape(c[1:]) for c in controls if c[0] == first] for first in {c[0] for c in controls}}
        # The first character of each, where the rest follows.
        starts = [f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in sorted(firsts.items())]
        self._control = re.compile("|".join(starts) or r"(?!)")
        self._options = {"enable_thinking": thinking == "on"} if thinking else {}
        self.vocab_size: int = len(tokenizer)
        self._ids = frozenset(tokenizer.get_vocab().values())
        self.pad_id: int = tokenizer.pad_token_id
        self.end_id = cast(int, tokenizer.convert_tokens_to_ids(END))  # ends each message
        self._head = tuple(tokenizer.encode(f"{START}assistant\n", add_special_tokens=False))
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys((self.end_id, tokenizer.eos_token_id, *ends)))
        question: list[Message] = [{"role": "user", "content": _QUESTION}]
        asked = self.encode_chat(question)
        # Some templates begin the thoughts themselves, so that answers do not hold what begins them.
        prompt = self.transcript(asked).rstrip()
        self.begins_thoughts: bool = prompt.endswith(THOUGHT_BEGINS)
        # Whether answers think first: some chat templates turn enable_thinking on by default.
        silent = self._encode_messages(question, add_generation_prompt=True, enable_thinking=False)
        self.thinks: bool = self.begins_thoughts or asked != silent
        for is_wrong, problem in (
            (_QUESTION not in prompt, "leaves out what the user says"),
            (prompt.startswith("\ufeff"), "begins with a byte order mark"),
            (prompt.endswith(END), "does not begin the assistant's message: it must do so for add_generation_prompt"),
            (thinking == "off" and self.begins_thoughts, "begins thoughts, although thinking is off"),
        ):
            if is_wrong:
                raise BadInput(f"the chat template of {self._name} {problem}.")

    @property
    def vocabulary(self) -> dict[str, int]:
        """The id of every token, control tokens included."""
        return self._tokenizer.get_vocab()

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a piece of text, with nothing added; none is a control token."""
        cut, (spelled,) = self._spelled([text])
        return self._encode_pieces(spelled.split(cut))

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Returns the tokens of a chat up to and including the head of the assistant's next message."""
        return self._encode_messages(messages, add_generation_prompt=True, **self._options)

    def encode_transcript(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """Returns a finished chat's tokens, and for each 1 where the assistant speaks, <|im_end|> included, else 0."""
        ids = self._encode_messages(messages)
        mask, speaking = [], 0
        for position, token in enumerate(ids):
            mask.append(speaking)
            if token == self.end_id:
                speaking = 0
            elif token == self._head[-1] and tuple(ids[: position + 1][-len(self._head) :]) == self._head:
                speaking = 1
        return ids, mask

    def _encode_messages(self, messages: Sequence[Message], **options: Any) -> list[int]:
        """Returns the tokens of what the template makes of a chat."""
        cut, contents = self._spelled([message["content"] for message in messages])
        chat = [{**message, "content": content} for message, content in zip(messages, contents, strict=True)]
        try:
            written = self._tokenizer.apply_chat_template(chat, tokenize=False, **options)
        except Exception as error:  # a template is a program: it can raise whatever its author likes
            roles = ", ".join(message["role"] for message in messages)
            raise BadInput(
                f"the chat template of {self._name} cannot write a chat of the roles {roles}: {_reason(error)}."
            ) from error
        return self._encode_pieces(written.split(cut))

    def _spelled(self, texts: Sequence[str]) -> tuple[str, list[str]]:
        """Returns a mark that is in none of the texts, and these with it inside of whatever spells a control token.

        The pieces that it leaves are encoded one by one.
        """
        hide = [self._normalizer and self._control.search(self._normalizer.normalize_str(text)) for text in texts]
        runs = [run for text in texts for run in re.findall(f"{_MARK}+", text)]
        cut = _MARK * (1 + max(map(len, runs), default=0))
        marked = [self._control.sub(lambda match: match[0] + cut, text) for text in texts]
        return cut, [
            cut.join(text) if is_hidden else other for text, other, is_hidden in zip(texts, marked, hide, strict=True)
        ]

    def _encode_pieces(self, pieces: Sequence[str]) -> list[int]:
        return [token for piece in pieces for token in self._tokenizer.encode(piece, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of an answer's tokens, special tokens left out, with what its prompt has begun of it."""
        ids = [id for id in ids if id != self.end_id]  # which not all folders mark as special
        text = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return THOUGHT_BEGINS + text if self.begins_thoughts else text

    def num_textless(self, ids: Sequence[int]) -> int:
        """Returns how many of the ids are no tokens: a model's embedding may have more rows than its tokenizer tokens.

        Such rows can be drawn, and are decoded to nothing. They are counted instead of never drawn: what learns, what
        draws and what transformers computes are one distribution over all rows.
        """
        return sum(id not in self._ids for id in ids)

    def transcript(self, ids: Sequence[int]) -> str:
        """Returns the text of tokens as a chat is written down, special tokens included."""
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the files that `load_tokenizer` and `transformers.AutoTokenizer` read, to a local folder or a URL."""
        written = ModelFolder(folder)
        with tempfile.TemporaryDirectory(prefix="codea1-tokenizer-") as local:
            self._tokenizer.save_pretrained(local)
            for path in sorted(Path(local).iterdir()):
                written.write(path.name, [path.read_bytes()])


def load_tokenizer(
    folder: str | os.PathLike[str], thinking: str = "", model: ModelFolder | None = None
) -> ChatTokenizer:
    """Returns the tokenizer in a model's folder, local or behind a URL.

    Args:
      thinking: "on" or "off": what its chat template gets as enable_thinking; "": nothing.
      model: the folder whose generation_config.json says what else ends an answer, where it is another.

    Raises:
      BadInput: no folder, no tokenizer in it, or one without chat template, <|im_end|>, end or padding token.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    folder = ModelFolder(folder)
    names = folder.names()
    if "tokenizer_config.json" not in names:
        folder.require_model_here()
    if not names:
        name = os.path.basename(folder.url)
        hub_id = f"Qwen/{name}" if _PUBLISHED.fullmatch(name) else "OWNER/NAME"
        download = "" if "://" in folder.url else f": hf download {hub_id} --local-dir {folder}"
        raise BadInput(f"{folder} holds no model: codea1.sft makes the demo's, others are downloaded{download}.")
    if "tokenizer_config.json" not in names:
        raise BadInput(f"{folder} holds no tokenizer: there is no tokenizer_config.json.")
    for file in {*names} & {*FILES, "config.json"}:
        folder.require_content(file)
    if not {"tokenizer.json", "vocab.json"} & {*names}:
        raise BadInput(f"{folder} holds no tokenizer: there is no tokenizer.json, nor a vocab.json.")
    try:
        with folder.staged((*FILES, "config.json")) as local:
            tokenizer = AutoTokenizer.from_pretrained(str(local), local_files_only=True, trust_remote_code=False)
            if "tokenizer.json" in names:
                stored = PreTrainedTokenizerFast(tokenizer_file=str(local / "tokenizer.json"))
                if _splits(stored) != _splits(tokenizer):  # transformers 5 takes that of Qwen2 for any "qwen2"
                    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(local), local_files_only=True)
    except (StorageOutage, BadInput):
        raise
    except Exception as error:  # transformers and tokenizers raise many kinds for files that are not as they expect
        raise BadInput(f"the tokenizer in {folder} cannot be read: {_reason(error)}.") from None
    templates = tokenizer.chat_template
    if templates is None:
        raise BadInput(f"the tokenizer in {folder} has no chat template.")
    if isinstance(templates, dict) and "default" not in templates:
        several = ", ".join(sorted(map(str, templates)))
        raise BadInput(f"the tokenizer in {folder} has the chat templates {several}: one must be called default.")
    if END not in tokenizer.get_vocab():
        raise BadInput(f"the tokenizer in {folder} has no token {END}, which ends a message.")
    if tokenizer.encode(END, add_special_tokens=False) != [tokenizer.convert_tokens_to_ids(END)]:
        raise BadInput(
            f"the tokenizer in {folder} cuts {END}: it must be an added token, and split_special_tokens off."
        )
    if tokenizer.eos_token_id is None or tokenizer.pad_token_id is None:
        raise BadInput(f"the tokenizer in {folder} names no end or no padding token.")
    ends = _ends(model or folder, max(tokenizer.get_vocab().values()))
    loaded = ChatTokenizer(tokenizer, thinking, ends, f"the tokenizer in {folder}")
    if loaded.transcript(loaded.encode(f"x{END}")) != f"x{END}":
        raise BadInput(f"the tokenizer in {folder} cannot spell {END} in ordinary tokens.")
    return loaded


def _splits(tokenizer: Any) -> list[str]:
    """Returns the pieces that a tokenizer cuts a sample into, before it looks them up."""
    backend, text = tokenizer.backend_tokenizer, _SAMPLE
    if backend.normalizer:
        text = backend.normalizer.normalize_str(text)
    return [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)] if backend.pre_tokenizer else [text]


def _ends(model: ModelFolder, last: int) -> list[int]:
    """Returns what the model says ends an answer, in config.json where there is no generation_config.json.

    Raises BadInput: they are no ids from 0 to `last`.
    """
    files = [file for file in ("generation_config.json", "config.json") if file in model.names()]
    stated = model.read_json(files[0]).get("eos_token_id") if files else None
    ends = stated if isinstance(stated, list) else [] if stated is None else [stated]
    for end in ends:
        if type(end) is not int:
            raise BadInput(f"{model.file(files[0])}: eos_token_id is {stated!r}, no token ids.")
        if not 0 <= end <= last:
            raise BadInput(
                f"{model.file(files[0])}: eos_token_id lists {end}, the tokenizer has the ids from 0 to {last}."
            )
    return ends


def _reason(error: Exception) -> str:
    """Returns what an error of somebody else's code says, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": .")


def copy_tokenizer(source: ModelFolder, target: ModelFolder) -> None:
    """Copies the files of a tokenizer as they are: whatever read them there reads them here."""
    for name in source.names():
        if name in FILES:
            target.write(name, [source.read(name)])
