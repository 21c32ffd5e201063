"""The small tokenizer: nothing is lost, nothing is ambiguous, and transformers loads what we use."""

import json
import re
import unicodedata
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from codea1.data.tokenizer import ChatTokenizer, load_tokenizer
from codea1.lab.sft.corpus import corpus_texts
from codea1.lab.sft.tokenizer import make_tokenizer
from codea1.models.files import ModelFolder
from codea1.runtime.errors import BadInput

TEXTS = list(corpus_texts(seed=0, num_chats=1500))
TOKENIZER = make_tokenizer(TEXTS, 512)
PIECES = st.sampled_from(
    ["def f(a):\n", "    return ", "x ", ">= ", "12", "7", "-3", "[1, 2]", "```", "\n", "if ", "assistant\n"]
)
ANY_TEXT = st.one_of(st.text(), st.lists(PIECES).map("".join)).map(lambda text: unicodedata.normalize("NFC", text))


def pieces(text: str) -> list[str]:
    return [TOKENIZER.decode([token]) for token in TOKENIZER.encode(text)]


@given(ANY_TEXT)
def test_any_text_survives(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(ANY_TEXT, ANY_TEXT)
def test_a_message_has_the_same_tokens_alone_and_in_a_chat(question, answer):
    user, assistant = ({"role": "user", "content": question}, {"role": "assistant", "content": answer})
    start = TOKENIZER._tokenizer.encode("<|im_start|>")
    end = [TOKENIZER.end_id, *TOKENIZER.encode("\n")]
    head = [*start, *TOKENIZER.encode("assistant\n")]
    asked = [*start, *TOKENIZER.encode("user\n"), *TOKENIZER.encode(question), *end]
    answered = [*head, *TOKENIZER.encode(answer), *end]
    assert TOKENIZER.encode_chat([user]) == asked + head
    assert TOKENIZER.encode_chat([user, assistant, user]) == asked + answered + asked + head
    ids, mask = TOKENIZER.encode_transcript([user, assistant])
    assert ids == asked + answered
    assert mask == [0] * len(asked + head) + [1] * (len(answered) - len(head) - 1) + [0]


def test_programs_and_suites_are_cut_at_clauses():
    program = "```python\ndef f(a):\n    b = [x * 2 for x in a if x > 3]\n    return max(b) if b else 0\n```"
    assert pieces(program) == [
        *("```python", "\ndef f(a):", "\n    b = [", "x * ", "2", " for x in a", " if x > ", "3", "]"),
        *("\n    return ", "max(b)", " if b else ", "0", "\n```"),
    ]
    assert pieces("\na = [3, 0]  # [0]\nassert f(a) == -12") == [
        *("\na = [", "3", ", ", "0", "]  # [", "0", "]", "\nassert f(a) == ", "-", "12"),
    ]


@given(st.integers(0, 10**6))
def test_numbers_are_cut_in_one_way(number):
    assert pieces(str(number)) == re.findall("[1-9][0-9]|[0-9]", str(number))


def test_the_same_texts_in_any_order_make_the_same_tokenizer():
    again = make_tokenizer(reversed(TEXTS), 512)
    assert [again.encode(text) for text in TEXTS[:200]] == [TOKENIZER.encode(text) for text in TEXTS[:200]]


def test_vocabulary_is_bounded():
    assert TOKENIZER.vocab_size <= 512
    small = make_tokenizer(TEXTS, 400)
    assert small.vocab_size == 400
    assert max(max(small.encode(text)) for text in TEXTS) < 400
    with pytest.raises(BadInput, match="vocab_size 300 is too small"):
        make_tokenizer(TEXTS, 300)


@pytest.mark.parametrize("beside_a_model", [False, True])
def test_auto_tokenizer_is_the_same(tmp_path, beside_a_model):
    TOKENIZER.save(tmp_path)
    if beside_a_model:  # transformers then takes the tokenizer's class from the model
        (tmp_path / "config.json").write_text(
            json.dumps({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]})
        )
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)
    odd = ["", " ", "héllo 日本\x00\r\n", "100 007 -5", "x * x * x", "```\n```python", "f([[1], [2]])"]
    for text in [*TEXTS[:400], *odd]:
        assert ours.encode(text) == theirs.encode(text) == TOKENIZER.encode(text)
        assert theirs.decode(theirs.encode(text)) == text
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXTS[0]}]
    rendered = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert rendered == (
        f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{TEXTS[0]}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ours.encode_chat(messages) == theirs.encode(rendered) == TOKENIZER.encode_chat(messages)
    assert (ours.pad_id, ours.stop_ids, ours.vocab_size) == (TOKENIZER.pad_id, TOKENIZER.stop_ids, TOKENIZER.vocab_size)
    assert (theirs.pad_token_id, theirs.eos_token_id) == (TOKENIZER.pad_id, TOKENIZER.end_id)
    assert ours.decode([*ours.encode("x + "), ours.end_id, ours.pad_id]) == "x + "


def test_ids_beyond_the_vocabulary_are_counted():
    ids = [TOKENIZER.vocab_size, *TOKENIZER.encode("x + 1"), TOKENIZER.end_id, TOKENIZER.pad_id, 10**6]
    assert TOKENIZER.num_textless(ids) == 2
    assert TOKENIZER.num_textless([*range(TOKENIZER.vocab_size)]) == 0
    assert TOKENIZER.decode(ids) == "x + 1"


def test_folders_without_a_chat_tokenizer_are_refused(tmp_path):
    for folder, hub_id in {
        "Qwen/Qwen3-0.6B": "Qwen/Qwen3-0.6B",
        "data/Qwen2.5-Coder-1.5B-Instruct/": "Qwen/Qwen2.5-Coder-1.5B-Instruct",
        "data/warm": "OWNER/NAME",
        str(tmp_path / "missing"): "OWNER/NAME",
    }.items():
        said = f"{folder.rstrip('/')} holds no model: .*: hf download {hub_id} --local-dir {folder.rstrip('/')}\\.$"
        with pytest.raises(BadInput, match=said):
            load_tokenizer(folder)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInput, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(BadInput, match=r"holds no tokenizer: there is no tokenizer\.json, nor a vocab"):
        load_tokenizer(tmp_path)
    TOKENIZER.save(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(BadInput, match="no chat template"):
        load_tokenizer(tmp_path)
    for content in "{", "{}", "[]":
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(BadInput, match=rf"^the tokenizer in {tmp_path} cannot be read: \w+Error"):
            load_tokenizer(tmp_path)


RAISES = "{{ raise_exception('no system, please') }}"
PARTS = "{% for part in messages[0].content %}{{ part.text }}{% endfor %}!"  # of images and texts, not of letters
TURNS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{% if %}", "cannot write a chat of the roles user: TemplateSyntaxError: Expected an expression"),
        (RAISES, "cannot write a chat of the roles user: TemplateError: no system, please"),
        ("{{ 1 / 0 }}", "cannot write a chat of the roles user: ZeroDivisionError"),
        ("{{ messages[1].content.x }}", "cannot write a chat of the roles user: UndefinedError"),
        (PARTS, "leaves out what the user says"),
        (TURNS, "does not begin the assistant's message: it must do so for add_generation_prompt"),
        (f"\ufeff{TURNS}:", "begins with a byte order mark"),
    ],
)
def test_a_chat_template_that_fails_is_refused(template, complaint, tmp_path):
    TOKENIZER.save(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(BadInput, match=f"^the chat template of the tokenizer in {tmp_path} {complaint}"):
        load_tokenizer(tmp_path)


def test_a_chat_template_that_fails_for_some_chats_is_named_then(tmp_path):
    TOKENIZER.save(tmp_path)
    path = tmp_path / "chat_template.jinja"
    path.write_text(f"{{% if messages[0].role == 'system' %}}{RAISES}{{% endif %}}{path.read_text()}")
    tokenizer = load_tokenizer(tmp_path)
    for text in "plain", "a control token, <|im_end|>":
        with pytest.raises(BadInput, match="roles system, user: TemplateError: no system, please"):
            tokenizer.encode_chat([{"role": "system", "content": text}, {"role": "user", "content": "?"}])


def test_of_several_chat_templates_one_must_be_the_default(tmp_path):
    TOKENIZER.save(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    path = tmp_path / "tokenizer_config.json"
    templates = [{"name": name, "template": "x"} for name in ("tool_use", "rag")]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": templates}))
    with pytest.raises(BadInput, match="has the chat templates rag, tool_use: one must be called default"):
        load_tokenizer(tmp_path)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:26804dd49341d0\nsize 11422654\n"


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja", "config.json", "generation_config.json"])
def test_a_pointer_of_git_lfs_is_called_that(name, tmp_path):
    TOKENIZER.save(tmp_path)
    (tmp_path / name).write_text(POINTER)
    with pytest.raises(BadInput, match=f"^{tmp_path}/{name}: is a Git LFS pointer: `git lfs pull`"):
        load_tokenizer(tmp_path)


def test_wrapper_reads_the_stop_tokens_of_any_chat_tokenizer(tmp_path):
    TOKENIZER.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    as_in_base_models = {**json.loads(path.read_text()), "eos_token": "<|endoftext|>"}  # of Qwen
    path.write_text(json.dumps(as_in_base_models))
    assert load_tokenizer(tmp_path).stop_ids == (TOKENIZER.end_id, TOKENIZER.pad_id)


@pytest.mark.parametrize(("ends", "more"), [(7, (7,)), ([TOKENIZER.end_id, 7], (7,)), (None, ())])
def test_an_answer_also_ends_where_the_model_says(ends, more, tmp_path):
    (tmp_path / "model").mkdir()
    TOKENIZER.save(tmp_path)
    settings = tmp_path / "model" / "generation_config.json"
    settings.write_text(json.dumps({"eos_token_id": ends}))
    assert load_tokenizer(tmp_path, model=ModelFolder(tmp_path / "model")).stop_ids == (*TOKENIZER.stop_ids, *more)
    for unknown in TOKENIZER.vocab_size, -1:
        settings.write_text(json.dumps({"eos_token_id": [7, unknown]}))
        with pytest.raises(
            BadInput, match=rf"generation_config\.json: eos_token_id lists {unknown}, the tokenizer has"
        ):
            load_tokenizer(tmp_path, model=ModelFolder(tmp_path / "model"))
    settings.rename(tmp_path / "model" / "config.json")  # where it stands in older folders
    with pytest.raises(BadInput, match=r"/config\.json: eos_token_id lists -1, the tokenizer has"):
        load_tokenizer(tmp_path, model=ModelFolder(tmp_path / "model"))
    settings.write_text(json.dumps({"eos_token_id": ["</s>"]}))
    with pytest.raises(BadInput, match=r"generation_config\.json: eos_token_id is \['</s>'\]"):
        load_tokenizer(tmp_path, model=ModelFolder(tmp_path / "model"))


HEAD = "{{ messages[0].content }}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
SWITCHED = "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
BEGINS = {"switched": SWITCHED, "begun": "{{ '<think>\n' }}", "plain": ""}
TEMPLATES = {name: f"{HEAD}{begin}{{% endif %}}" for name, begin in BEGINS.items()}


@pytest.mark.parametrize(
    ("template", "thinking", "opening", "decoded", "thinks"),
    [
        ("switched", "", "assistant\n", "x", True),  # unless it is told not to
        ("switched", "on", "assistant\n", "x", True),
        ("switched", "off", "assistant\n<think>\n\n</think>\n\n", "x", False),
        ("begun", "", "assistant\n<think>\n", "<think>x", True),  # what the prompt begins is part of the answer's text
        ("plain", "", "assistant\n", "x", False),
        ("plain", "on", "assistant\n", "x", False),  # it cannot
    ],
)
def test_a_template_is_told_whether_to_think(template, thinking, opening, decoded, thinks, tmp_path):
    make_tokenizer(TEXTS[:100], 448).save(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES[template])
    tokenizer = load_tokenizer(tmp_path, thinking)
    assert tokenizer.transcript(tokenizer.encode_chat([{"role": "user", "content": "?"}])) == f"?<|im_start|>{opening}"
    assert tokenizer.decode(tokenizer.encode("x")) == decoded
    assert tokenizer.thinks == thinks
    if template == "begun":
        with pytest.raises(BadInput, match="begins thoughts, although thinking is off"):
            load_tokenizer(tmp_path, "off")


def of_a_family(family: str, folder: Path) -> ChatTokenizer:
    """A chat tokenizer made as that family's are: bytes, the family's way to split, its added tokens and template."""
    added = {
        "qwen3": (
            "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|vision_pad|>",
            "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|repo_name|> <|file_sep|> <think> </think>",
        ),
        "llama3": (
            "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|im_end|>",
            "<tool_call> <<SYS>> [INST] [/INST]",
        ),
    }[family]
    special, plain = (names.split() for names in added)
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE({byte: i for i, byte in enumerate(tokenizers.pre_tokenizers.ByteLevel.alphabet())}, [])
    )
    split = tokenizers.Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(split, "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(name, normalized=False) for name in special])
    tokenizer.add_tokens([tokenizers.AddedToken(name, normalized=False) for name in plain])
    template = {
        "qwen3": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        "llama3": "<|begin_of_text|>{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' "
        "+ m.content | trim + '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    }[family]
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=special[-1], pad_token=special[0], chat_template=template
    ).save_pretrained(folder)
    return load_tokenizer(folder)


def edit(path: Path, change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_text_is_cut_as_tokenizer_json_says_whatever_the_model_is(tmp_path):
    """CodeQwen1.5 is a "qwen2" with another tokenizer (QwenLM/Qwen3-Coder, issue 77); of this one Qwen2's rules lose
    all spaces and new lines.
    """
    of_a_family("qwen3", tmp_path)
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"\u2581": 300, "x": 301}
    decoders = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}]
    decoders += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}

    def change(stored):
        stored["model"] |= {"vocab": vocabulary, "byte_fallback": True}
        stored |= {"normalizer": replace, "pre_tokenizer": None}
        stored |= {"decoder": {"type": "Sequence", "decoders": decoders}}

    edit(tmp_path / "tokenizer.json", change)
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("x  x\n") == [301, 300, 300, 301, 10]
    assert tokenizer.transcript(tokenizer.encode("def f(x):\n    x")) == "def f(x):\n    x"


def test_the_end_of_a_message_is_one_token_and_no_text(tmp_path):
    of_a_family("qwen3", tmp_path)
    edit(tmp_path / "tokenizer_config.json", lambda settings: settings.update(split_special_tokens=True))
    with pytest.raises(BadInput, match=r"cuts <\|im_end\|>: it must be an added token"):
        load_tokenizer(tmp_path)
    settings = {"split_special_tokens": False, "eos_token": "<|endoftext|>"}
    edit(tmp_path / "tokenizer_config.json", lambda content: content.update(settings))
    edit(tmp_path / "tokenizer.json", lambda content: content["added_tokens"][2].update(special=False))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode([*tokenizer.encode("x"), tokenizer.end_id]) == "x"


@pytest.fixture(scope="module", params=["small", "qwen3", "llama3"])
def chat_tokenizer(request, tmp_path_factory) -> ChatTokenizer:
    folder = tmp_path_factory.mktemp(request.param)
    return TOKENIZER if request.param == "small" else of_a_family(request.param, folder)


def controls(tokenizer: ChatTokenizer) -> dict[int, str]:
    """All added tokens; those of the small tokenizer's that are words are not special."""
    added = tokenizer._tokenizer.added_tokens_decoder.items()
    return {index: token.content for index, token in added if tokenizer is not TOKENIZER or token.special}


@given(st.data())
def test_no_text_becomes_a_control_token(chat_tokenizer, data):
    """Programs, questions, suites and what users write: the model sees the same characters, and no other turns."""
    names = controls(chat_tokenizer)
    parts = st.sampled_from([*names.values(), "<", "|>", "<|", "\ue000", "\ue000\ue000", "x = 1\n", " ", "\n"])
    text = data.draw(st.lists(parts, min_size=1, max_size=8).map("".join))

    def chat(contents):
        roles = ["system", "user", "assistant", "user"]
        return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]

    said, plain = chat([f"a{text}z"] * 4), chat(["plain"] * 4)
    for encode in (chat_tokenizer.encode_chat, lambda messages: chat_tokenizer.encode_transcript(messages)[0]):
        ids = encode(said)
        assert [i for i in ids if i in names] == [i for i in encode(plain) if i in names]
        assert chat_tokenizer.transcript(ids) == chat_tokenizer.transcript(encode(plain)).replace("plain", f"a{text}z")
    assert not names.keys() & set(chat_tokenizer.encode(text))
    assert chat_tokenizer.transcript(chat_tokenizer.encode(text)) == text


def test_wide_letters_that_a_tokenizer_makes_narrow_become_no_control_token(tmp_path):
    of_a_family("qwen3", tmp_path)
    path = tmp_path / "tokenizer.json"
    written = json.loads(path.read_text())
    written["normalizer"] = {"type": "NFKC"}
    for token in written["added_tokens"]:
        token["normalized"] = True
    path.write_text(json.dumps(written))
    tokenizer = load_tokenizer(tmp_path)
    wide = "x = 1 # \uff1c|im_end|\uff1e \uff1cthink\uff1e"
    assert tokenizer.end_id in tokenizer._tokenizer.encode(wide)
    assert not controls(tokenizer).keys() & set(tokenizer.encode(wide))
    assert tokenizer.encode_chat([{"role": "user", "content": wide}]).count(tokenizer.end_id) == 1
    assert tokenizer.encode("\uff21") == tokenizer._tokenizer.encode("A")  # as ever


def test_a_text_without_control_tokens_is_encoded_as_ever(chat_tokenizer):
    theirs = chat_tokenizer._tokenizer
    for text in [*TEXTS[:100], "a < b | c > d", "<x> </y>", "<|", "\ue000"]:
        chat = [{"role": "user", "content": text}]
        expected = theirs.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        assert chat_tokenizer.encode_chat(chat) == expected
        assert chat_tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False)
