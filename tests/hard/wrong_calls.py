"""wrong calls: every public function with wrong kinds and values of each argument: refused by the name of what is wrong."""

import calls

from hard.row import cpu_time, none_of


def figures(share, seed):
    """The row's figures. A share has fewer groups of functions."""
    groups = list(calls.GROUPS)[: max(1, round(share * len(calls.GROUPS)))] if share < 0.1 else calls.GROUPS
    result = []
    with cpu_time(result):
        count, failures = calls.walk(*groups)
        for function, argument, what, found in failures:
            print(f"wrong_calls {function}, `{argument}` {what}: {found}", flush=True)
        result.append(none_of("wrong calls", "wrong calls that are not refused by name", len(failures), count))
    return result
