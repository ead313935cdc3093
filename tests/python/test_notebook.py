"""The notebook of the guide runs, and is stored with what its cells show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

for module in ("ipykernel", "matplotlib", "pandas"):
    pytest.importorskip(module)
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def shown(notebook: Any) -> list[list[list[str]]]:  # noqa: ANN401 (nbformat is not typed)
    """Return the kinds of data that each cell shows."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells]
    return [[sorted(output.get("data", {"text": ""})) for output in of_cell] for of_cell in outputs]


def test_the_notebook_runs_from_the_folder_to_the_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TMPDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        (tmp_path / variable).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / variable))
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    notebook = nbformat.read(NOTEBOOK, 4)
    stored = shown(notebook)
    resources = {"metadata": {"path": str(tmp_path / "docs")}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    assert shown(notebook) == stored
    plot, _, table = notebook.cells[-3:]
    assert "image/png" in plot.outputs[0].data
    assert {"kept", "removed"} < set(table.outputs[0].data["text/plain"].split())
    assert not list((tmp_path / "docs").iterdir())


def test_what_is_stored_is_small_and_names_no_folder_of_a_machine() -> None:
    text = NOTEBOOK.read_text()
    assert len(text) < 150_000
    assert not [folder for folder in ("/tmp/", "/home/", "/root/", "/work/") if folder in text]  # noqa: S108
