# SPDX-License-Identifier: Apache-2.0
"""Run by dcp_real.py with PyTorch 2: prints {name: [shape, hex of the elements]} of the tensors of
distributed checkpoints, loaded by torch.distributed.checkpoint, or of plain files by torch.load.

Usage: dcp_reader.py PATH...     one line of JSON for each
       dcp_reader.py write FILE  a file of torch.save with what PyTorch 1 does not know
"""
import json
import os
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata


def load(folder):
    metadata = FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {k: torch.empty(m.size, dtype=m.properties.dtype) for k, m in metadata.items() if isinstance(m, TensorStorageMetadata)}
    dcp.load(state, storage_reader=FileSystemReader(folder), no_dist=True)
    return state


def show(t):
    return [list(t.shape), t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex()]


def write(path):
    base = torch.arange(64, dtype=torch.float32)
    state = {"e4m3": base[:9].to(torch.float8_e4m3fn), "e5m2": base.to(torch.float8_e5m2).reshape(8, 8).t(),
             **{str(t)[6:]: torch.arange(7).to(t) for t in (torch.uint16, torch.uint32, torch.uint64)},
             "turned": base.reshape(8, 8).t(), "half": base.to(torch.float16), "brain": base.to(torch.bfloat16)}
    torch.save(state, path)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        for path in sys.argv[1:]:
            state = load(path) if os.path.isdir(path) else torch.load(path)
            print(json.dumps({k: show(t) for k, t in state.items()}))
