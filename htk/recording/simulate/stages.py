"""The stages of a pipeline: the ranks of each, and what part of the model they hold.

Ranks of a stage follow each other, as Megatron orders them. With several chunks for each stage,
the chunks take turns: the first chunks of all stages hold the first layers, the second ones the
next. Without a pipeline there is one stage, which holds all.
"""

from dataclasses import dataclass

from htk.physics.memory import Memory, model_size, stage_memory
from htk.recording.simulate.config import Config


@dataclass(frozen=True)
class Chunk:
    """Layers that follow each other on a stage."""

    number: int
    layers: range
    is_first: bool  # of the model: with the embedding
    is_last: bool  # with the output and the loss


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline."""

    config: Config
    number: int

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def is_last(self) -> bool:
        return self.number == self.config.pipeline_parallel - 1

    @property
    def ranks(self) -> range:
        many = self.config.stage_ranks
        return range(self.number * many, (self.number + 1) * many)

    @property
    def written(self) -> tuple[int, ...]:
        """The ranks whose traces are written."""
        return tuple(rank for rank in self.config.written if rank in self.ranks)

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        stages = self.config.pipeline_parallel
        chunks = self.config.virtual_stages
        each = self.config.decoder.layers // (stages * chunks)
        positions = [chunk * stages + self.number for chunk in range(chunks)]
        return tuple(
            Chunk(
                chunk,
                range(each * position, each * (position + 1)),
                position == 0,
                position == stages * chunks - 1,
            )
            for chunk, position in enumerate(positions)
        )

    @property
    def layers(self) -> int:
        """The number of its layers."""
        return self.config.decoder.layers // self.config.pipeline_parallel

    @property
    def held_parameters(self) -> int:
        """The number of parameters of a rank before sharding; of experts, only its own."""
        roots = sum(root_parameters(self.config, chunk) for chunk in self.chunks)
        in_layers = self.config.held_parameters - (
            self.config.decoder.root_parameters // self.config.tensor_parallel
        )
        return in_layers // self.config.pipeline_parallel + roots

    @property
    def own_expert_parameters(self) -> int:
        """The number of parameters of the experts that a rank holds."""
        return self.config.own_expert_parameters // self.config.pipeline_parallel

    @property
    def memory(self) -> Memory:
        return stage_memory(model_size(self.config.decoder), self.config.layout, self.number)


def pipeline_stages(config: Config) -> list[Stage]:
    """Return the stages of a job, in order."""
    return [Stage(config, number) for number in range(config.pipeline_parallel)]


def root_parameters(config: Config, chunk: Chunk) -> int:
    """Return the number of parameters of a chunk that are in no layer, on a tensor-parallel rank.

    The last stage of a pipeline has an output of its own where the model shares the embedding.
    """
    model = config.decoder
    embedding = model.vocab * model.hidden
    if chunk.is_first and chunk.is_last:
        every = model.root_parameters
    elif chunk.is_first:
        every = embedding + model.positions * model.hidden
    elif chunk.is_last:
        norm = model.root_parameters - embedding * (1 if model.tied else 2)
        every = norm - model.positions * model.hidden + embedding
    else:
        every = 0
    return every // config.tensor_parallel
