"""Collectives as the TPU compiler writes them."""

from codea1.lab.aot.compilation import Collectives, collectives

HLO = """
%fused.1 { %all-gather.1 = bf16[1,1536,2,128]{3,1,2,0:T(8,128)(2,1)} all-gather(%p.1), channel_id=126, dimensions={1}
%fused.2 { %all-gather.2 = bf16[1,1536,2,128]{3,1,2,0:T(8,128)(2,1)S(1)} all-gather(%p.2), channel_id=126
  %all-gather.3 = f32[16,4]{1,0} all-gather(%x), channel_id=2, dimensions={0}
  %collective-permute-start = (bf16[96,12]{1,0:T(8,128)}, bf16[96,12]{1,0}, u32[]{:S(2)}, u32[]{:S(2)})
  %start.4 = (bf16[96,12]{1,0}, bf16[96,12]{1,0}, u32[]{:S(2)}) collective-permute-start(%y), channel_id=7
  %done = bf16[96,12]{1,0} collective-permute-done(%start.4), channel_id=7
  %all-reduce.5 = (f32[]{:T(128)}, f32[3]{0}) all-reduce(%a, %b), channel_id=9, to_apply=%sum
  %all-reduce.6 = pred[8]{0} all-reduce(%c), channel_id=10, to_apply=%or
  %dot = f32[8,8]{1,0} dot(%all-gather.3, %z)
"""


def test_parts_of_one_channel_are_one_collective():
    assert collectives(HLO) == {
        "all-gather": Collectives(2, 1536 * 2 * 128 * 2 + 16 * 4 * 4),
        "all-reduce": Collectives(2, 4 + 12 + 8),
        "collective-permute": Collectives(1, 96 * 12 * 2),
    }


def test_a_program_of_one_chip_has_none():
    assert collectives("%dot = f32[8,8]{1,0} dot(%x, %y)") == {}
