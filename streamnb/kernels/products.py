"""Products of probabilities by class: a logarithm a row instead of one a factor.

A row of `products` has two numbers for each class: a product within range, and the sum of the
logarithms that were taken on the way.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels._jit import inner
from streamnb.kernels.layout import F64Grid, Int
from streamnb.kernels.posterior import fold

_SMALL = 1e-100  # a smaller factor could take a product below what a float64 holds


@inner
def begin(products: F64Grid) -> None:
    """Set each class's product to 1."""
    for c in range(len(products)):
        products[c, 0] = 1.0
        products[c, 1] = 0.0


@inner
def multiply(products: F64Grid, c: Int, factor: float) -> None:
    """Multiply a class's product by a probability; zero makes its logarithm -inf for good."""
    if factor < _SMALL:
        products[c, 1] += np.log(factor)
    else:
        products[c, 0], products[c, 1] = fold(products[c, 0], factor, products[c, 1])


@inner
def add_logs(products: F64Grid, out: F64Grid, i: Int) -> None:
    """Add each class's log-product to row `i`."""
    for c in range(len(products)):
        out[i, c] += products[c, 1] + np.log(products[c, 0])
