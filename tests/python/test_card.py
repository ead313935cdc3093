"""The card of an export as a hub reads it: its front matter by a YAML reader, its files by `datasets`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import yaml

import datasets
import polysift

if TYPE_CHECKING:
    import pytest

CORPUS = Path(__file__).parents[1] / "sample" / "corpus"
SETTINGS = """
[encoder]
model = "none"
[heads.chance]
kind = "random"
[languages._default]
retention = { chance = [0.1, 0.3] }
[export]
card = true
[card]
pretty_name = 'A name: with "marks" # and more'
license = "odc-by"
"""


def exported(folder: Path, source: str) -> Path:
    """Run the job on `source` without an encoder; return its export."""
    settings, run = folder / "run.toml", folder / "run"
    settings.write_text(f"[input]\n{source}\n{SETTINGS}")
    command = [polysift.binary(), "run", "--config", settings, "--run", run]
    subprocess.run(command, check=True, capture_output=True)
    return run / "export"


def front_matter(export: Path) -> dict[str, Any]:
    """Return what a hub reads of the card."""
    _, front, _ = (export / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front)


def test_languages_are_the_configurations_that_datasets_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    export = exported(tmp_path, f'files = ["{CORPUS}/{{lang}}/*.parquet"]')
    front = front_matter(export)
    codes = sorted(path.name for path in export.iterdir() if path.is_dir())
    assert [config["config_name"] for config in front["configs"]] == codes
    assert front["pretty_name"] == 'A name: with "marks" # and more'
    assert front["license"] == "odc-by"
    assert front["language"] == ["ar", "de", "en", "es", "fr", "zh"]
    assert front["size_categories"] == ["n<1K"]
    assert datasets.get_dataset_config_names(str(export)) == codes
    command = [polysift.binary(), "card", export.parent, "--json"]
    facts = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    for language in facts["languages"]:
        code = language["code"]
        loaded = datasets.load_dataset(str(export), code, split="train", cache_dir=str(tmp_path / "cache"))
        files = list((export / code).glob("*.parquet"))
        ids = [value for file in files for value in pq.read_table(file, columns=["id"])["id"].to_pylist()]
        assert sorted(loaded["id"]) == sorted(ids)
        assert language["documents"] == len(ids)
        (config,) = (config for config in facts["configs"] if config["name"] == code)
        assert config["disk_bytes"] == sum(file.stat().st_size for file in files)
        selection = json.loads((export.parent / "selection" / f"{code}.json").read_text())
        kept = [outcome["kept"]["num_documents"] for outcome in selection["thresholds"][0]["outcomes"]]
        assert kept == [row["kept"] for row in facts["thresholds"] if row["language"] == code]
        assert kept[-1] == len(ids)


def test_files_at_the_top_are_one_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    source = f'files = ["{CORPUS}/fra_Latn/*.parquet"]\nlanguage = "fra_Latn"'
    export = exported(tmp_path, source)
    (config,) = front_matter(export)["configs"]
    loaded = datasets.load_dataset(
        str(export), config["config_name"], split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded.num_rows == sum(pq.read_metadata(file).num_rows for file in export.glob("*.parquet"))
