"""The CRD alone: structural, described, bounded, with defaults that fit."""

import copy
import json
import re

import jsonschema
import pytest

from unit.crds.schema import CRD, CRDS, FILE, ROOT, VERSION, Schema, at, defaulted, minimal, strict, walk

PARTS = [(path, schema) for path, schema in walk(ROOT) if path not in {"", "metadata", "metadata.name"}]
REWIND, TRIAL = (
    CRDS[plural]["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for plural in ("pipelinerewinds", "pipelinetrials")
)
KEYS = re.compile(r"k\.size\(\) <= (\d+)")
"""The rule that bounds the keys of a map: a schema has no bound for them of its own."""


def test_it_is_the_kind_that_the_design_names() -> None:
    names = CRD["spec"]["names"]
    assert CRD["metadata"]["name"] == f"{names['plural']}.{CRD['spec']['group']}" == FILE.stem
    assert (names["kind"], names["shortNames"], names["categories"]) == (
        "StreamingPipeline",
        ["spl"],
        ["all", "streaming"],
    )
    assert CRD["spec"]["scope"] == "Namespaced"
    assert VERSION["name"] == "v1beta1"


@pytest.mark.parametrize("plural", CRDS)
def test_each_version_has_the_same_schema_and_one_is_stored(plural: str) -> None:
    """Descriptions, which `kubectl explain` shows of the preferred version, are in that one alone.

    Equal selectableFields need equal schemas.
    """
    beta, alpha = CRDS[plural]["spec"]["versions"]
    assert [(one["name"], one["served"], one["storage"]) for one in (beta, alpha)] == [
        ("v1beta1", True, True), ("v1alpha1", True, False),
    ]  # fmt: skip
    schemas = [one["schema"]["openAPIV3Schema"] for one in (beta, alpha)]
    assert [described(schema) for schema in schemas] == [True, "selectableFields" in alpha]
    assert undescribed(beta) == undescribed(alpha)


def described(schema: Schema) -> bool:
    return any("description" in part for _, part in walk(schema))


def undescribed(version: Schema) -> Schema:
    """Return a version without its name, its place in storage, and the descriptions of its schema."""
    found = copy.deepcopy({key: part for key, part in version.items() if key not in {"name", "storage"}})
    for _, part in walk(found["schema"]["openAPIV3Schema"]):
        part.pop("description", None)
    return found


def test_it_is_small_enough_for_client_side_apply_and_etcd() -> None:
    applied = json.dumps(CRD)  # what kubectl keeps in an annotation; all have 256 KiB
    assert len(applied.encode()) < 224 * 1024


def test_nothing_unknown_is_kept() -> None:
    assert "x-kubernetes-preserve-unknown-fields" not in FILE.read_text()
    assert "x-kubernetes-embedded-resource" not in FILE.read_text()


def test_every_field_has_a_type() -> None:
    assert [path for path, part in PARTS if not ("type" in part or part.get("x-kubernetes-int-or-string"))] == []


def test_every_field_says_what_it_is() -> None:
    silent = [path for path, part in PARTS if not path.endswith(("[]", "{}")) and not part["description"].endswith(".")]
    assert silent == [], "kubectl explain shows the description"


def test_what_a_user_writes_is_bounded() -> None:
    bound = {"string": "maxLength", "array": "maxItems", "integer": "maximum"}
    unbounded = [
        path
        for path, schema in walk(at("spec"), "spec")
        if "enum" not in schema and (needed := bound.get(schema.get("type", ""))) and needed not in schema
    ]
    assert unbounded == [
        "spec.cluster.tolerations[].tolerationSeconds",
        "spec.source.kafka.startingOffsets.partitions{}",
    ], "these two have 8 bytes"
    maps = [(path, part) for path, part in walk(at("spec"), "spec") if "additionalProperties" in part]
    assert all("maxProperties" in part for _, part in maps)


@pytest.mark.parametrize(("path", "most"), [("spec.cluster.affinity", 1024), ("spec.cluster.tolerations", 32)])
def test_what_every_pod_of_a_pipeline_repeats_has_a_largest_size(path: str, most: int) -> None:
    """In KiB of JSON.  Each list alone being bounded is not enough: a list in a list in a list multiplies."""
    assert largest(at(path)) <= most * 1024


def largest(schema: Schema) -> int:
    """Return the bytes of JSON that a schema admits at most. Every text is of ASCII, and of no character to escape."""
    match schema:
        case {"enum": values}:
            return max(len(str(value)) for value in values) + len('""')
        case {"type": "integer"}:
            return len(str(-(2**63)))
        case {"type": "string", "pattern": "^[A-Za-z0-9._/-]*$", "maxLength": int(most)}:
            return most + len('""')
        case {"type": "array", "maxItems": int(most), "items": item}:
            return most * (largest(item) + len(",")) + len("[]")
        case {"additionalProperties": value, "maxProperties": int(most)}:
            (key,) = [
                int(found[1]) for rule in schema["x-kubernetes-validations"] if (found := KEYS.search(rule["rule"]))
            ]
            return most * (key + largest(value) + len('"":,')) + len("{}")
        case {"properties": parts}:
            return sum(len(name) + largest(part) + len('"":,') for name, part in parts.items()) + len("{}")
    raise AssertionError(f"not bounded: {schema}")


def test_every_pattern_is_one_that_gos_and_pythons_engines_read_alike() -> None:
    for path, schema in walk(ROOT):
        if pattern := schema.get("pattern"):
            assert pattern.startswith("^"), path
            assert pattern.endswith("$"), path
            re.compile(pattern)


def test_every_rule_says_what_to_do_about_which_field() -> None:
    for path, schema in walk(ROOT):
        for rule in schema.get("x-kubernetes-validations", []):
            subject, _, words = rule["message"].partition(" ")
            assert any(subject.strip(":").split(".")[-1] in part for part in [path, rule.get("fieldPath", "")]), rule
            assert re.search(r"must|remove|choose|give|set it back|put them|lower|name another", words), rule


def test_the_default_status_is_older_than_any_spec() -> None:
    assert at("status")["default"] == {"observedGeneration": -1}


def test_the_columns_show_fields_that_exist() -> None:
    columns = {column["name"]: column for column in VERSION["additionalPrinterColumns"]}
    assert [name for name, column in columns.items() if not column.get("priority")] == [
        "State", "Ready", "Lag", "Epoch", "Restarts", "Age",
    ]  # fmt: skip
    for column in columns.values():
        path = column["jsonPath"].removeprefix(".")
        if path.startswith("status."):
            assert at(path.replace('[?(@.type=="Ready")]', "[]"))["type"] == column["type"]


def test_scale_reads_and_writes_fields_that_exist() -> None:
    scale = VERSION["subresources"]["scale"]
    assert at(scale["specReplicasPath"][1:])["default"] == 1
    assert at(scale["statusReplicasPath"][1:])["type"] == "integer"
    assert at(scale["labelSelectorPath"][1:])["type"] == "string"


def test_the_defaults_fit_the_schema() -> None:
    body = defaulted(minimal())
    jsonschema.validate(body, strict())
    assert body["spec"]["cluster"]["master"]["storage"] == {"size": "64Mi"}, "defaults reach into what was not written"


LINE_BREAKS = "\n\r\x0b\x0c\x85\u2028\u2029\x00\x1b\x7f"


def test_no_text_of_a_spec_holds_a_control_character_or_a_line_break() -> None:
    """In a template one of them ends the line that the text stands in, and what follows is YAML of the tenant's."""
    for path, schema in walk(at("spec"), "spec"):
        if schema.get("type") != "string" or "enum" in schema:
            continue
        if "pattern" not in schema:
            assert any("self.matches('^" in rule["rule"] for rule in schema["x-kubernetes-validations"]), path
            continue
        for character in LINE_BREAKS:
            for text in (character, f"a{character}", f"{character}a", f"a{character}a", f"a:1{character}b:1"):
                assert not re.search(schema["pattern"].removesuffix("$") + r"\Z", text), (path, ascii(text))


def test_a_key_that_becomes_a_line_is_a_plain_name() -> None:
    for path in ("spec.cluster.sparkConf", "spec.cluster.nodeSelector", "spec.source.kafka.properties"):
        rules = [rule["rule"] for rule in at(path)["x-kubernetes-validations"]]
        assert any("self.all(k, k.matches('^" in rule for rule in rules), path


@pytest.mark.parametrize("root", [ROOT, REWIND, TRIAL], ids=["pipeline", "rewind", "trial"])
def test_every_map_that_a_user_writes_bounds_its_keys(root: Schema) -> None:
    """A schema has no bound for keys of its own, and 1,000 keys may have 1 MiB."""
    (spec,) = [schema for path, schema in walk(root) if path == "spec"]
    unbounded = [
        path
        for path, part in walk(spec, "spec")
        if "additionalProperties" in part
        and not any(KEYS.search(rule["rule"]) for rule in part.get("x-kubernetes-validations", []))
    ]
    assert unbounded == []


@pytest.mark.parametrize("root", [ROOT, REWIND, TRIAL])
def test_the_key_of_every_list_that_is_a_map_is_in_each_item(root: Schema) -> None:
    """The API server refuses a CRD whose key is neither required nor has a default."""
    missing = [
        f"{path}: {key}"
        for path, part in walk(root)
        for key in part.get("x-kubernetes-list-map-keys", ())
        if key not in part["items"].get("required", ()) and "default" not in part["items"]["properties"][key]
    ]
    assert missing == []
