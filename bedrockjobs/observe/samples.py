"""Metrics in the words of Prometheus: one value, one for each value of a label, a histogram."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from prometheus_client.metrics_core import CounterMetricFamily as Counts
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from bedrockjobs.base.wire import moment_of
from bedrockjobs.observe.measurements import Histogram


def gauge(name: str, words: str, value: float, **labels: str) -> Metric:
    """Return a gauge with one value."""
    found = Gauge(f"bedrockjobs_{name}", words, labels=tuple(labels))
    found.add_metric(tuple(labels.values()), value)
    return found


def counts(name: str, words: str, value: float) -> Metric:
    """Return a counter with one value."""
    return Counts(f"bedrockjobs_{name}", words, value=value)


def by_label(
    kind: type[Gauge] | type[Counts], name: str, words: str, label: str, values: Mapping[str, float]
) -> Metric:
    """Return a metric with a value for each value of a label."""
    found = kind(f"bedrockjobs_{name}", words, labels=(label,))
    for key, value in sorted(values.items()):
        found.add_metric((key,), value)
    return found


def histogram(name: str, words: str, measured: Histogram) -> Metric:
    """Return a histogram."""
    buckets = [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in measured.up_to()]
    found = HistogramMetricFamily(f"bedrockjobs_{name}", words)
    found.add_metric((), buckets, sum_value=measured.sum)
    return found


def seconds_between(oldest: str, now: str) -> float:
    """Return the seconds from a stamp to a later one; 0 where it is empty or not later."""
    if not oldest or oldest > now:
        return 0.0
    return (moment_of(now) - moment_of(oldest)).total_seconds()


def seconds(stamp: str) -> float:
    """Return a stamp as Prometheus has moments: seconds since 1970."""
    return moment_of(stamp).timestamp()


def size_of(path: Path) -> int:
    """Return the size of a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
