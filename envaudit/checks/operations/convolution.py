"""Convolutions whose right answer is a gather, by the operands of `checks/operands.py`.

Over the input channels the image is [X1 | X1] and the weights [W1 ; E − W1], the channels permuted alike
within each group. E holds one s_c = ±1 for each output channel c, at channel p_c and kernel place
(u_c, v_c), so

    Y[n, c, y, x] = s_c · X1[n, p_c, y·stride + u_c·dilation − padding, x·stride + v_c·dilation − padding]

and 0 where that lies outside the image. A result sums Cin/groups · kh · kw products: the law of
`tolerance.py` holds with that K.

No variant has stride 1, dilation 1 and a kernel above 1×1: there cuDNN may take Winograd or FFT, whose own
factors (1/6, 1/24 in F(4×4, 3×3); roots of unity) are not exact.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple

from envaudit.checks.counterhash import derive, integers, permutation, words
from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operands import signed_powers
from envaudit.checks.operations import Case, NotRunnable, Prepared
from envaudit.checks.precision import full_precision, need_units, need_wide_sums
from envaudit.checks.tolerance import PRECISIONS, largest_k


class Convolution(NamedTuple):
    """One convolution; channel counts are per layer, divisible by 2 · groups."""

    images: int
    channels_in: int
    channels_out: int
    side: int
    kernel: Tuple[int, int]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    channels_last: bool = False

    @property
    def products(self) -> int:
        """How many products one result sums."""
        return self.channels_in // self.groups * self.kernel[0] * self.kernel[1]

    def side_out(self, axis: int) -> int:
        """Height (axis 0) or width (axis 1) of the result."""
        return (self.side + 2 * self.padding - self.dilation * (self.kernel[axis] - 1) - 1) // self.stride + 1


_VARIANTS: Dict[str, Dict[str, Any]] = {
    "stride": {"kernel": (3, 3), "stride": 2, "padding": 1},
    "dilation": {"kernel": (3, 3), "dilation": 2, "padding": 2},
    "pointwise": {"kernel": (1, 1), "channels_last": True},
    "groups": {"kernel": (5, 3), "stride": 2, "padding": 2, "groups": 4},
}
_DTYPES = ("fp32", "bf16", "fp16")


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """Every variant in fp32, bf16 and fp16."""
    sizes = (2, 32, 32, 20) if facts.kind == CPU else (16, 128, 128, 56)
    return [
        convolution_case(f"convolution/{dtype}/{name}", dtype, Convolution(*sizes, **variant), facts)
        for dtype in _DTYPES
        for name, variant in _VARIANTS.items()
    ]


def convolution_case(name: str, dtype: str, convolution: Convolution, facts: DeviceFacts) -> Case:
    """A case of one convolution."""

    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        need_units(dtype, facts)
        need_wide_sums(dtype, facts)
        if facts.rocm and convolution.kernel != (1, 1):
            raise NotRunnable("not exact under ROCm: MIOpen takes Winograd for strides, too")
        return _prepare(convolution, dtype, device, seed, scaled)

    shape = (
        f"{convolution.images}x{convolution.channels_in}x{convolution.side}x{convolution.side}"
        f" to {convolution.channels_out}, kernel {convolution.kernel[0]}x{convolution.kernel[1]}"
    )
    return Case(name, dtype, shape, True, prepare)


def _prepare(convolution: Convolution, dtype: str, device: Any, seed: int, scaled: bool) -> Prepared:
    import torch

    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    data = _Data(convolution, dtype, seed, scaled, kind)
    image, weights = data.image(device), data.weights(device)
    if convolution.channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
        weights = weights.contiguous(memory_format=torch.channels_last)

    def run() -> Tuple[Any, ...]:
        with full_precision():
            return (
                torch.nn.functional.conv2d(
                    image,
                    weights,
                    stride=convolution.stride,
                    padding=convolution.padding,
                    dilation=convolution.dilation,
                    groups=convolution.groups,
                ),
            )

    results = (
        convolution.images * convolution.channels_out * convolution.side_out(0) * convolution.side_out(1)
    )
    return Prepared(run, lambda where: (data.result(where),), flops=2 * results * convolution.products)


class _Data:
    """Image, weights and result of one convolution, from the counter hash."""

    def __init__(self, convolution: Convolution, dtype: str, seed: int, scaled: bool, kind: Any) -> None:
        self.shape = convolution
        self.kind = kind
        self.seed = seed
        self.k = largest_k(dtype, convolution.products)
        self.exponents = PRECISIONS[dtype].exponents if scaled else None
        self.group_in = convolution.channels_in // convolution.groups
        self.half = self.group_in // 2

    def image(self, device: Any) -> Any:
        import torch

        half = self._half_image(device)
        both = torch.cat([half, half], dim=2)[:, :, self._order(device)]
        shape = self.shape
        whole = both.reshape(shape.images, shape.channels_in, shape.side, shape.side)
        # + 0: every zero of the data is +0, as its integer is, whatever sign a scale has.
        return whole * self._image_scale(device) + 0

    def weights(self, device: Any) -> Any:
        import torch

        shape = self.shape
        count = shape.channels_out
        size = (count, self.half, *shape.kernel)
        upper = integers(size, self.k, derive(self.seed, "weights"), device, self.kind)
        channel, row, column, sign = self._selection(device)
        at = (torch.arange(count, device=device), channel, row, column)
        upper[at] = upper[at].abs() * sign
        lower = -upper
        lower[at] += sign
        both = torch.cat([upper, lower], dim=1)[:, self._order(device)]
        return both * self._channel_scale(device).reshape(-1, 1, 1, 1) + 0

    def result(self, device: Any) -> Any:
        import torch

        shape = self.shape
        padded = torch.nn.functional.pad(self._half_image(device), (shape.padding,) * 4)
        channel, row, column, sign = (part.tolist() for part in self._selection("cpu"))
        parts = []
        for index in range(shape.channels_out):
            group = index // (shape.channels_out // shape.groups)
            top, left = row[index] * shape.dilation, column[index] * shape.dilation
            plane = padded[:, group, channel[index], top:, left:]
            plane = plane[:, :: shape.stride, :: shape.stride][:, : shape.side_out(0), : shape.side_out(1)]
            parts.append(plane * sign[index])
        whole = torch.stack(parts, dim=1) * self._channel_scale(device).reshape(1, -1, 1, 1)
        # + 0 makes −0 the +0 that a sum of products ends with.
        return whole * self._image_scale(device) + 0

    def _half_image(self, device: Any) -> Any:
        shape = self.shape
        size = (shape.images, shape.groups, self.half, shape.side, shape.side)
        return integers(size, self.k, derive(self.seed, "image"), device, self.kind)

    def _order(self, device: Any) -> Any:
        return permutation(self.group_in, derive(self.seed, "channels"), device)

    def _selection(self, device: Any) -> Tuple[Any, Any, Any, Any]:
        import torch

        height, width = self.shape.kernel
        word = words(self.shape.channels_out, derive(self.seed, "selection"), device)
        place = torch.remainder(word >> 1, self.half * height * width)
        rest = torch.div(place, width, rounding_mode="floor")
        channel = torch.div(rest, height, rounding_mode="floor")
        sign = ((word & 1) * 2 - 1).to(self.kind)
        return channel, torch.remainder(rest, height), torch.remainder(place, width), sign

    def _image_scale(self, device: Any) -> Any:
        scale = signed_powers(
            self.shape.images, self.exponents, derive(self.seed, "images"), device, self.kind
        )
        return scale.reshape(-1, 1, 1, 1)

    def _channel_scale(self, device: Any) -> Any:
        count = self.shape.channels_out
        return signed_powers(count, self.exponents, derive(self.seed, "outputs"), device, self.kind)
