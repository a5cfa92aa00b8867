"""One recording on every GPU of the catalogue: step, cost, energy, and the price that breaks even.

The step on another GPU is a what-if of low confidence; its interval goes into every figure here.
Nothing is known of prices but what the user gave. A power cap slows matrix products: their clock
goes down at most as much as the power, at least as its cube root; the interval spans both.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.answers.output.result import Result
from htk.base.core.chart import Scatter
from htk.base.core.label import Label
from htk.base.core.ranges import ValueRange
from htk.base.errors import UsageError
from htk.base.schema import FLOAT64, INT64, TEXT, table
from htk.physics.hardware import Gpu, gpu, load_catalogue
from htk.verdicts.economics.price_list import PriceList
from htk.whatif.answer import Answer
from htk.whatif.api import WhatIf
from htk.whatif.cost import joules_per_token, per_million_tokens
from htk.whatif.step_model import StepModel

_DRAWS = 4096
_SEED = 20_210_607
_NORMAL_90 = 1.645
_MATRIX = ("gemm", "convolution", "attention")
_CLOCK = (1.0, 1 / 3)  # exponents of a power cap: worst and best clock

RETURNS = table(
    gpu=(TEXT, "Of the catalogue."),
    step_time_ns=(INT64, "Predicted; of the recorded GPU as measured."),
    step_time_ns_lo90=(INT64, "Nine of ten such predictions come true above this …"),
    step_time_ns_hi90=(INT64, "… and below this."),
    tokens_per_s_per_gpu=(FLOAT64, "Null where shapes do not tell the tokens."),
    price_per_hour=(FLOAT64, "Of a GPU-hour, as given; null: none."),
    cost_per_million_tokens=(FLOAT64, "At that price; null: no price, or no tokens."),
    cost_per_million_tokens_lo90=(FLOAT64, "Of step and price together: nine of ten above …"),
    cost_per_million_tokens_hi90=(FLOAT64, "… and below this."),
    p_cheapest=(FLOAT64, "Probability that no other priced GPU is cheaper per token."),
    break_even_price=(FLOAT64, "Of a GPU-hour, at which it costs as much as the reference."),
    break_even_price_lo90=(FLOAT64, "Nine of ten above this …"),
    break_even_price_hi90=(FLOAT64, "… and below this."),
    energy_j_per_token=(FLOAT64, "At the power given, else the GPU's limit: an upper bound."),
    p_oom=(FLOAT64, "Probability that the step does not fit; null: not known."),
    verdict=(TEXT, "trusted, indicative or refused, and why."),
)
LABEL = Label(
    "prices",
    "Which GPU would do this for least money, and what may it cost?",
    Scatter("tokens_per_s_per_gpu", "cost_per_million_tokens", "gpu"),
)


@dataclass(frozen=True)
class _Offer:
    """One GPU: its step, as the logarithm's middle and standard deviation, and its price."""

    name: str
    answer: Answer
    step_ns: float
    sigma: float
    price: ValueRange | None
    watts: float | None

    @property
    def price_sigma(self) -> float:
        """The standard deviation of the price's logarithm: its range is taken for nine tenths of a
        normal distribution."""
        if self.price is None or self.price.is_exact:
            return 0.0
        return math.log(self.price.high / self.price.low) / 2 / _NORMAL_90

    @property
    def tokens_per_s(self) -> float | None:
        if self.answer.tokens_per_s is None or self.answer.step_ns is None:
            return None
        return self.answer.tokens_per_s * self.answer.step_ns / self.step_ns

    @property
    def cost_of_step(self) -> float | None:
        """The price of one GPU times the step's ns, which costs are compared by."""
        return None if self.price is None else self.price.middle * self.step_ns


def price_frontier(
    asked: WhatIf,
    prices: PriceList,
    *,
    names: Sequence[str] = (),
    reference: str | None = None,
    power_cap: float | None = None,
) -> Result:
    """Return a row for each GPU: cheapest per token first, then those without a price by speed.

    Args:
        asked: the recording.
        prices: what the user knows of prices and power.
        names: GPUs of the catalogue; none: all of them.
        reference: GPU whose cost the others break even with; None: the recorded one where it has a
            price, else the cheapest.
        power_cap: share of each GPU's power limit; None: no cap.
    """
    if power_cap is not None and not 0.2 <= power_cap <= 1:
        raise UsageError("a power cap is a share of the GPU's limit, from 0.2 to 1")
    recorded = asked.stage.model.facts.device
    if asked.stage.refused:
        raise UsageError(f"the recording does not replay: {asked.stage.gate.verdict}")
    if recorded is None:
        raise UsageError("the catalogue does not hold the recorded GPU: give it with --gpus FILE")
    number_format = asked.stage.job.precision
    able = [g.name for g in load_catalogue().values() if _computes_in(g, number_format)]
    wanted = [gpu(name).name for name in names] or able
    offers = [_build_offer(asked, name, prices, power_cap) for name in dict.fromkeys(wanted)]
    offers.sort(key=lambda o: (o.cost_of_step is None, o.cost_of_step or o.step_ns))
    base = _choose_reference(offers, reference, recorded.name)
    likely = _estimate_cheapest(offers)
    rows = [_build_offer_row(offer, base, likely.get(offer.name)) for offer in offers]
    facts: dict[str, object] = {
        "recorded_gpu": recorded.name,
        "currency": prices.currency,
        "reference": None if base is None else base.name,
        "power_cap": power_cap,
        "gpus": asked.stage.rates.gpus,
    }
    return Result(LABEL, pa.Table.from_pylist(rows, schema=RETURNS), facts)


def _computes_in(device: Gpu, number_format: str | None) -> bool:
    """Return whether a GPU has matrix products in the recorded format, where it is known."""
    return number_format in (None, "fp32") or device.has(number_format)


def _build_offer(asked: WhatIf, name: str, prices: PriceList, cap: float | None) -> _Offer:
    terms = prices.find_terms(name)
    changed = asked.change("hardware", name)
    limit = gpu(name).tdp_w
    watts = terms.watts or (None if limit is None else limit * (cap or 1.0))
    if cap is None or cap == 1:
        (answer,) = changed.answers()
        return _Offer(
            name, answer, float(answer.step_ns or 0), _compute_sigma(answer), terms.per_hour, watts
        )
    pattern = _build_product_pattern(asked.stage.model)
    both = [
        changed.change("replace", f"{pattern}={cap**exponent:.4f}x").answers()[0]
        if pattern
        else changed.answers()[0]
        for exponent in _CLOCK
    ]
    slow, fast = (float(answer.step_ns or 0) for answer in both)
    if not slow or not fast:
        return _Offer(name, both[0], 0.0, 0.0, terms.per_hour, watts)
    apart = abs(math.log(slow / fast)) / 2 / _NORMAL_90
    sigma = math.hypot(_compute_sigma(both[0]), apart)
    return _Offer(name, both[0], math.sqrt(slow * fast), sigma, terms.per_hour, watts)


def _compute_sigma(answer: Answer) -> float:
    """Return the standard deviation that its 90 % interval is as wide as."""
    _, _, low, high = answer.intervals
    return 0.0 if not low or not high else math.log(high / low) / 2 / _NORMAL_90


def _build_product_pattern(model: StepModel) -> str:
    """Return a pattern of the names of matrix products."""
    acts = model.graph.activities
    matrix = model.facts.family.isin(*_MATRIX)
    names = sorted({acts.names[k] for k in np.unique(acts.name[matrix]) if k >= 0})
    return f"^(?:{'|'.join(map(re.escape, names))})$" if names else ""


def _choose_reference(offers: Sequence[_Offer], wanted: str | None, recorded: str) -> _Offer | None:
    priced = {o.name: o for o in offers if o.cost_of_step}
    if wanted is not None:
        name = gpu(wanted).name
        if name not in priced:
            raise UsageError(f"--reference {wanted}: give its price too, e.g. --price {name}=2")
        return priced[name]
    return priced.get(recorded) or next(iter(priced.values()), None)


def _estimate_cheapest(offers: Sequence[_Offer]) -> dict[str, float]:
    """Return how likely each priced GPU is the cheapest, its errors independent of the others'."""
    priced = [o for o in offers if o.cost_of_step]
    if not priced:
        return {}
    random = np.random.default_rng(_SEED)
    costs = np.array([math.log(o.cost_of_step or 1.0) for o in priced])
    sigmas = np.array([math.hypot(o.sigma, o.price_sigma) for o in priced])
    drawn = costs + sigmas * random.standard_normal((_DRAWS, len(priced)))
    wins = np.bincount(drawn.argmin(axis=1), minlength=len(priced)) / _DRAWS
    return {o.name: float(share) for o, share in zip(priced, wins, strict=True)}


def _build_offer_row(offer: _Offer, base: _Offer | None, likely: float | None) -> dict[str, object]:
    answer, each = offer.answer, offer.tokens_per_s
    row: dict[str, object] = {"gpu": offer.name, "verdict": answer.verdict, "p_cheapest": likely}
    row["price_per_hour"] = None if offer.price is None else offer.price.middle
    if not offer.step_ns:
        return row
    wide = math.exp(_NORMAL_90 * offer.sigma)
    row |= {
        "step_time_ns": round(offer.step_ns),
        "step_time_ns_lo90": round(offer.step_ns / wide),
        "step_time_ns_hi90": round(offer.step_ns * wide),
        "tokens_per_s_per_gpu": None if each is None else each / answer.gpus,
        "p_oom": answer.p_oom,
    }
    if each is not None and offer.price is not None:
        cost = per_million_tokens(offer.price.middle, answer.gpus, each)
        far = math.exp(_NORMAL_90 * math.hypot(offer.sigma, offer.price_sigma))
        row |= {
            "cost_per_million_tokens": cost,
            "cost_per_million_tokens_lo90": cost / far,
            "cost_per_million_tokens_hi90": cost * far,
        }
    if each is not None and offer.watts is not None:
        row["energy_j_per_token"] = joules_per_token(offer.watts, answer.gpus, each)
    if base is not None and base.cost_of_step:
        even = base.cost_of_step / offer.step_ns
        same = offer.name == base.name
        sigma = base.price_sigma if same else math.hypot(offer.sigma, base.sigma, base.price_sigma)
        far = math.exp(_NORMAL_90 * sigma)
        row |= {
            "break_even_price": even,
            "break_even_price_lo90": even / far,
            "break_even_price_hi90": even * far,
        }
    return row
