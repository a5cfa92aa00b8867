"""A model's sizes from the config.json that Hugging Face keeps beside its weights.

The file is untrusted: it is read up to a bound, parsed as JSON, and only whole numbers within
bounds are taken from it. A model that a `Decoder` cannot say is refused by name.
"""

import json
from pathlib import Path

from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.physics.decoder import Decoder, LatentAttention, StateSpace, check_decoder

_MOST_BYTES = 4 << 20
_MOST = 1 << 32  # of any size
_MOST_LAYERS = 100_000
_MOST_PREDICTIONS = 16
# Feed-forwards with a gate, where the file does not tell it by name of an activation.
_UNGATED = {"gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "falcon", "mpt", "phi",
            "nemotron", "nemotron_h", "starcoder2", "gpt_bigcode"}  # fmt: skip
_NOT_DECODERS = {"bert", "roberta", "distilbert", "t5", "bart", "mt5", "vit", "clip", "whisper",
                 "deberta-v2", "electra", "albert", "mamba", "mamba2", "rwkv"}  # fmt: skip
_UNBIASED = {"nemotron", "nemotron_h"}
_TIED = {"gpt2", "opt", "bloom", "falcon", "mpt", "gemma", "gemma2", "gemma3_text"}


def read_config(path: str | Path) -> Decoder:
    """Return the decoder that a config.json describes; `path` may be its folder."""
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    return _Config(str(path), _load_config(file)).decoder()


def _load_config(file: Path) -> Fields:
    try:
        with file.open("rb") as source:
            data = source.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: not readable ({error.strerror or error})") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{file}: over {_MOST_BYTES >> 20} MiB, too large for a config.json")
    try:
        facts = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not JSON: {str(error)[:80]}") from error
    if not isinstance(facts, dict):
        raise UsageError(f"{file}: a JSON object was expected, as config.json has it")
    inner = facts.get("text_config")  # of models that also see
    return {**facts, **inner} if isinstance(inner, dict) else facts


class _Config:
    def __init__(self, name: str, facts: Fields) -> None:
        self.name = name
        self.facts = facts
        kind = facts.get("model_type")
        self.kind = kind if isinstance(kind, str) else ""

    def decoder(self) -> Decoder:
        if self.kind in _NOT_DECODERS or self.facts.get("is_encoder_decoder") is True:
            raise UsageError(f"{self.name}: {self.kind[:40]} is not a decoder, which plans are for")
        hidden = self.whole("hidden_size", "n_embd", "d_model", "hidden_dim")
        heads = self.whole("num_attention_heads", "n_head", "n_heads")
        layers = self.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        if layers > _MOST_LAYERS:
            raise UsageError(f"{self.name}: {layers} layers, at most {_MOST_LAYERS} are expected")
        experts = self.maybe("n_routed_experts", "num_local_experts", "num_experts") or 1
        return check_decoder(
            Decoder(
                name=self.named,
                layers=layers,
                hidden=hidden,
                heads=heads,
                kv_heads=self.kv_heads(heads),
                ffn=self.ffn(hidden, experts),
                vocab=self.whole("vocab_size", "padded_vocab_size"),
                gated=self.gated,
                tied=self.tied,
                positions=self.positions,
                experts=experts,
                head_size=self.maybe("head_dim") or 0,
                biases=self.biases,
                latent=self.latent(),
                predictions=min(self.maybe("num_nextn_predict_layers") or 0, _MOST_PREDICTIONS),
                **(self.mixture(experts) | self.hybrid()),
                **self.windows(layers),
            )
        )

    @property
    def named(self) -> str:
        own = self.facts.get("_name_or_path")
        text = own if isinstance(own, str) and own.strip() else self.kind or self.name
        return "".join(c for c in text if c.isprintable())[:80]

    def whole(self, *names: str) -> int:
        value = self.maybe(*names)
        if value is None:
            raise UsageError(f"{self.name}: no {names[0]}; a decoder's config.json was expected")
        return value

    def maybe(self, *names: str) -> int | None:
        """Return the first of these that is there and not null."""
        for name in names:
            value = self.facts.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
                shown = str(value)[:40]
                raise UsageError(f"{self.name}: {name} is {shown!r}; a whole number was expected")
            return value
        return None

    def kv_heads(self, heads: int) -> int:
        shared = self.maybe("num_key_value_heads", "num_kv_heads", "n_head_kv")
        return 1 if self.facts.get("multi_query") is True else shared or heads

    def ffn(self, hidden: int, experts: int) -> int:
        names = ("moe_intermediate_size",) if experts > 1 else ()
        width = self.maybe(*names, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
        return width or 4 * hidden

    @property
    def gated(self) -> bool:
        act = self.facts.get("hidden_act") or self.facts.get("activation_function")
        ungated = self.kind in _UNGATED or act in ("gelu_new", "relu", "relu2", "gelu_fast")
        return not ungated

    @property
    def tied(self) -> bool:
        own = self.facts.get("tie_word_embeddings")
        return own if isinstance(own, bool) else self.kind in _TIED

    @property
    def positions(self) -> int:
        learned = self.kind in ("gpt2", "opt", "gpt_bigcode")
        return (self.maybe("max_position_embeddings", "n_positions") or 0) if learned else 0

    @property
    def biases(self) -> bool | None:
        if self.kind in _UNBIASED:
            return False
        return True if self.kind == "gpt_oss" else None

    def latent(self) -> LatentAttention | None:
        rank = self.maybe("kv_lora_rank")
        if not rank:
            return None
        return LatentAttention(
            self.maybe("q_lora_rank") or 0,
            rank,
            self.whole("qk_nope_head_dim"),
            self.whole("qk_rope_head_dim"),
            self.whole("v_head_dim"),
        )

    def mixture(self, experts: int) -> Fields:
        if experts < 2:
            return {}
        width = self.maybe("moe_intermediate_size", "intermediate_size") or 0
        shared = self.maybe(
            "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"
        )
        if shared is None:
            shared = (self.maybe("n_shared_experts", "num_shared_experts") or 0) * width
        return {
            "active_experts": self.whole(
                "num_experts_per_tok", "moe_topk", "num_experts_per_token"
            ),
            "shared_ffn": shared,
            "dense_layers": self.maybe("first_k_dense_replace") or 0,
            "dense_ffn": self.maybe("intermediate_size") or 0,
            "expert_input": self.maybe("moe_latent_size") or 0,
        }

    def hybrid(self) -> Fields:
        """Layers of state spaces, attention and feed-forwards, a letter each."""
        pattern = self.facts.get("hybrid_override_pattern")
        if pattern is None:
            return {}
        if not isinstance(pattern, str) or not set(pattern) <= set("M*-E"):
            raise UsageError(f"{self.name}: hybrid_override_pattern: M, *, - and E were expected")
        dense = pattern.count("-") if "E" in pattern else 0
        return {
            "attention_layers": pattern.count("*"),
            "ffn_layers": pattern.count("-") + pattern.count("E"),
            "state_space": StateSpace(
                self.whole("mamba_num_heads"),
                self.whole("mamba_head_dim"),
                self.whole("n_groups"),
                self.whole("ssm_state_size"),
                self.maybe("conv_kernel") or 4,
            ),
        } | ({"dense_layers": dense} if dense else {})

    def windows(self, layers: int) -> Fields:
        """Layers that look back no further than a window."""
        window = self.maybe("sliding_window")
        if not window or self.facts.get("use_sliding_window") is False:
            return {}
        kinds = self.facts.get("layer_types")
        if isinstance(kinds, list):
            count = sum(kind == "sliding_attention" for kind in kinds[:_MOST_LAYERS])
            return {"window": window, "windowed_layers": min(count, layers)}
        return {"window": window, "windowed_layers": layers} if self.kind == "mistral" else {}
