"""Reduces a run that several tasks processed: from the chunks of every message's past to its graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import allocate_pasts
from antecede.audit.distributed_steps import NAME, SEQ, Batches, BatchStep, BlockPlan, read_chunks
from antecede.audit.encoding import message_names
from antecede.causality.transitive_reduction import immediate_dependencies, past_sizes
from antecede.graph.core import Graph, result_rows


def graph_from_chunks(plan: BlockPlan, names: list[str], exact_width: int) -> BatchStep:
    """From every message's past to rows of `graph.core.RESULT_SCHEMA`.

    Where messages' seqs are not their places in their streams, chunks of `SEQ` say what they are; chunks of
    `NAME` have the ids of messages that have their own.
    """

    def step(batches: Batches) -> Iterator[pa.RecordBatch]:
        sizes = np.diff(plan.first)
        seqs = np.arange(plan.messages) - np.repeat(plan.first[:-1], sizes) + 1
        previous = np.full(plan.messages, -1, np.int64)
        ids: dict[int, str] = {}
        with allocate_pasts(plan.run, plan.first) as vectors:
            for _, part, message, before, _, payload in read_chunks(batches):
                if part == SEQ:
                    seqs[message] = int(bytes(payload))
                elif part == NAME:
                    ids[message] = bytes(payload).decode()
                else:
                    vectors[message] = np.frombuffer(payload, vectors.dtype)
                    previous[message] = before
            past = past_sizes(vectors)
            start, cause = immediate_dependencies(plan.first, previous, vectors, past, 0, plan.messages)
        shown = message_names(np.repeat(plan.origin, sizes), seqs, names)
        if ids:
            own = pa.array([ids.get(message) for message in range(plan.messages)], pa.string())
            shown = pc.coalesce(own, shown)
        order = np.argsort(past, kind="stable")
        graph = Graph(plan.run, shown, len(names), start, cause, order)
        yield from result_rows(graph, exact_width).to_batches(max_chunksize=1 << 16)

    return step
