"""What every benchmark of this folder shares: environments, workers, interleaved rounds, ratios and tables.

A contender is a class whose methods do one measurement each. It runs in a worker process of its own, in an environment
of its own, and answers one call at a time, so that a round can ask all contenders in turn:

    # benchmarks/my_loaders.py
    class LmdbLoader:
        '''Runs in the worker: only its own environment's packages are imported, and only in here.'''

        def __init__(self, folder: str, payloads: dict[str, Any]) -> None:
            self.payloads = payloads_of(payloads)  # the same bytes in every process

        def read(self) -> int:
            '''The whole call is timed; what must not be timed is a call of its own.'''
            return sum(len(batch) for batch in self.loader)

    def main() -> None:
        lmdb = Environment("lmdb-loader", ("lmdb==3.0.0", "torch", "numpy")).make()  # may raise EnvironmentMissing
        arguments = {"folder": str(folder), "payloads": RandomPayloads(1024, 200_000).described()}
        with Worker(lmdb, "my_loaders:LmdbLoader", arguments) as theirs, Worker(ours, "my_loaders:Ours", …) as mine:
            mine.call("read"), theirs.call("read")  # one epoch that is not counted
            outcome = interleave(
                {"dataset-rt": partial(mine.rate, "read"), "lmdb": partial(theirs.rate, "read")}, rounds=5
            )
        row = Row("1 KiB", "shuffled", "samples/s", outcome.figures, outcome.failed)
        result = Result("my-loaders", machine_line(), {"lmdb": "3.0.0"}, rounds=5, scale=1.0, rows=[row])
        result.save()  # benchmarks/results/my-loaders.json: every figure of every round
        update_section("my-loaders", figures_table(result) + ratios_table(result, reference="dataset-rt"))

`update_section` puts the tables into benchmarks/README.md between `<!-- bench:my-loaders -->` and
`<!-- /bench:my-loaders -->`, so that running it again replaces them. Modules, one concept each:

- `environments`: virtual environments made by uv, reused while their requirements are the same.
- `worker`, `serve`: the two ends of a worker process.
- `payloads`: the bytes that all contenders store; `labelled_cache`: dataset-rt's cache of them for the loaders.
- `rounds`, `ratios`: interleaving, medians, ratios with their range.
- `results`, `table`: figures as JSON, and as Markdown in the README.
- `machine`, `memory`, `cold`: the machine's name, private memory, an empty page cache.
- `plot`: lines as SVG that read in light and in dark.
"""
