"""The files that the operator writes for master and workers, as Java reads them."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_operator.desired.cluster.java_properties import dump
from fencepost_operator.desired.cluster.spark_files import spark_files
from security.java_properties import load
from unit.charts.rendering import HelmError, objects, one, render

TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]))


def settings(author: dict[str, str]) -> dict[str, str]:
    return load(spark_files(author)["spark-defaults.conf"])


@given(st.dictionaries(TEXT.filter(bool), TEXT))
def test_properties_are_read_back_as_they_were(properties: dict[str, str]) -> None:
    text = dump(properties)
    assert load(text) == properties
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert text.count("\n") == len(properties)


def test_the_author_cannot_turn_safety_off() -> None:
    found = settings({"spark.authenticate": "false", "spark.master.rest.enabled": "true"})
    assert found["spark.authenticate"] == "true"
    assert found["spark.network.crypto.enabled"] == "true"
    assert found["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert found["spark.network.crypto.saslFallback"] == "false"
    assert found["spark.master.rest.enabled"] == "false"
    assert found["spark.ui.killEnabled"] == "false"
    assert found["spark.deploy.recoveryMode"] == "FILESYSTEM"


@pytest.mark.parametrize(
    "text", ["x\\", "x\nspark.authenticate=false", "x\u2028spark.authenticate false", "\\u000aspark.a=b"]
)
def test_a_value_never_becomes_another_setting(text: str) -> None:
    assert settings({"spark.app.note": text}) == settings({}) | {"spark.app.note": text}


def test_the_author_can_change_what_is_only_a_default() -> None:
    found = settings({"spark.worker.timeout": "90", "spark.executor.extraJavaOptions": r"-Dpath=C:\temp"})
    assert found["spark.worker.timeout"] == "90"
    assert found["spark.executor.extraJavaOptions"] == r"-Dpath=C:\temp"


def test_logs_and_work_folders_are_bounded() -> None:
    found = settings({})
    assert found["spark.executor.logs.rolling.strategy"] == "size"
    assert found["spark.executor.logs.rolling.maxRetainedFiles"] == "3"
    assert found["spark.worker.cleanup.enabled"] == "true"


def test_the_chart_passes_the_files_on_unchanged() -> None:
    files = spark_files({"spark.app.note": "a \u2028\x85 {{ b }}\n---\n"})
    found = objects("spark-cluster", "full", {"files": files})
    assert one(found, "ConfigMap", "-conf")["data"] == files


def test_the_chart_makes_no_cluster_without_them() -> None:
    with pytest.raises(HelmError, match=r"spark-defaults.conf.* is missing"):
        render("spark-cluster")


def test_other_settings_replace_the_pods() -> None:
    first, second = (
        objects("spark-cluster", "full", {"files": spark_files({"spark.app.note": text})}) for text in ("a", "b")
    )
    for name in ("-master", "-worker"):
        assert (
            one(first, "StatefulSet", name)["spec"]["template"] != one(second, "StatefulSet", name)["spec"]["template"]
        )
