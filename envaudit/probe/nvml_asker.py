"""Calls of pynvml whose refusals become values, notes or error texts."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

# nvml.h, nvmlReturn_t.
INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 2, 3, 4, 6
FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 13, 15, 16
# A guest's ECC is the host's; a structure that the driver does not know; a function that went away.
_VGPU_ECC_NOT_SUPPORTED, _ARGUMENT_VERSION_MISMATCH, _DEPRECATED = 22, 25, 26
_UNSIGNED_INT = 1  # nvmlValueType_t
_HEALTHY_REFUSALS = (
    NOT_SUPPORTED,
    FUNCTION_NOT_FOUND,
    _VGPU_ECC_NOT_SUPPORTED,
    _ARGUMENT_VERSION_MISMATCH,
    _DEPRECATED,
)


class Asker:
    """Asks NVML about one subject.

    A call that this driver, GPU or pynvml does not have is no fault: its value is None. Any other
    refusal is an error, and the value is left out, because it is unknown.

    Attributes:
        pynvml: the module that is asked.
        subject: what is asked about, as error texts name it: `GPU 3`.
        values: the answers that were kept.
        errors: the refusals.
        not_examined: the refusals that are no fault: what needs root, and what is only noted.
        only_noted: whether what is asked now is only noted; a refusal is then noted as well.
    """

    def __init__(self, pynvml: Any, subject: str) -> None:
        self.pynvml = pynvml
        self.subject = subject
        self.values: Dict[str, Any] = {}
        self.errors: List[str] = []
        self.not_examined: Dict[str, str] = {}
        self.only_noted = False

    def put(self, keys: Any, function: str, *arguments: Any) -> None:
        """Ask and keep the answer under a key, or a list of answers under several."""
        names = (keys,) if isinstance(keys, str) else keys
        known, answer = self.ask(function, *arguments)
        if known and answer is None:
            self.values.update(dict.fromkeys(names))
        elif known:
            self.values.update(zip(names, (answer,) if isinstance(keys, str) else answer))

    def put_named(self, keys: Any, names: Dict[int, str], function: str, *arguments: Any) -> None:
        """As `put`, of numbers that stand for something; one without a name is kept as a text."""
        self.put(keys, function, *arguments)
        for key in (keys,) if isinstance(keys, str) else keys:
            number = self.values.get(key)
            if number is not None:
                self.values[key] = names.get(number, str(number))

    def ask(self, function: str, *arguments: Any, quiet: Tuple[int, ...] = ()) -> Tuple[bool, Any]:
        """(True, answer), (True, None) where it is not supported, (False, None) where it is unknown.

        `quiet` are further return codes that mean "not here".
        """
        try:
            call: Callable[..., Any] = getattr(self.pynvml, function)
        except AttributeError:
            return True, None  # an older pynvml
        try:
            answer = call(*arguments)
        except self.pynvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code in _HEALTHY_REFUSALS or code in quiet:
                return True, None
            if code == NO_PERMISSION or self.only_noted:
                self.not_examined[f"{self.subject}: {function}"] = str(error)
                return False, None
            self.errors.append(f"{self.subject}: {function}: {error} (NVML {code})")
            return False, None
        except (TypeError, ValueError) as error:  # a pynvml with other parameters, a text that is no UTF-8
            self.errors.append(f"{self.subject}: {function}: {error}")
            return False, None
        return True, answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer

    def fields(self, handle: Any, *numbers: int) -> Dict[int, int]:
        """A GPU's field values by their numbers (nvml.h, NVML_FI_*), asked in one call.

        Those that the driver or the GPU does not know are left out.
        """
        _, answers = self.ask("nvmlDeviceGetFieldValues", handle, list(numbers))
        return {answer.fieldId: _number(answer) for answer in answers or () if answer.nvmlReturn == 0}


def _number(field: Any) -> int:
    """The integer in an nvmlFieldValue_t; NVML_VALUE_TYPE_UNSIGNED_INT fills four bytes of eight."""
    return int(field.value.uiVal if field.valueType == _UNSIGNED_INT else field.value.ullVal)
