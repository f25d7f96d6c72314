"""The graph of a run that several workers went through, by one that gets what senders had (`parcels`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import allocate_pasts
from antecede.audit.distributed_steps import KEY, Batches, BlockPlan, read_chunks
from antecede.causality.transitive_reduction import immediate_dependencies, past_sizes
from antecede.graph.core import Graph, told


def graph_from_chunks(
    plan: BlockPlan, names: list[str], exact_width: int
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """From every message's past to rows of `graph.TOLD`. Where messages have other numbers than those of
    their streams, parcels of `KEY` say which."""

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        sizes = np.diff(plan.first)
        seqs = np.arange(plan.messages) - np.repeat(plan.first[:-1], sizes) + 1
        previous = np.full(plan.messages, -1, np.int64)
        with allocate_pasts(plan.run, plan.first) as vectors:
            for _, part, message, before, _, payload in read_chunks(batches):
                if part == KEY:
                    seqs[message] = int(bytes(payload))
                else:
                    vectors[message] = np.frombuffer(payload, vectors.dtype)
                    previous[message] = before
            past = past_sizes(vectors)
            start, cause = immediate_dependencies(plan.first, previous, vectors, past, 0, plan.messages)
        origins = pa.DictionaryArray.from_arrays(np.repeat(plan.origin, sizes), pa.array(names, pa.string()))
        shown = pc.binary_join_element_wise(origins.cast(pa.string()), pa.array(seqs).cast(pa.string()), ":")
        order = np.argsort(past, kind="stable")
        graph = Graph(plan.run, shown, len(names), start, cause, order)
        yield from told(graph, exact_width).to_batches(max_chunksize=1 << 16)

    return work
