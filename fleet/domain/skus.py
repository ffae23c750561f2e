"""What a product name says of a GPU: how many NVLinks it has, its power limit as delivered, what cannot be judged.

A name that is not known says nothing: then only what was seen before is compared with.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

#: (part of the name in capitals, NVLinks) of boards whose links always lead to switches or other GPUs. Data sheets of
#: NVIDIA's HGX and MGX boards; boards for PCIe slots (PCIe, NVL) have a bridge or none and are left out.
_LINKS = (
    *(("GB300", 18), ("GB200", 18), ("B300", 18), ("B200", 18), ("H200", 18), ("H100", 18), ("H800", 8), ("H20", 18)),
    *(("A100-SXM", 12), ("A800-SXM", 8), ("V100-SXM", 6)),
)
#: (part of the name in capitals, W) the power limit that a board is delivered with; NVIDIA's data sheets.
#: Boards whose limit the maker of the server chooses (NVL, GH200, GB200) are left out.
_POWER = (
    *(("H200 NVL", 0), ("H100 NVL", 0), ("GH200", 0), ("GB200", 0), ("GB300", 0)),
    *(("H100 PCIE", 350), ("H800 PCIE", 350), ("A100-PCIE-40GB", 250), ("A100 80GB PCIE", 300), ("A100-SXM", 400)),
    *(("B200", 1000), ("H200", 700), ("H100", 700), ("H800", 700), ("V100-SXM", 300), ("L40S", 350), ("L40", 300)),
)
_SLOT_BOARDS = ("PCIE", "NVL", "GH200")
_CHIP_TO_CHIP = ("GH200", "GB200", "GB300", "GRACE")  # no PCIe between CPU and GPU
_VGPU = re.compile(r"^(?:NVIDIA )?GRID |-\d+[ABCQ](?:$|ME$)")


class Sku(NamedTuple):
    """`links`: its NVLinks, 0 = not known. `is_vgpu`: presence and Xid only. `has_pcie`: whether lanes say anything.

    `power`: its power limit as delivered, mW, 0 = not known.
    """

    links: int
    is_vgpu: bool
    has_pcie: bool
    power: int = 0


@lru_cache(maxsize=1024)
def sku(name: str | None) -> Sku:
    """What the name says.

    >>> sku("NVIDIA H100 80GB HBM3"), sku("NVIDIA A16-4Q").is_vgpu, sku("NVIDIA GH200 480GB").has_pcie
    (Sku(links=18, is_vgpu=False, has_pcie=True, power=700000), True, False)
    """
    text = (name or "").upper()
    is_vgpu = bool(_VGPU.search(text))
    links = 0
    if not is_vgpu and not any(part in text for part in _SLOT_BOARDS):
        links = next((count for part, count in _LINKS if part in text), 0)
    watts = 0 if is_vgpu else next((watts for part, watts in _POWER if part in text), 0)
    return Sku(links, is_vgpu, not any(part in text for part in _CHIP_TO_CHIP), watts * 1000)
