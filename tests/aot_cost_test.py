"""What a compiled function costs, from the text of the TPU compiler's program."""

import pytest

from codea1.lab.aot.cost import COLLECTIVE_BEGINS, SLICES_BEGIN, Cost, costs
from codea1.lab.aot.work import CHIPS

# Of what the compiler writes, the parts that are read.
HLO = """HloModule jit_decode, is_scheduled=true

%fused_gather (p: bf16[8,4]) -> bf16[64,4] {
  %p = bf16[8,4]{1,0} parameter(0)
  ROOT %all-gather.1 = bf16[64,4]{1,0} all-gather(%p), channel_id=5, dimensions={0}
}

%fused_gather.clone (p: bf16[8,4]) -> bf16[64,4] {
  %p.1 = bf16[8,4]{1,0} parameter(0)
  ROOT %all-gather.2 = bf16[64,4]{1,0:T(8,128)S(1)} all-gather(%p.1), channel_id=5, dimensions={0}
}

%fused_scatter (c: bf16[100,128], i: s32[4,1], u: bf16[4,128]) -> bf16[100,128] {
  %c = bf16[100,128]{1,0} parameter(0)
  ROOT %scatter.1 = bf16[100,128]{1,0} scatter(%c, %i, %u), update_window_dims={1}, to_apply=%region
}

%layer_condition (a: (s32[], bf16[100,128])) -> pred[] {
  %a = (s32[]{:T(128)}, bf16[100,128]{1,0}) parameter(0)
  %count = s32[]{:T(128)} get-tuple-element(%a), index=0
  %constant.7 = s32[]{:T(128)} constant(28)
  ROOT %compare.1 = pred[]{:T(512)} compare(%count, %constant.7), direction=LT
}

%layer (b: (s32[], bf16[100,128])) -> (s32[], bf16[100,128]) {
  %b = (s32[]{:T(128)}, bf16[100,128]{1,0}) parameter(0)
  %cache = bf16[100,128]{1,0} get-tuple-element(%b), index=1
  %index = s32[4,1]{1,0} constant({...})
  %update = bf16[4,128]{1,0} fusion(%b), kind=kLoop, calls=%other, backend_config={"estimated_cycles":"100"}
  %part.1 = bf16[64,4]{1,0} fusion(%update), kind=kCustom, calls=%fused_gather, backend_config={"estimated_cycles":"40"}
  %part.2 = bf16[64,4]{1,0} fusion(%update), kind=kCustom, calls=%fused_gather.clone
  %put = bf16[100,128]{1,0} fusion(%cache, %index, %update), kind=kCustom, calls=%fused_scatter
  %kernel = f32[4,128]{1,0} custom-call(%update, %index), custom_call_target="tpu_custom_call"
  ROOT %t = (s32[]{:T(128)}, bf16[100,128]{1,0}) tuple(%b, %put)
}

%step_condition (d: (s32[], bf16[100,128])) -> pred[] {
  %d = (s32[]{:T(128)}, bf16[100,128]{1,0}) parameter(0)
  %constant.8 = s32[]{:T(128)} constant(16)
  %constant.9 = s32[]{:T(128)} constant(0)
  ROOT %and.1 = pred[]{:T(512)} and(%few, %any)
}

%step (e: (s32[], bf16[100,128])) -> (s32[], bf16[100,128]) {
  %e = (s32[]{:T(128)}, bf16[100,128]{1,0}) parameter(0)
  %all-reduce.1 = f32[10]{0} all-reduce(%x), channel_id=9, to_apply=%sum
  ROOT %while.1 = (s32[]{:T(128)}, bf16[100,128]{1,0}) while(%e), condition=%layer_condition, body=%layer
}

ENTRY %main (f: bf16[100,128]) -> bf16[100,128] {
  %f = bf16[100,128]{1,0} parameter(0)
  %copy.1 = bf16[100,128]{1,0} copy(%f), backend_config={"flag_configs":[],"estimated_cycles":"7"}
  %g-start = (bf16[2,4]{1,0}, bf16[16,4]{1,0}, u32[]{:S(2)}) all-gather-start(%f), channel_id=11, dimensions={0}
  %while.2 = (s32[]{:T(128)}, bf16[100,128]{1,0}) while(%copy.1), condition=%step_condition, body=%step
  %known = (s32[], bf16[9]) while(%while.2), body=%layer, condition=%step_condition, x={"known_trip_count":{"n":"3"}}
  ROOT %out = bf16[100,128]{1,0} get-tuple-element(%known), index=1
}
"""


def test_loops_count_as_often_as_they_turn_and_what_has_no_estimate_by_its_bytes():
    gathered, scattered, kernel = 64 * 4 * 2, 3 * (4 * 4 + 4 * 128 * 2), 4 * 128 * 4 + 4 * 128 * 2 + 4 * 4
    layer = Cost(140, scattered + kernel, gathered, 1)  # one gather, though in two fusions
    turn = layer * 28 + Cost(ici_bytes=2 * 40, collectives=1)  # an all-reduce sends its operand and its result
    once = Cost(7, 0, 16 * 4 * 2, 1) + turn + layer * 3
    assert costs(HLO) == (once, turn)


def test_bytes_are_priced_by_a_part_of_the_bandwidth():
    seconds = Cost(3e9, 0.7 * 0.81e12, 0.7 * 2 * 45e9, 10).seconds(CHIPS["v5e"])
    begun = 10 * COLLECTIVE_BEGINS
    expected = {"estimated": 2.0, "kernels": 1.0, "collectives": 1.0 + begun, "between slices": 0.0}
    assert seconds == pytest.approx(expected)


def to_slices(key: str, slices: str, kind: str) -> str:
    """The attributes of a transfer."""
    return (
        'is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",'
        f'_xla_host_transfer_rendezvous="{key}",_xla_megascale_target="{{{slices}}}x{{0:3}}",'
        f'_xla_megascale_transfer_type="{kind}"}}'
    )


# What libtpu makes of an all-reduce over four slices of four chips, and of an all-gather over them.
BETWEEN = f"""
%sums (p: f32[250,4,1000]) -> f32[250,4,1000] {{
  %p = f32[250,4,1000]{{2,1,0}} parameter(0)
  %send.1 = (f32[250,4,1000]{{2,1,0:T(4,128)}}, u32[], token[]) send(%p, %t), {to_slices("a", "1,2,3,4", "ALL_REDUCE")}
  ROOT %recv.1 = (f32[250,4,1000]{{2,1,0}}, u32[], token[]) recv(%t), {to_slices("a", "1,2,3,4", "ALL_REDUCE")}
}}

ENTRY %main (f: f32[250,4,1000]) -> f32[250,4,1000] {{
  %f = f32[250,4,1000]{{2,1,0}} parameter(0)
  %all-reduce.1 = f32[250,4,1000]{{2,1,0}} all-reduce(%f), channel_id=1, replica_groups={{{{0,1,2,3}}}}, to_apply=%sum
  %to_host = (s32[8]{{0}}, u32[], token[]) send(%f, %t), channel_id=2, is_host_transfer=true
  %send.2 = (s32[16,16]{{1,0:T(8,128)}}, u32[], token[]) send(%f, %t), {to_slices("g", "1:4", "ALL_GATHER")}
  ROOT %part.1 = f32[250,4,1000]{{2,1,0}} fusion(%all-reduce.1), kind=kCustom, calls=%sums
}}
"""


def test_what_goes_to_other_slices_is_told_from_what_stays_in_one():
    once, _ = costs(BETWEEN)
    reduced, gathered = 4e6, 16 * 16 * 4
    # To three others: all of what is gathered; of what is summed each slice's quarter, and then the quarters' sums.
    assert once == Cost(ici_bytes=2 * 4e6, collectives=1, dcn_bytes=2 * 3 / 4 * reduced + 3 * gathered, transfers=2)


def test_an_all_reduce_over_two_slices_takes_its_bytes_at_half_of_the_network():
    # 200 Gb/s for the eight chips of a v5e's host are 3.125 GB/s for each, of which half is reached.
    seconds = Cost(dcn_bytes=2 * 1 / 2 * 6.25e9, transfers=1).seconds(CHIPS["v5e"])["between slices"]
    assert seconds == pytest.approx(4.0 + SLICES_BEGIN)


def test_collectives_that_share_a_channel_are_told_apart():
    program = """
ENTRY %main (f: f32[4,8]) -> f32[4,8] {
  %f = f32[4,8]{1,0} parameter(0)
  %all_gather.1 = f32[16,8]{1,0} all-gather(%f), channel_id=1, dimensions={0}
  ROOT %reduce_scatter.1 = f32[4,8]{1,0} reduce-scatter(%all_gather.1), channel_id=1, dimensions={0}, to_apply=%sum
}
"""
    once, _ = costs(program)
    assert once == Cost(ici_bytes=2 * 16 * 8 * 4, collectives=2)
