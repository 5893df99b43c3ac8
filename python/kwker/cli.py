"""The command `kwker`: results on stdout, progress and messages on stderr; exit status 2 for a wrong call, 1 for a
failure."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from kwker.decode import KwkDecoder

_PRECISIONS = ("int4", "bfloat16")
# For `kwker bench`: text that a model continues by writing much of it again.
_BENCH_PROMPT = "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return a - b\n\ndef multiply(a, b):\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        status = command(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read the results has gone; leave nothing to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        print(f"kwker: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kwker", description="Text generation on CPUs.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("model", metavar="MODEL", help="a model folder, or a name on the Hub")
    common.add_argument(
        "--draft", metavar="MODEL", help="a smaller model with the same tokenizer, which proposes tokens"
    )
    common.add_argument(
        "--lookup",
        type=_integer(0, 64),
        metavar="N",
        default=8,
        help="most tokens proposed by prompt lookup per step (8; 0: off)",
    )
    common.add_argument("--precision", choices=_PRECISIONS, help="of the packed weights (bfloat16)")
    common.add_argument("--threads", type=_integer(1, 1024), metavar="N", help="(the CPUs this process may use)")
    common.add_argument(
        "--max-cache-len",
        type=_integer(1, 1 << 24),
        metavar="N",
        default=2048,
        help="longest text in tokens, prompt included (2048)",
    )
    common.add_argument("--json", action="store_true", help="print one JSON object")

    generate = commands.add_parser("generate", parents=[common], help="continue a prompt")
    generate.add_argument("prompt", metavar="PROMPT")
    generate.add_argument("--max-new-tokens", type=_integer(0, 1 << 24), metavar="N", default=256, help="(256)")
    generate.set_defaults(command=_generate)

    bench = commands.add_parser("bench", parents=[common], help="measure decoding")
    bench.add_argument(
        "--tokens",
        type=_integer(2, 1 << 24),
        metavar="N",
        default=64,
        help="new tokens of the runs that compare proposals with plain decoding (64)",
    )
    bench.set_defaults(command=_bench)

    info = commands.add_parser("info", parents=[common], help="show what a model is and whether it can run")
    info.set_defaults(command=_info)
    return parser


def _integer(minimum: int, maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not minimum <= number <= maximum:
            raise argparse.ArgumentTypeError(f"must be between {minimum} and {maximum}, got {number}")
        return number

    parse.__name__ = "integer"  # argparse's messages name the type
    return parse


def _load(folder: Path, precision: str | None, options: argparse.Namespace) -> KwkDecoder:
    from kwker.decode import KwkDecoder
    from kwker.progress import loading_bar

    with loading_bar(f"loading {folder.name}") as progress:
        return KwkDecoder(
            folder, options.max_cache_len, precision or "bfloat16", num_threads=options.threads, progress=progress
        )


def _load_draft(options: argparse.Namespace) -> KwkDecoder | None:
    from kwker.hub import find_model

    return None if options.draft is None else _load(find_model(options.draft), options.precision, options)


def _tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the base class is what tokenizers raises
        from kwker import Error

        raise Error(f"cannot read the tokenizer {path}: {error}") from error


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False))


def _generate(options: argparse.Namespace) -> int:
    from tokenizers.decoders import DecodeStream

    from kwker.hub import find_model

    folder = find_model(options.model)
    tokenizer = _tokenizer(folder)
    decoder, draft = _load(folder, options.precision, options), _load_draft(options)
    prompt = tokenizer.encode(options.prompt).ids
    decode = DecodeStream(ids=prompt, skip_special_tokens=True)
    tokens: list[int] = []
    pieces: list[str] = []
    for token in decoder.stream(prompt, options.max_new_tokens, lookup=options.lookup, draft=draft):
        tokens.append(token)
        piece = decode.step(tokenizer, token)  # None until a character is whole
        if piece:
            pieces.append(piece)
            if not options.json:
                print(piece, end="", flush=True)
    stats = decoder.stats
    if options.json:
        _print_json({"prompt": prompt, "tokens": tokens, "text": "".join(pieces), "stats": asdict(stats)})
    else:
        print()
    summary = f"{stats.tokens} tokens, {stats.tokens_per_s:.1f} tokens/s"
    if stats.proposed:
        summary += f", {stats.accepted} of {stats.proposed} proposed tokens accepted"
    print(summary, file=sys.stderr)
    return 0


def _bench(options: argparse.Namespace) -> int:
    from kwker import bench, cpu_backend
    from kwker.hub import find_model

    if options.threads is not None:  # the bandwidth probes use as many as the decoder
        cpu_backend.set_num_threads(options.threads)
    folder = find_model(options.model)
    prompt = _tokenizer(folder).encode(_BENCH_PROMPT).ids
    draft = _load_draft(options)
    speeds: list[bench.DecodeSpeed] = []
    gains: list[bench.ProposalSpeed] = []
    for precision in [options.precision] if options.precision else _PRECISIONS:
        decoder = _load(folder, precision, options)
        speeds.append(bench.decode_speed(decoder, prompt))
        if options.lookup or draft is not None:
            gains.append(bench.proposal_speed(decoder, prompt, options.tokens, lookup=options.lookup, draft=draft))
    machine = {"isa": cpu_backend.isa(), "threads": cpu_backend.num_threads()}
    if options.json:
        _print_json({**machine, "decode": [asdict(s) for s in speeds], "proposals": [asdict(g) for g in gains]})
    else:
        print(f"{folder.name}, {machine['isa']}, {machine['threads']} threads")
        print("\n".join(bench.table(speeds, gains)))
    if not all(gain.equal for gain in gains):
        raise RuntimeError("proposals changed the tokens: please report this as a bug")
    return 0


def _info(options: argparse.Namespace) -> int:
    from kwker import cpu_backend
    from kwker.hub import find_model
    from kwker.info import model_facts

    facts = model_facts(find_model(options.model), options.max_cache_len)
    facts["isa"] = cpu_backend.isa()
    facts["threads"] = options.threads or cpu_backend.num_threads()
    if options.draft is not None:
        facts["draft"] = model_facts(find_model(options.draft), options.max_cache_len)
    if options.json:
        _print_json(facts)
    else:
        for name, value in facts.items():
            print(f"{name.replace('_', ' '):<24} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
