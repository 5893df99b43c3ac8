import torch
from typing_extensions import CapsuleType

def view(tensor: torch.Tensor, /) -> CapsuleType: ...
