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


def to_slices(key: str, slices: str, kind: str) -> str:
    """The attributes of a transfer."""
    return (
        'is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",'
        f'_xla_host_transfer_rendezvous="{key}",_xla_megascale_target="{{{slices}}}x{{0:3}}",'
        f'_xla_megascale_transfer_type="{kind}"}}'
    )


# What libtpu makes of an all-reduce over four slices of four chips, and of an all-gather over them.
BETWEEN = f"""
  %send.1 = (f32[250,4,1000]{{2,1,0:T(4,128)}}, u32[], token[]) send(%p, %t), {to_slices("a", "1,2,3,4", "ALL_REDUCE")}
  ROOT %recv.1 = (f32[250,4,1000]{{2,1,0}}, u32[], token[]) recv(%t), {to_slices("a", "1,2,3,4", "ALL_REDUCE")}
  %all-reduce.1 = f32[250,4,1000]{{2,1,0}} all-reduce(%f), channel_id=1, replica_groups={{{{0,1,2,3}}}}, to_apply=%sum
  %to_host = (s32[8]{{0}}, u32[], token[]) send(%f, %t), channel_id=2, is_host_transfer=true
  %send.2 = (s32[16,16]{{1,0:T(8,128)}}, u32[], token[]) send(%f, %t), {to_slices("g", "1:4", "ALL_GATHER")}
"""


def test_what_goes_to_other_slices_is_told_from_what_stays_in_one():
    assert collectives(BETWEEN) == {
        "all-reduce": Collectives(1, 4_000_000),
        "transfer between slices": Collectives(2, 4_000_000 + 16 * 16 * 4),
    }


def test_a_program_of_one_chip_has_none():
    assert collectives("%dot = f32[8,8]{1,0} dot(%x, %y)") == {}
