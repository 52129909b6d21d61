"""python -m lib generate TEXT: a real model answers, offline."""

import os
import sys

import torch

from lib.command_line import Parser
from lib.decoding import TURN_END, chat_prompt, generate
from lib.files.real_model import find_model
from lib.files.tokenizers import load_tokenizer
from lib.files.weights import DECODE, load_model

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class TextStream:
    """Ids in, text out as soon as it is whole: a character of several bytes may come in several tokens."""

    def __init__(self, tokenizer, write):
        from tokenizers.decoders import DecodeStream

        self.tokenizer, self.write = tokenizer, write
        self.decoder, self.ids, self.said = DecodeStream(skip_special_tokens=True), [], ""

    def __call__(self, ids):
        self.ids += ids
        for i in ids:
            self._say(self.decoder.step(self.tokenizer, i))

    def _say(self, text):
        if text:
            self.said += text
            self.write(text)

    def end(self):
        """What is left: bytes that never became a character are shown as the replacement sign."""
        whole = self.tokenizer.decode(self.ids)
        if whole.startswith(self.said):
            self._say(whole[len(self.said) :])


def _arguments(argv):
    p = Parser("python -m lib generate", description="A real model answers, in the book's own code, offline.")
    p.add_argument("text", help="what the user says")
    p.add_argument(
        "--max-new-tokens", type=int, default=64, metavar="N", help="longest answer in tokens (64)"
    )
    p.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        help="0 = greedy (default); 1 = the model's own distribution",
    )
    p.add_argument("--top-k", type=int, help="draw among the k likeliest tokens")
    p.add_argument("--top-p", type=float, help="draw among the likeliest tokens that add up to p")
    p.add_argument("--seed", type=int, help="makes a draw repeatable")
    p.add_argument("--system", help="the system prompt (default: the model's own)")
    p.add_argument(
        "--plain", action="store_true", help="continue the text as it is, without the chat template"
    )
    p.add_argument(
        "--model", metavar="PATH", help="a Hugging Face folder or a GGUF file (default: the book's model)"
    )
    p.add_argument("--dtype", choices=DTYPES, help="default: as stored")
    p.add_argument("--decode", choices=DECODE, default="plain", help="how single steps run (plain)")
    p.add_argument("--device", help="cpu (default), cuda, cuda:1, mps")
    return p.parse_args(argv)


def _answer(args, write):
    if any("\ud800" <= c <= "\udfff" for c in args.text + (args.system or "")):
        raise ValueError("the text is not UTF-8: is the terminal set to another encoding?")
    path = find_model() if args.model is None else args.model
    model = load_model(path, DTYPES.get(args.dtype), args.device, args.decode)
    tokenizer = load_tokenizer(path)
    chat = not args.plain and tokenizer.token_to_id(TURN_END) is not None
    ids = tokenizer.encode(chat_prompt(args.text, args.system) if chat else args.text).ids
    if not ids:
        raise ValueError("the text is empty: without the chat template a model needs something to continue")
    idx = torch.tensor([ids], device=model.emb.weight.device)
    stop = {tokenizer.token_to_id(token) for token in (TURN_END, "<|endoftext|>", "</s>")} - {None}
    room = max(model.config.max_len - len(ids), 1)
    stream = TextStream(tokenizer, write)
    generate(
        model, idx, min(args.max_new_tokens, room), args.temperature, args.top_k, args.top_p, args.seed, stop, stream
    )  # fmt: skip
    stream.end()
    write("\n")


def main(argv=None):
    """`python -m lib generate TEXT`: the answer on stdout as it comes. Exit code 2 with one line on stderr for bad input."""
    args = _arguments(argv)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character

    def write(text):
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        _answer(args, write)
    except KeyboardInterrupt:
        write("\n")
        return 130
    except BrokenPipeError:
        # the reader (head, less) has seen enough; point stdout elsewhere for Python's own last flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, RuntimeError) as error:
        print(f"lib generate: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    return 0
