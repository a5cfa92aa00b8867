"""What a plan of a server says it was held against."""

from htk.physics.hardware import gpu
from htk.physics.network import find_fabric
from htk.physics.presets import decoder
from htk.planning.serving.certainty import FIRST, estimate_serving_certainty, list_server_traits
from htk.planning.serving.server import Server, Speculation

EIGHT = decoder("llama3-8b")


def test_traits_are_those_of_the_server() -> None:
    plain = Server(decoder("llama2-7b"), gpu("a100-80gb"))
    assert list(list_server_traits(plain)) == ["ampere GPUs"]
    assert list(list_server_traits(plain, first=True)) == ["ampere GPUs", FIRST]
    much = Server(
        decoder("deepseek-v3"),
        gpu("b200"),
        16,
        2,
        weights="nvfp4",
        speculation=Speculation(1, 0.8),
    )
    assert list(list_server_traits(much)) == [
        "blackwell GPUs", "products in fp4", "tensor parallelism",
        "tensor parallelism between nodes", "pipelines", "mixtures of experts",
        "latent attention", "speculative decoding",
    ]  # fmt: skip
    quantised = [
        next(
            t
            for t in list_server_traits(Server(EIGHT, gpu("h100"), weights=w))
            if t not in ("hopper GPUs",)
        )
        for w in ("fp8", "int8", "int4")
    ]
    assert quantised == ["products in fp8", "weights of 8 bits", "weights of 4 bits"]
    unpacked = Server(EIGHT, gpu("a100-80gb"), weights="fp8")  # no products in FP8 there
    assert "weights of 8 bits" in list_server_traits(unpacked)


def test_what_was_never_checked_is_less_sure() -> None:
    known = estimate_serving_certainty(Server(EIGHT, gpu("h100")))
    new = estimate_serving_certainty(Server(EIGHT, gpu("gaudi2")))
    assert not known.unchecked and new.unchecked == ("gaudi2 GPUs",)
    assert known.sigma < new.sigma and known.factor(90) < new.factor(90)
    drafted = estimate_serving_certainty(
        Server(EIGHT, gpu("h100"), speculation=Speculation(3, 0.7))
    )
    assert drafted.sigma > known.sigma and drafted.unchecked == ("speculative decoding",)


def test_a_network_of_ones_own_is_unchecked_where_it_is_used() -> None:
    own = find_fabric("roce-100")
    alone, two = (Server(EIGHT, gpu("h100"), t, fabric=own) for t in (1, 2))
    assert not estimate_serving_certainty(alone).unchecked
    assert estimate_serving_certainty(two).unchecked == ("a network other than the catalogue's",)
