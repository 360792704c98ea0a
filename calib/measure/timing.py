# SPDX-License-Identifier: Apache-2.0
"""Median time of a call on the device.

Calls are captured in a CUDA graph, many to a graph, so that Python's launches are not in the figure; the
graph is replayed and timed by events. `calls` are closures over different buffers, used in turn, so that the
operands of one are out of the cache when it comes round again. What cannot be captured is timed in a stream of
plain launches (`note` then says so), and on a CPU by the clock.
"""

import contextlib
import time
from collections import namedtuple

Timing = namedtuple("Timing", "median low high calls note")

REPLAYS = 15  # timed; median and percentiles are over these
GRAPH_S = 1.5e-3  # what one replay should take
MOST_CALLS = 400  # in one graph


def percentile(values, share):
    """Of a sorted list, by linear interpolation."""
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def summary(times, per, note=""):
    times = sorted(t / per for t in times)
    return Timing(percentile(times, 0.5), percentile(times, 0.1), percentile(times, 0.9), per * len(times), note)


def sets_for(bytes_per_set, l2_bytes=64 << 20, most_bytes=8 << 30):
    """How many sets of buffers put twice the cache between two uses of one."""
    wanted = -(-2 * l2_bytes // max(1, bytes_per_set)) + 1
    return int(max(1, min(wanted, 16, most_bytes // max(1, bytes_per_set))))


_streams = []  # the one in which calls are made and timed


def _stream(torch):
    if not _streams:
        _streams.append(torch.cuda.Stream())
    return _streams[0]


def on_stream(torch):
    """What is done within goes to the stream that time_calls() captures."""
    return torch.cuda.stream(_stream(torch)) if torch.cuda.is_available() else contextlib.nullcontext()


def time_calls(torch, calls, replays=REPLAYS):
    if not torch.cuda.is_available():
        return _time_on_cpu(calls)
    stream = _stream(torch)
    with torch.cuda.stream(stream):
        for call in calls[:2] * 2:
            call()
    stream.synchronize()
    once = _time_plain(torch, stream, calls, max(3, len(calls)), 1)[0] / max(3, len(calls))
    count = int(max(len(calls), min(MOST_CALLS, GRAPH_S / max(once, 1e-7))))
    try:
        graph = _capture(torch, stream, calls, count)
    except RuntimeError as error:
        if "out of memory" in str(error):
            raise
        torch.cuda.synchronize()
        return summary(_time_plain(torch, stream, calls, count, replays), count, "plain launches, not a graph")
    graph.replay()
    torch.cuda.synchronize()
    return summary(_time_events(torch, stream, graph.replay, replays), count)


def _capture(torch, stream, calls, count):
    """As torch.cuda.graph does it, without its collection of garbage, which takes longer than the case."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            for i in range(count):
                calls[i % len(calls)]()
        finally:
            graph.capture_end()
    return graph


def _time_plain(torch, stream, calls, count, replays):
    def run():
        for i in range(count):
            calls[i % len(calls)]()
    return _time_events(torch, stream, run, replays)


def _time_events(torch, stream, run, replays):
    times = []
    with torch.cuda.stream(stream):
        for _ in range(replays):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3)
    return times


def _time_on_cpu(calls, seconds=0.05, most=50):
    calls[0]()
    times = []
    until = time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < until and len(times) < most):
        call = calls[len(times) % len(calls)]
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return summary(times, 1, "CPU")
