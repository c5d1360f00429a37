"""A Spark setting is honoured or refused with a remedy, never ignored."""

from __future__ import annotations

import pytest

from fencepost.contract import spark_conf


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("spark.master", "remove it"),
        ("spark.submit.pyFiles", "remove it"),
        ("spark.driver.memory", "spec.job.memory"),
        ("spark.executor.memoryOverhead", "spec.cluster.worker.memory"),
        ("spark.executor.instances", "spec.cluster.workers"),
        ("spark.jars", "spark.driver.extraClassPath"),
        ("spark.jars.packages", "put the jar into the image"),
        ("spark.jars.ivySettings", "put the jar into the image"),
        ("spark.kubernetes.container.image", "runs standalone"),
        ("spark.remote", "not over Spark Connect"),
        ("spark.driver.extraLibraryPath", "spec.job.env"),
        ("spark.pyspark.python", "the image's Python"),
    ],
)
def test_a_setting_without_effect_is_refused_with_a_remedy(key: str, remedy: str) -> None:
    (found,) = spark_conf.problems({key: "x", "spark.sql.shuffle.partitions": "8"})
    assert found.key == key
    assert remedy in found.remedy


@pytest.mark.parametrize(
    "key",
    [
        "spark.driver.extraClassPath",
        "spark.driver.extraJavaOptions",
        "spark.executor.extraClassPath",
        "spark.executor.extraJavaOptions",
        "spark.executor.memory",
        "spark.files",
        "spark.sql.extensions",
    ],
)
def test_a_setting_with_effect_is_accepted(key: str) -> None:
    assert list(spark_conf.problems({key: "x"})) == []


def test_a_heap_size_among_the_drivers_java_options_is_refused() -> None:
    (found,) = spark_conf.problems({"spark.driver.extraJavaOptions": "-Dx=1 -Xmx4g"})
    assert "-Xmx" in found.problem
    assert "spec.job.memory" in found.remedy


def test_a_run_accepts_the_sizes_that_the_operator_derives() -> None:
    assert list(spark_conf.unsupported({"spark.driver.memory": "512m", "spark.executor.cores": "1"})) == []
