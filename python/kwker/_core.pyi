from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import CapsuleType

__version__: str

class Error(RuntimeError): ...

def isa() -> str: ...
def isa_levels() -> list[str]: ...
def set_isa(level: str) -> None: ...
def num_threads() -> int: ...
def set_num_threads(n: int) -> None: ...
def read_bandwidth(megabytes: int) -> float: ...

class ModelConfig:
    @property
    def model_type(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def rms_norm_eps(self) -> float: ...
    @property
    def rope_theta(self) -> float: ...
    @property
    def tie_word_embeddings(self) -> bool: ...
    @property
    def max_position_embeddings(self) -> int: ...
    @property
    def bos_token_id(self) -> int | None: ...
    @property
    def eos_token_ids(self) -> list[int]: ...

def parse_config(config_json: str, generation_config_json: str | None = None) -> ModelConfig: ...
def unsupported_reason(config_json: str) -> str | None: ...

class Decoder:
    @staticmethod
    def from_folder(
        folder: str,
        *,
        precision: str,
        max_cache_len: int,
        max_batch: int,
        group_size: int,
        num_threads: int,
        prefix_cache: bool,
        progress: Callable[[int, int], object] | None,
    ) -> Decoder: ...
    @staticmethod
    def from_tensors(
        config_json: str,
        generation_config_json: str | None,
        tensors: Mapping[str, CapsuleType],
        *,
        precision: str,
        max_cache_len: int,
        max_batch: int,
        group_size: int,
        num_threads: int,
        prefix_cache: bool,
        progress: Callable[[int, int], object] | None,
    ) -> Decoder: ...
    @property
    def config(self) -> ModelConfig: ...
    @property
    def precision(self) -> str: ...
    @property
    def max_cache_len(self) -> int: ...
    @property
    def max_batch(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    def logits(self, tokens: Sequence[int], chunk: int) -> NDArray[np.float32]: ...

class StatsDict(TypedDict):
    steps: int
    tokens: int
    proposed: int
    accepted: int
    max_proposed: int
    cached: int
    by_proposer: dict[str, tuple[int, int]]
    prefill_s: float
    decode_s: float
    tokens_per_s: float
    finish_reason: str | None

class Generation:
    def __init__(
        self,
        decoder: Decoder,
        prompt: Sequence[int],
        *,
        max_new_tokens: int | None,
        lookup: int,
        draft: Decoder | None,
        draft_tokens: int,
        eos_token_ids: Sequence[int] | None,
    ) -> None: ...
    def advance(self) -> list[int]: ...
    @property
    def done(self) -> bool: ...
    @property
    def tokens(self) -> list[int]: ...
    @property
    def stats(self) -> StatsDict: ...
