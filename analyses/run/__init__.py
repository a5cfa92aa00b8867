"""How the job was run: sharding, pipelines, experts, compilation, serving."""
