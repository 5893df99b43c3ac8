"""The command `kwker`: what it prints where, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import kwker
from kwker import cli


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_generate(capsys: pytest.CaptureFixture[str], smol135: Path) -> None:
    arguments = ["generate", smol135, "The capital of France is", "--max-new-tokens", 12, "--precision", "int4"]
    status, text, messages = run(capsys, *arguments)
    assert status == 0
    assert "Paris" in text
    assert "tokens/s" in messages

    status, output, _ = run(capsys, *arguments, "--json", "--lookup", 0, "--draft", smol135, "--threads", 1)
    assert status == 0
    result = json.loads(output)
    assert result["text"] + "\n" == text
    assert len(result["tokens"]) == result["stats"]["tokens"] == 12
    assert result["stats"]["by_proposer"]["draft"]["proposed"] > 0
    decoder = kwker.KwkDecoder(smol135, 256, "int4")
    assert list(decoder.stream(result["prompt"], 12)) == result["tokens"]


def test_generate_shows_whole_characters(capsys: pytest.CaptureFixture[str], smol135: Path) -> None:
    prompt = "🦄🎉🚀🦄🎉🚀🦄🎉🚀🦄🎉🚀"
    _, text, _ = run(capsys, "generate", smol135, prompt, "--max-new-tokens", 9)
    assert "\N{REPLACEMENT CHARACTER}" not in text


def test_bench(capsys: pytest.CaptureFixture[str], smol135: Path) -> None:
    status, output, _ = run(capsys, "bench", smol135, "--json", "--tokens", 16)
    assert status == 0
    result = json.loads(output)
    assert [speed["precision"] for speed in result["decode"]] == ["int4", "bfloat16"]
    for speed in result["decode"]:
        assert speed["ms_per_token"] > 0
        assert speed["share"] == pytest.approx(speed["gb_per_s"] / speed["read_gb_per_s"])
    assert all(gain["equal"] for gain in result["proposals"])

    status, output, _ = run(capsys, "bench", smol135, "--precision", "int4", "--tokens", 16)
    assert status == 0
    assert "GB/s" in output
    assert "same tokens" in output


def test_info(capsys: pytest.CaptureFixture[str], smol135: Path, tmp_path: Path) -> None:
    status, output, _ = run(capsys, "info", smol135, "--json", "--draft", smol135)
    assert status == 0
    facts = json.loads(output)
    assert facts["supported"] is True
    assert facts["parameters"] == 134515008
    assert facts["draft"]["vocab_size"] == facts["vocab_size"] == 49152
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    status, output, _ = run(capsys, "info", tmp_path)
    assert status == 0
    assert "gpt2" in output


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["generate"],
        ["generate", "MODEL"],
        ["generate", "MODEL", "text", "--lookup", "65"],
        ["generate", "MODEL", "text", "--lookup", "many"],
        ["generate", "MODEL", "text", "--threads", "0"],
        ["generate", "MODEL", "text", "--precision", "int5"],
        ["generate", "MODEL", "text", "--no-such"],
        ["bench"],
        ["no-such-command"],
    ],
)
def test_wrong_calls(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert left.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: kwker" in captured.err


def test_failures_say_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, tiny_folder: Path) -> None:
    cases: list[tuple[list[object], str]] = [
        (["generate", tmp_path / "nothing", "text"], "neither a folder nor the name of a model"),
        (["generate", tmp_path, "text"], "tokenizer.json"),
        (["generate", tiny_folder, "text"], "tokenizer.json"),
    ]
    for arguments, message in cases:
        status, output, messages = run(capsys, *arguments)
        assert status == 1
        assert output == ""
        assert messages.startswith("kwker: ")
        assert message in messages
        assert len(messages.splitlines()) == 1


def test_a_prompt_that_does_not_fit(capsys: pytest.CaptureFixture[str], smol135: Path) -> None:
    status, _, messages = run(capsys, "generate", smol135, "one two three four", "--max-cache-len", 2)
    assert status == 1
    assert len(messages.splitlines()) == 1


def test_a_hub_name_without_a_network(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    status, _, messages = run(capsys, "info", "nobody/nothing")
    assert status == 1
    assert "nobody/nothing is not in the local cache and cannot be downloaded" in messages


def test_the_console_script_and_the_module(smol135: Path) -> None:
    script = Path(sys.executable).with_name("kwker")
    for command in ([script], [sys.executable, "-m", "kwker.cli"]):
        result = subprocess.run([*command, "info", smol135], capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 0, result.stderr
        assert "llama" in result.stdout


def test_a_reader_that_leaves(smol135: Path) -> None:
    result = subprocess.run(
        f"{sys.executable} -m kwker.cli info {smol135} | true; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stdout.strip() in ("0", "1")
    assert "Traceback" not in result.stderr
