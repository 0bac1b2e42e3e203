"""What the papers found, in their authors' numbers, for the report: by lab, and by figure that a lab draws again."""

from __future__ import annotations

from collections.abc import Mapping

FINDINGS: Mapping[str, str] = {
    "jit": (
        "JIT: bushy plans use more than ten times less processor time than eager state and up to 62 % less memory; "
        "the gains grow with windows and rates. Left-deep plans gain less, but clearly. The paper's joins are nested "
        "loops."
    ),
    "jisc": (
        "JISC: during a migration up to ten times faster than Parallel Track, also if all states are incomplete; in "
        "normal operation as fast as a symmetric hash join and about twice as fast as CACQ; the first result after a "
        "transition comes at once, while Moving State stops for seconds."
    ),
    "jaqpot": (
        "JAQPOT: more than 80 % of the saturated throughput with 60 % of the resources (linear plans), 2.5 times the "
        "best heuristic on average and 6.5 times at most; twice for bushy plans; no stale tuple leaves."
    ),
    "graph": (
        "Query graph: time on demand (ETS) lowers the latency of a union of a fast and a slow stream by orders of "
        "magnitude; ETS arcs are at least 14 % better than punctuation; they remove the bursts that SLIDE causes."
    ),
    "slice": (
        "State-Slice: 20 to 30 % less memory than pull-up and push-down; up to 40 % higher service rate; CPU-Opt is "
        "20 to 30 % above Mem-Opt for skewed windows, and more with more queries."
    ),
}
"""What the paper of a lab found."""

FIGURE_FINDINGS: Mapping[str, str] = {
    "jit-figure-10": (
        "Bushy plan, window: JIT takes less than a tenth of the processor time of REF and saves up to 62 % of the "
        "memory. The gains grow with the window."
    ),
    "jit-figure-11": "Bushy plan, rate: as for the window; the faster the streams, the larger the savings.",
    "jit-figure-12": (
        "Bushy plan, number of streams: JIT is far ahead in both, and its cost grows more slowly. The memory of REF "
        "grows in steps (4 and 5, 6 and 7 streams are alike); that of JIT does not."
    ),
    "jit-figure-13": (
        "Bushy plan, largest value: with larger values there are fewer results and both cost less. Beyond 200 JIT "
        "hardly changes, because it builds hardly any intermediate rows."
    ),
    "jit-figure-14": (
        "Left-deep plan, window: a smaller gain than for bushy plans, but a clear one, above all for long windows."
    ),
    "jit-figure-15": (
        "Left-deep plan, rate: a smaller gain than for bushy plans, but a clear one, above all for high rates."
    ),
    "jit-figure-16": (
        "Left-deep plan, number of streams: JIT is ahead and grows more slowly, above all in processor time."
    ),
    "jit-figure-17": (
        "Left-deep plan, largest value: REF is expensive where many rows match (below 50); JIT copes with these as "
        "well."
    ),
    "jisc-figure-7": (
        "Migration, one incomplete state: JISC is the fastest, and up to ten times as fast as Parallel Track with "
        "many joins."
    ),
    "jisc-figure-8": (
        "Migration, all states incomplete: JISC has to complete states and gains less than in Figure 7; CACQ and "
        "Parallel Track cost the same as there."
    ),
    "jisc-figure-9": (
        "Normal operation, 20 joins: JISC adds little to a symmetric hash join and is nearly twice as fast as CACQ."
    ),
    "jisc-figure-10": (
        "First output after a change, hash joins: negligible under JISC; Moving State stops until its states are "
        "computed, for seconds with large windows."
    ),
    "jisc-figure-10b": (
        "First output after a change, nested loops: negligible under JISC; about 4,600 seconds under Moving State "
        "with windows of 100,000 tuples."
    ),
    "jisc-figure-11": (
        "Time by distance of changes, all states incomplete: JISC is ahead of CACQ and Parallel Track at every "
        "frequency, and loses some of it when changes are frequent, because states never get complete. Parallel Track "
        "is worst then."
    ),
    "jisc-figure-12": (
        "Time by distance of changes, one incomplete state: as Figure 11, but JISC depends less on the distance, "
        "because the complete states cost nothing."
    ),
    "jisc-proposition-1": (
        "Proposition 1: after two streams swap places in a plan of n joins, the expected number of complete states is "
        "(2nH − 3n + 1) / (2H − 2), where H is the n-th harmonic number. It is exact, so drawn plans must agree."
    ),
    "jaqpot-figure-6": (
        "Results over ten minutes with changing selectivities, 30 % of the resources: JAQPOT is ahead and follows the "
        "changes, above all that of the last join. GlobalHJPR is the best of the heuristics; the others hardly adapt."
    ),
    "jaqpot-figure-7": (
        "Throughput by resources. Linear plan: more than 80 % of saturation with 60 % of the resources; on average "
        "2.5 times the best heuristic, 6.5 times at 40 %. Bushy plan: about twice the heuristics."
    ),
    "jaqpot-figure-7-unequal": (
        "The paper's windows hold 200 to 5,000 tuples, so that the directions of a join differ in worth: more than "
        "80 % of saturation throughput at 60 % of the resources."
    ),
    "jaqpot-figure-7-model": "The same figure in the model of the paper, without an engine: the shares alone decide.",
    "jaqpot-figure-8": (
        "Sensors of the Intel lab, joins of five groups: JAQPOT is ahead of every heuristic, 2.5 to 3.4 times the "
        "best one."
    ),
    "jaqpot-figure-9": (
        "Stale results without the set cover: many under every policy that looks at throughput alone, about 70 % for "
        "SBestHJP on the bushy plan at 1.5 windows; fewer with looser bounds."
    ),
    "jaqpot-figure-9d": (
        "Part of the resources that freshness takes: 3 to 5 % at 5 windows, up to 35 % for bushy plans at 1.5 "
        "windows; about 8 % of the plans are infeasible."
    ),
    "graph-idle-waiting": (
        "Figure 14 (a), union of 1,000 and 0.5 tuples a second: DFS and BFS are alike without ETS; ETS on demand "
        "lowers both by orders of magnitude."
    ),
    "graph-bursts": (
        "Figure 14 (b), size of bursts: latency grows for both, and more for BFS: (1.5n + 0.5)c against (n + 1)c."
    ),
    "graph-arcs": (
        "Figure 15, nested unions: ETS arcs and punctuation both end idle waiting; punctuation has a latency 14 % "
        "higher, because it passes every operator on its way."
    ),
    "graph-slides": (
        "Figure 16, burstiness by SLIDE: it grows with the slide without ETS, and ETS on demand removes it."
    ),
    "slice-figure-17": (
        "Memory by rate: slices always need least, 20 to 30 % less than selection pull-up and push-down."
    ),
    "slice-figure-18": "Service rate: slices are always best; the gain grows with rate and join selectivity, to 40 %.",
    "slice-figure-19": (
        "Mem-Opt against CPU-Opt: the same chain for uniform windows; for skewed windows CPU-Opt merges slices (two "
        "are left for Small-Large) and is 20 to 30 % better on average, more with more queries."
    ),
}
"""What the paper found in a figure, by the name of the picture without its end."""


def find_finding(picture: str) -> str | None:
    """What the paper found in the figure that a picture draws again; None for pictures that no paper has."""
    name = picture.removesuffix(".png")
    while name:
        if name in FIGURE_FINDINGS:
            return FIGURE_FINDINGS[name]
        name = name.rpartition("-")[0]
    return None
