"""The GPUs as the driver tells of them (NVML): which they are, who is on them, how hot and how fast they run.

Nothing here is needed for a verdict on numbers. Where pynvml is not importable, or the driver not there,
`Cards.open` says so and the figures are left out.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

# nvmlClocksThrottleReason*, nvml.h. Idle and the user's own clock settings are no fault.
THROTTLE_REASONS: Tuple[Tuple[int, str], ...] = (
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake"),
)
_CLOCK_SM = 1
_TEMPERATURE_GPU = 0
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE = 0
_PROCESSES_NAMED = 4
# A driver that is loaded for this call alone takes some two seconds for each of eight cards.
_OPENING_S = 20.0
# How the reason begins of a driver that hangs.
NO_ANSWER = "NVML gave no answer"


class Card(NamedTuple):
    """One GPU.

    Attributes:
        handle: NVML's.
        uuid: `GPU-1234...`.
        bus_id: `00000000:19:00.0`.
        model: `NVIDIA H200`.
    """

    handle: Any
    uuid: str
    bus_id: str
    model: str


class Reading(NamedTuple):
    """One moment of a card; None where it does not tell."""

    sm_clock_mhz: Optional[int]
    power_mw: Optional[int]
    temperature_c: Optional[int]
    throttle: Optional[int]


class Cards:
    """NVML, opened; every call may fail on its own and then answers None."""

    def __init__(self, pynvml: Any) -> None:
        self._pynvml = pynvml
        self.cards: List[Card] = []
        for index in range(self._ask("nvmlDeviceGetCount") or 0):
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                bus = self._ask("nvmlDeviceGetPciInfo", handle)
                self.cards.append(
                    Card(
                        handle,
                        _text(self._ask("nvmlDeviceGetUUID", handle)),
                        _text(getattr(bus, "busId", "")),
                        _text(self._ask("nvmlDeviceGetName", handle)),
                    )
                )
        self.driver = _text(self._ask("nvmlSystemGetDriverVersion"))

    @classmethod
    def open(cls, seconds: float = _OPENING_S) -> Tuple[Optional[Cards], str]:
        """NVML, or why there is none; a driver that hangs is waited for no longer than `seconds`."""
        told: List[Tuple[Optional[Cards], str]] = []
        asking = threading.Thread(target=lambda: told.append(cls._opened()), daemon=True)
        asking.start()
        asking.join(seconds)
        return told[0] if told else (None, f"{NO_ANSWER} within {seconds:.0f} s")

    @classmethod
    def _opened(cls) -> Tuple[Optional[Cards], str]:
        try:
            import pynvml
        except ImportError:
            return None, "pynvml is not importable"
        try:
            pynvml.nvmlInit()
        except Exception as error:  # NVMLError and its kin are classes that pynvml makes up at run time
            return None, f"NVML: {error}"
        return cls(pynvml), ""

    def close(self) -> None:
        """Let the driver go."""
        self._ask("nvmlShutdown")

    def visible(self, environ: Mapping[str, str]) -> Optional[List[Card]]:
        """The cards in the order in which CUDA counts them under CUDA_DEVICE_ORDER=PCI_BUS_ID.

        None where the variables name what is none of them, such as a MIG instance, or have unlike cards
        counted in another order.
        """
        order = environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        if order != "PCI_BUS_ID" and len({card.model for card in self.cards}) > 1:
            return None
        ordered = sorted(self.cards, key=lambda card: card.bus_id)
        named = environ.get("CUDA_VISIBLE_DEVICES")
        if named is None:
            return ordered
        found: List[Card] = []
        for entry in (part.strip() for part in named.split(",")):
            if entry.isdigit() and entry.isascii() and int(entry) < len(ordered):
                found.append(ordered[int(entry)])
                continue
            matching = [card for card in ordered if entry.startswith("GPU-") and card.uuid.startswith(entry)]
            if len(matching) == 1:
                found.append(matching[0])
            elif entry.startswith("MIG-"):
                return None
            else:
                break  # CUDA stops at the first entry that it does not know
        return found

    def busy(self, card: Card) -> str:
        """The processes of others that compute on a card, in words; empty where there are none.

        MPS's server is nobody's work, and what this process's own ancestors run is the user's own.
        """
        running = self._ask("nvmlDeviceGetComputeRunningProcesses_v2", card.handle)
        if running is None:
            running = self._ask("nvmlDeviceGetComputeRunningProcesses", card.handle) or ()
        named = []
        own = _ancestors()
        for process in running:
            pid = int(process.pid)
            name = _name_of(pid)
            if pid in own or name.startswith("nvidia-cuda-mps"):
                continue
            memory = process.usedGpuMemory
            size = f", {memory >> 20} MiB" if isinstance(memory, int) else ""
            named.append(f"process {pid} ({name or 'of another namespace'}{size})")
        more = len(named) - _PROCESSES_NAMED
        return ", ".join(named[:_PROCESSES_NAMED]) + (f" and {more} more" if more > 0 else "")

    def read(self, card: Card) -> Reading:
        """This moment."""
        return Reading(
            self._integer("nvmlDeviceGetClockInfo", card.handle, _CLOCK_SM),
            self._integer("nvmlDeviceGetPowerUsage", card.handle),
            self._integer("nvmlDeviceGetTemperature", card.handle, _TEMPERATURE_GPU),
            self._integer("nvmlDeviceGetCurrentClocksThrottleReasons", card.handle),
        )

    def ecc(self, card: Card) -> Dict[str, Optional[int]]:
        """Errors since the driver was loaded; None where the card has no ECC."""
        name = "nvmlDeviceGetTotalEccErrors"
        return {
            "corrected": self._integer(name, card.handle, _CORRECTED, _VOLATILE),
            "uncorrected": self._integer(name, card.handle, _UNCORRECTED, _VOLATILE),
        }

    def _integer(self, function: str, *arguments: Any) -> Optional[int]:
        value = self._ask(function, *arguments)
        return None if value is None else int(value)

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._pynvml, function)(*arguments)
        except Exception:  # an older driver, a card without the sensor, no permission
            return None


def throttle_names(mask: int) -> List[str]:
    """The reasons that a mask holds."""
    return [name for bit, name in THROTTLE_REASONS if mask & bit]


def _ancestors() -> List[int]:
    chain = [os.getpid()]
    while chain[-1] > 1 and len(chain) < 100:
        try:
            with open(f"/proc/{chain[-1]}/stat", "rb") as file:
                chain.append(int(file.read().rpartition(b")")[2].split()[1]))
        except (OSError, ValueError, IndexError):
            break
    return chain


def _name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
