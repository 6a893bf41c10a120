"""nvidia-smi's XML: what is read of it, what is refused, and when it stands in for NVML."""

from __future__ import annotations

import os
import re
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.probe.answer import row_of
from envaudit.probe.context import Answer, Context
from envaudit.probe.nvidia_smi_xml import mig_profile, read_report
from envaudit.probe.nvlink_status import LinkStatus, read_link_status
from envaudit.probe.sections import gpu
from envaudit.probe.xml_elements import NotReadable, parse_xml
from tests.probe.gpumachine import Machine, lines, pci, proc

MakeNode = Callable[..., Context]

HEAD = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
CARD = """
<gpu id="00000000:1B:00.0">
  <product_name>NVIDIA H100 80GB HBM3</product_name>
  <product_architecture>Hopper</product_architecture>
  <persistence_mode>Enabled</persistence_mode>
  <addressing_mode>None</addressing_mode>
  <mig_mode><current_mig>Disabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
  <mig_devices>None</mig_devices>
  <serial>1650923000026</serial>
  <uuid>GPU-1a2b3c4d-0000-4000-8000-000000000000</uuid>
  <vbios_version>96.00.89.00.01</vbios_version>
  <inforom_version><img_version>G520.0200.00.05</img_version></inforom_version>
  <gsp_firmware_version>550.54.15</gsp_firmware_version>
  <gpu_virtualization_mode><virtualization_mode>Pass-Through</virtualization_mode></gpu_virtualization_mode>
  <gpu_recovery_action>Drain and Reset</gpu_recovery_action>
  <compute_mode>Exclusive_Process</compute_mode>
  <pci>
    <pci_bus_id>00000000:1B:00.0</pci_bus_id>
    <pci_gpu_link_info>
      <pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
      <link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
    </pci_gpu_link_info>
  </pci>
  <clocks_event_reasons>
    <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
    <clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>
    <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
  </clocks_event_reasons>
  <fb_memory_usage><total>81559 MiB</total><reserved>551 MiB</reserved><used>1400 MiB</used></fb_memory_usage>
  <ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Disabled</pending_ecc></ecc_mode>
  <ecc_errors>
    <volatile>
      <sram_correctable>1</sram_correctable>
      <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
      <sram_uncorrectable_secded>2</sram_uncorrectable_secded>
      <dram_correctable>3</dram_correctable>
      <dram_uncorrectable>0</dram_uncorrectable>
    </volatile>
    <aggregate><sram_threshold_exceeded>Yes</sram_threshold_exceeded></aggregate>
  </ecc_errors>
  <remapped_rows>
    <remapped_row_corr>0</remapped_row_corr>
    <remapped_row_unc>1</remapped_row_unc>
    <remapped_row_pending>Yes</remapped_row_pending>
    <remapped_row_failure>No</remapped_row_failure>
  </remapped_rows>
  <temperature><gpu_temp>41 C</gpu_temp></temperature>
  <gpu_power_readings>
    <current_power_limit>650.00 W</current_power_limit>
    <requested_power_limit>700.00 W</requested_power_limit>
    <default_power_limit>700.00 W</default_power_limit>
    <min_power_limit>200.00 W</min_power_limit>
    <max_power_limit>700.50 W</max_power_limit>
  </gpu_power_readings>
  <max_clocks>
    <graphics_clock>1980 MHz</graphics_clock><sm_clock>1980 MHz</sm_clock><mem_clock>2619 MHz</mem_clock>
  </max_clocks>
  <fabric>
    <state>Completed</state><status>Success</status>
    <health><bandwidth>Degraded</bandwidth><route_unhealthy>False</route_unhealthy></health>
  </fabric>
  <processes>
    <process_info>
      <pid>4937</pid><type>C</type>
      <process_name>/opt/env/bin/python train.py --token=hunter2</process_name>
      <used_memory>1024 MiB</used_memory>
    </process_info>
  </processes>
</gpu>
"""


def report(*cards: str, driver: str = "550.54.15", attached: int = 0) -> str:
    """What nvidia-smi prints of some cards."""
    body = f"<driver_version>{driver}</driver_version><cuda_version>12.4</cuda_version>"
    count = f"<attached_gpus>{attached or len(cards)}</attached_gpus>"
    return f"{HEAD}<nvidia_smi_log>{body}{count}{''.join(cards)}</nvidia_smi_log>"


def test_report_has_nvmls_facts_and_notes() -> None:
    """Same names, same units, and of a process only the name of its program."""
    told = read_report(report(CARD))
    (row,) = told.devices
    assert {"driver": "550.54.15", "cuda": "12.4", "count": 1} == told.values
    assert {
        "addressing": "none",
        "clock_max_graphics_mhz": 1980,
        "clock_max_memory_mhz": 2619,
        "clock_max_sm_mhz": 1980,
        "compute_mode": "exclusive_process",
        "ecc": "enabled",
        "ecc_pending": "disabled",
        "fabric_health": ["degraded_bandwidth"],
        "fabric_state": "completed",
        "fabric_status": 0,
        "gsp_firmware": "550.54.15",
        "inforom": "G520.0200.00.05",
        "memory_bytes": 81559 << 20,
        "mig": "disabled",
        "mig_instances": None,
        "mig_pending": "enabled",
        "pcie_generation_max": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "persistence": "enabled",
        "power_limit_default_mw": 700000,
        "power_limit_max_mw": 700500,
        "power_limit_min_mw": 200000,
        "power_limit_mw": 700000,
        "product": "NVIDIA H100 80GB HBM3",
        "recovery_action": "drain_and_reset",
        "remapped_failure": False,
        "remapped_pending": True,
        "sram_threshold_exceeded": True,
        "vbios": "96.00.89.00.01",
        "virtualization": "passthrough",
    } == row["facts"]
    assert {
        "bus_id": "00000000:1B:00.0",
        "ecc_corrected": 4,
        "ecc_uncorrected": 2,
        "memory_hidden_bytes": 376 << 20,
        "memory_reserved_bytes": 551 << 20,
        "memory_used_bytes": 1951 << 20,
        "pcie_generation": 1,
        "processes": [{"pid": 4937, "kind": "compute", "name": "python", "memory_bytes": 1024 << 20}],
        "remapped_correctable": 0,
        "remapped_uncorrectable": 1,
        "serial": "1650923000026",
        "temperature_c": 41,
        "throttle_reasons": ["hw_slowdown", "hw_thermal_slowdown"],
        "uuid": "GPU-1a2b3c4d-0000-4000-8000-000000000000",
    } == row["notes"]
    assert ([], {}) == (row["errors"], row["not_examined"])


def test_report_with_nothing_in_it_is_no_gpu() -> None:
    """A driver that has no card says so in XML as well."""
    assert ({"count": 0}, []) == read_report("<nvidia_smi_log></nvidia_smi_log>")


@pytest.mark.parametrize(
    "word", ["N/A", "[N/A]", "Not Supported", "Requested functionality has been deprecated"]
)
def test_value_that_a_card_does_not_have_is_null(word: str) -> None:
    """All the words for it, in the XML of ten years."""
    (row,) = read_report(
        report(CARD.replace("<persistence_mode>Enabled", f"<persistence_mode>{word}"))
    ).devices
    assert (None, []) == (row["facts"]["persistence"], row["errors"])


@pytest.mark.parametrize(
    "word", ["Unknown Error", "GPU is lost", "ERR!", "99999999999999999999 MiB", "-1 MiB", "<b/>"]
)
def test_value_that_is_no_value_is_unknown_and_an_error(word: str) -> None:
    """A fact that cannot be read is left out, and the report says which."""
    text = CARD.replace("<total>81559 MiB", f"<total>{word}").replace(
        "<persistence_mode>Enabled", "<persistence_mode>Unknown Error"
    )
    (row,) = read_report(report(text)).devices
    assert not {"persistence"} & set(row["facts"])
    assert "GPU 0: nvidia-smi says 'Unknown Error' for persistence_mode" in row["errors"]
    assert row["facts"].get("memory_bytes") is None


@pytest.mark.parametrize(
    ("word", "state"),
    [("GPU is lost", "lost"), ("[GPU requires reset]", "reset_required"), ("ERR!", None)],
)
def test_card_that_does_not_answer_has_a_state_and_no_words_for_values(word: str, state: Any) -> None:
    """As NVML's rows have it; the words are those of the error, and no product, mode or version."""
    text = CARD
    for tag in ("product_name", "persistence_mode", "vbios_version", "current_ecc", "gpu_temp"):
        text = re.sub(f"<{tag}>[^<]*", f"<{tag}>{word}", text)
    (row,) = read_report(report(text)).devices
    assert not {"product", "persistence", "vbios", "ecc"} & set(row["facts"])
    assert (state, 4) == (row["facts"].get("state"), len(row["errors"]))


def test_value_that_needs_root_is_not_examined() -> None:
    """Insufficient permissions are no fault of the node."""
    text = CARD.replace("<serial>1650923000026", "<serial>[Insufficient Permissions]")
    (row,) = read_report(report(text)).devices
    assert ([], {"GPU 0: serial": "[Insufficient Permissions]"}) == (row["errors"], row["not_examined"])


def test_note_that_cannot_be_read_makes_nothing_partial() -> None:
    """A sensor that fails is noted; the facts are all there."""
    (row,) = read_report(report(CARD.replace("41 C", "Unknown Error"))).devices
    assert ([], {"GPU 0: temperature/gpu_temp": "Unknown Error"}) == (row["errors"], row["not_examined"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no XML"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "no XML"),
        (report(CARD)[:-40], "no XML"),
        ("<html></html>", "the document is 'html'"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log>&b;</nvidia_smi_log>', "declares something"),
        (
            '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><nvidia_smi_log>&b;</nvidia_smi_log>',
            "declares",
        ),
        (HEAD + "<nvidia_smi_log>&undefined;</nvidia_smi_log>", ""),
        ("<a>" * 2000, "nested deeper"),
        ("<nvidia_smi_log>" + "<gpu/>" * 300 + "</nvidia_smi_log>", "more than 256 GPUs"),
        ("<nvidia_smi_log>" + "<x/>" * 200_001, "more than 200000 elements"),
        (" " * (9 << 20), "more than 8 MiB"),
        ("\x00\ud800", "no XML"),
    ],
    ids=lambda value: "",
)
def test_text_that_is_no_report_is_refused(text: str, why: str) -> None:
    """Garbage, cut, foreign, hostile, endless: one exception, and it says why."""
    if why:
        with pytest.raises(NotReadable, match=why):
            read_report(text)
    else:
        # An entity that only the outside document type could define stays undefined: nothing is fetched.
        assert ({"count": 0}, []) == read_report(text)


@given(
    cut=st.integers(0, len(CARD)),
    length=st.integers(0, 200),
    insert=st.one_of(st.text(max_size=40), st.sampled_from(["N/A", "<gpu>", "</gpu>", "&amp;", "9" * 40])),
)
def test_report_that_is_garbled_is_read_or_refused(cut: int, length: int, insert: str) -> None:
    """Whatever stands in it: facts that keep the law, or one exception."""
    try:
        told = read_report(report(CARD[:cut] + insert + CARD[cut + length :]))
    except NotReadable:
        return
    for row in told.devices:
        row_of("gpu", 1, Answer("ok", row["facts"], row["notes"], row["errors"]))


def test_element_keeps_a_bounded_text() -> None:
    """A megabyte in one element is not carried along."""
    assert 256 == len(parse_xml(f"<a><b>{'x' * (1 << 20)}</b></a>").text_at("b") or "")


@pytest.mark.parametrize(
    ("architecture", "gpu_mib", "cores", "mib", "profile"),
    [
        ("Ampere", 40960, 14, 4864, "1g.5gb"),
        ("Ampere", 40536, 98, 40192, "7g.40gb"),
        ("Ampere", 81920, 14, 9728, "1g.10gb"),
        ("Ampere", 81920, 14, 19968, "1g.20gb"),
        ("Ampere", 81920, 42, 40192, "3g.40gb"),
        ("Ampere", 24576, 14, 5952, "1g.6gb"),
        ("Hopper", 81559, 60, 40448, "60sm.40gb"),
        ("Hopper", 143771, 16, 16384, "16sm.18gb"),
        ("Hopper", 143771, 60, 71424, "60sm.71gb"),
    ],
)
def test_mig_profile_is_told_by_size(
    architecture: str, gpu_mib: int, cores: int, mib: int, profile: str
) -> None:
    """The names that NVIDIA's profiles have; slices only where multiprocessors tell them for sure."""
    assert profile == mig_profile(architecture, gpu_mib << 20, cores, mib << 20)


def test_mig_instance_whose_cores_are_no_number_is_unknown() -> None:
    """Python takes `²³` for digits and refuses to read them: the card is still read."""
    attributes = "<shared><multiprocessor_count>²³</multiprocessor_count></shared>"
    instance = f"<mig_device><device_attributes>{attributes}</device_attributes></mig_device>"
    card = CARD.replace("<current_mig>Disabled", "<current_mig>Enabled").replace(
        "<mig_devices>None", f"<mig_devices>{instance}"
    )
    (row,) = read_report(report(card)).devices
    assert {"unknown": 1} == row["facts"]["mig_instances"]


def test_mig_instances_that_a_report_leaves_out_are_unknown() -> None:
    """A report that was cut down tells nothing of them; one that says None tells that there are none."""
    card = CARD.replace("<current_mig>Disabled", "<current_mig>Enabled")
    (told,), (cut,) = (
        read_report(report(text)).devices
        for text in (card, card.replace("<mig_devices>None</mig_devices>", ""))
    )
    assert ({}, None) == (told["facts"]["mig_instances"], cut["facts"]["mig_instances"])


def test_mig_profile_of_an_instance_without_sizes_is_unknown() -> None:
    """Counted all the same."""
    assert "unknown" == mig_profile("Ampere", None, 14, 1)


SMI = "nvidia-smi -q -x"
MODULE = {**pci(1), **proc(1), "/dev/nvidiactl": "", "/dev/nvidia-uvm": ""}


def test_nvidia_smi_stands_in_for_a_library_that_does_not_load(make_node: MakeNode) -> None:
    """The same facts from elsewhere: ok, and the notes say where they come from and why."""
    answer = gpu.read(make_node(MODULE, commands={SMI: {"stdout": report(CARD)}}))
    facts = answer.facts
    assert ("ok", [], "nvidia-smi") == (answer.status, answer.errors, answer.notes["source"])
    assert ("550.54.15", "12.4", 1, "as driver") == tuple(
        facts[key] for key in ("driver", "cuda", "count", "module")
    )
    assert ("as driver", 81559 << 20) == (facts["each"]["gsp_firmware"], facts["each"]["memory_bytes"])
    assert "libnvidia-ml.so.1" in answer.notes["not_examined"]["NVML"]
    assert "nvidia-smi" == facts["source"]
    assert "source" not in gpu.read(make_node(MODULE, nvml=lines(1))).facts


def test_nvidia_smi_stands_in_for_a_library_without_the_function(make_node: MakeNode) -> None:
    """A library that loads and lacks nvmlInit_v2 cannot be asked either."""
    said = lines(0, init=13, values={}, errors=["NVML: nvmlInit: Function Not Found (NVML 13)"])
    answer = gpu.read(make_node(MODULE, nvml=said, commands={SMI: {"stdout": report(CARD)}}))
    assert ("ok", 1) == (answer.status, answer.facts["count"])
    assert "NVML: nvmlInit: Function Not Found (NVML 13)" == answer.notes["not_examined"]["NVML"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ({"stdout": "garbage"}, "no XML"),
        ({"hang": True}, "no answer within"),
        ({"rc": 9, "stdout": "NVIDIA-SMI has failed because it couldn't communicate\nmore"}, "exit status 9"),
        (None, "not found"),
    ],
    ids=["garbage", "hanging", "failing", "absent"],
)
def test_nvidia_smi_that_says_nothing_leaves_the_error_of_the_library(
    make_node: MakeNode, command: Any, why: str
) -> None:
    """The library is what is missing: its words are the error, those of nvidia-smi a note."""
    answer = gpu.read(make_node(MODULE, commands={SMI: command} if command else {}))
    assert "error" == answer.status
    assert "the driver's library does not load" in answer.errors[0]
    assert why in answer.notes["not_examined"]["nvidia-smi"]


def test_nvidia_smi_is_not_asked_where_no_gpu_is(make_node: MakeNode) -> None:
    """It would cost every node without GPUs a process."""
    answer = gpu.read(make_node({}, commands={SMI: {"stdout": report(CARD)}}))
    assert ("absent", {}) == answer[:2]


def test_nvidia_smi_is_asked_on_request(make_node: MakeNode) -> None:
    """The option takes its word before NVML's."""
    node = make_node(MODULE, nvml=lines(1), commands={SMI: {"stdout": report(CARD, driver="550.54.99")}})
    node.options = {"nvidia_smi": True}
    answer = gpu.read(node)
    assert ("550.54.99", "nvidia-smi") == (answer.facts["driver"], answer.notes["source"])
    assert "NVML" not in answer.notes.get("not_examined", {})


LINKS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1a2b3c4d)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
\t Link 2: 26.562 GB/s
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1a2b3c4e)
NVML: Unable to retrieve NVLink information as all links are inactive
GPU 2: NVIDIA A10
"""


def test_link_status_has_nvmls_facts() -> None:
    """Speed in MB/s; all down is none up of an unknown number; a card without NVLink has null."""
    told = read_link_status(LINKS + "noise\n\t Link 99999: 3 GB/s\n")
    assert LinkStatus({"nvlinks": 3, "nvlinks_up": 2, "nvlink_mbps": 26562}, [1]) == told[0]
    assert LinkStatus({"nvlinks_up": 0, "nvlink_mbps": None}, []) == told[1]
    assert LinkStatus({"nvlinks": None, "nvlinks_up": None, "nvlink_mbps": None}, []) == told[2]


@pytest.mark.parametrize("text", ["", "Link 0: 25 GB/s", "NVML: all links are inactive", "GPU x:\n\x00"])
def test_link_status_without_a_gpu_is_nothing(text: str) -> None:
    """Lines that belong to no card are noise."""
    assert {} == read_link_status(text)


def test_nvlinks_come_from_nvidia_smi_as_well(make_node: MakeNode) -> None:
    """The link that is down is named; where the second program fails, links are unknown."""
    said = {SMI: {"stdout": report(CARD)}}
    links = {"nvidia-smi nvlink --status": {"stdout": LINKS}}
    answer = gpu.read(make_node(MODULE, commands={**said, **links}))
    each = answer.facts["each"]
    assert (3, 2, 26562) == (each["nvlinks"], each["nvlinks_up"], each["nvlink_mbps"])
    assert [1] == answer.notes["devices"]["0"]["nvlinks_down"]
    without = gpu.read(make_node(MODULE, commands=said))
    assert ("ok", False) == (without.status, "nvlinks" in without.facts["each"])


def test_report_that_lacks_cards_is_partial(make_node: MakeNode) -> None:
    """Four attached and one described: the count is what nvidia-smi says, and the rest is missed."""
    answer = gpu.read(make_node(MODULE, commands={SMI: {"stdout": report(CARD, attached=4)}}))
    assert ("partial", 4) == (answer.status, answer.facts["count"])
    assert ["nvidia-smi describes 1 of 4 GPUs"] == answer.errors


def test_nvidia_smi_is_a_real_program_on_the_path(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Found on PATH, run without a shell, its processes described as this machine knows them."""
    machine = Machine(tmp_path_factory.mktemp("smi"))
    card = CARD.replace("<pid>4937", f"<pid>{os.getpid()}")
    program = machine.folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = '-q -x' ] && cat <<'END'\n{report(card, card)}\nEND\n")
    program.chmod(0o755)
    environ = {"PATH": f"{machine.folder}:/usr/bin:/bin"}
    answer = machine.read(environ=environ, options={"nvidia_smi": True})
    assert ("ok", 2, "nvidia-smi") == (answer.status, answer.facts["count"], answer.notes["source"])
    (process,) = answer.notes["devices"]["1"]["processes"]
    assert (os.getpid(), True) == (process["pid"], process["own"])
    assert process["user"]
