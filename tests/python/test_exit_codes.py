"""Exit codes, output and arguments, with scripts in the program's place."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import polysift

if TYPE_CHECKING:
    from collections.abc import Callable

    StandIn = Callable[[str], Path]


@pytest.mark.parametrize("code", [69, 71, 74, 75, 130, 143])
def test_codes_that_may_pass_are_transient(stand_in: StandIn, code: int) -> None:
    with pytest.raises(polysift.TransientError) as raised:
        polysift.run_task("run", "embed", 0, 2, binary=stand_in(f"exit {code}"))
    assert raised.value.code == code


@pytest.mark.parametrize("code", [1, 2, 3, 65, 66, 70, 78, 101, 127])
def test_all_other_codes_are_permanent(stand_in: StandIn, code: int) -> None:
    with pytest.raises(polysift.PermanentError) as raised:
        polysift.run_task("run", "embed", 0, 2, binary=stand_in(f"exit {code}"))
    assert raised.value.code == code


@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM"])
def test_a_death_by_signal_is_transient(stand_in: StandIn, name: str) -> None:
    # TERM is blocked in the program while it is passed on, so the script takes KILL for it.
    script = f"kill -{name} $$; kill -KILL $$"
    with pytest.raises(polysift.TransientError) as raised:
        polysift.run_task("run", "embed", binary=stand_in(script))
    assert raised.value.code < 0


def test_the_error_tells_command_meaning_and_last_lines(stand_in: StandIn) -> None:
    program = stand_in("for i in $(seq 100); do echo line $i >&2; done; echo error: no GPU >&2; exit 69")
    with pytest.raises(polysift.TransientError) as raised:
        polysift.run_task("a run", "embed", 3, 4, binary=program)
    lines = raised.value.stderr.splitlines()
    assert lines[-2:] == ["line 100", "error: no GPU"]
    assert len(lines) == 20
    assert raised.value.command[:4] == (str(program), "embed", "--run", "a run")
    assert "'a run' --task 3 --num-tasks 4" in str(raised.value)
    assert "GPU is not available" in str(raised.value)


def test_errors_survive_pickling() -> None:
    error = polysift.PermanentError(65, ["polysift", "embed"], "error: row 3")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), again.code, again.command, again.stderr) == (
        polysift.PermanentError,
        65,
        ("polysift", "embed"),
        "error: row 3",
    )


def test_a_program_that_cannot_be_started_is_a_permanent_error(tmp_path: Path) -> None:
    with pytest.raises(polysift.PermanentError, match="No such file") as raised:
        polysift.run_task("run", "embed", binary=tmp_path / "nowhere")
    assert raised.value.code == 127


def test_the_report_holds_the_counts_of_the_stage(stand_in: StandIn) -> None:
    def line(stage: str, done: int, *, ended: str) -> str:
        told = f'"progress":"{stage}","unit":"documents","done":{done},"tokens":{done * 9},"secs":1.5'
        return f"echo '{{{told},\"ended\":{ended}}}' >&2"

    program = stand_in("\n".join([line("embed", 5, ended="false"), line("embed", 7, ended="true")]))
    report = polysift.run_task("run", "embed", 0, 1, binary=program, log_file=io.StringIO())
    assert report == polysift.TaskReport("embed", "documents", 7, 63, 1.5)


def test_a_line_of_progress_cut_short_does_no_harm(stand_in: StandIn) -> None:
    program = stand_in("""printf '{"progress":"emb' >&2; exit 75""")
    with pytest.raises(polysift.TransientError) as raised:
        polysift.run_task("run", "embed", binary=program)
    assert raised.value.stderr == '{"progress":"emb'


def test_lines_are_appended_to_the_log_file(stand_in: StandIn, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "a.log"
    for number in (1, 2):
        program = stand_in(f"echo out {number}; echo err {number} >&2")
        polysift.run_task("run", "embed", binary=program, log_file=log)
    assert log.read_text().splitlines() == ["out 1", "err 1", "out 2", "err 2"]


def test_a_log_that_cannot_be_written_does_not_stop_the_work(stand_in: StandIn) -> None:
    class Full:
        def write(self, text: str, /) -> object:
            raise OSError(28, "No space left on device", text)

    program = stand_in("for i in $(seq 20000); do echo a line that fills a pipe in time; done")
    polysift.run_task("run", "embed", binary=program, log_file=Full())


def test_settings_become_toml(stand_in: StandIn) -> None:
    log = io.StringIO()
    settings = {
        "seed": 7,
        "encoder.model": "a/b",
        "heads": {"quality": {"rates": [0.1, 0.33], "path": 'with "quotes"'}},
        "parts": {"cdc": True},
    }
    program = stand_in('for a in "$@"; do echo "$a"; done')
    polysift.run_task("run", "embed", settings=settings, args=["--quiet"], binary=program, log_file=log)
    assert log.getvalue().splitlines()[3:] == [
        "--set=seed=7",
        '--set=encoder.model="a/b"',
        "--set=heads.quality.rates=[0.1, 0.33]",
        '--set=heads.quality.path="with \\"quotes\\""',
        "--set=parts.cdc=true",
        "--log-format",
        "json",
        "--quiet",
    ]


def told(settings: dict[str, Any], stand_in: StandIn) -> list[str]:
    """Return what the program is told of settings."""
    log = io.StringIO()
    program = stand_in("printf '%s\\n' \"$@\"")  # echo would read escapes
    polysift.run_task("run", "embed", settings=settings, binary=program, log_file=log)
    return [line for line in log.getvalue().splitlines() if line.startswith("--set")]


def test_an_empty_table_is_a_setting(stand_in: StandIn) -> None:
    settings = {
        "pii": {},
        "languages": {"spa_Latn": {"retention": {}}},
        "parts": MappingProxyType({"rows": 9}),
    }
    expected = ["--set=pii={}", "--set=languages.spa_Latn.retention={}", "--set=parts.rows=9"]
    assert told(settings, stand_in) == expected


def test_tables_in_lists_are_toml(stand_in: StandIn) -> None:
    sources = [
        {"robots": 'a\x7f\t"\\é', "odd key\x7f": (True, 7, 0.5, 1e16), "": {}},
        {"more": {"names": [[], [float("inf"), -math.inf, math.nan]]}},
    ]
    (line,) = told({"filters": {"consent": {"sources": sources}}}, stand_in)
    name, _, value = line.removeprefix("--set=").partition("=")
    assert name == "filters.consent.sources"
    assert value == (
        r'[{robots = "a\u007f\t\"\\é", "odd key\u007f" = [true, 7, 0.5, 1e+16], "" = {}}, '
        "{more = {names = [[], [inf, -inf, nan]]}}]"
    )
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 (it is not in 3.10)

        read = tomllib.loads(f"value = {value}")["value"]
        assert repr(read) == repr(sources).replace("(", "[").replace(")", "]")


def test_what_is_no_setting_is_an_error(stand_in: StandIn) -> None:
    with pytest.raises(TypeError, match=r"pii\.mode: a setting cannot be None; leave it out"):
        told({"pii": {"mode": None}}, stand_in)
    with pytest.raises(TypeError, match=r"input\.files: a setting cannot be of the type set"):
        told({"input": {"files": [{"a"}]}}, stand_in)


def test_the_program_takes_empty_tables_and_tables_in_lists(tmp_path: Path) -> None:
    documents = [
        {"id": "1", "text": "Write to ann@the-shop.com", "url": "https://closed.com/a"},
        {"id": "2", "text": "Write to bob@the-shop.com", "url": "https://open.com/b"},
    ]
    texts, robots = tmp_path / "texts.jsonl", tmp_path / "robots.jsonl"
    texts.write_text("".join(json.dumps(document) + "\n" for document in documents))
    robots.write_text(json.dumps({"domain": "closed.com", "content": "User-agent: *\nDisallow: /"}) + "\n")
    consent = {"kind": "robots", "as_of": "2025-01", "sources": [{"robots": str(robots)}]}
    settings = {
        "input": {"files": [str(texts)], "language": "eng_Latn"},
        "encoder.model": "none",
        "filters": {"consent": consent},
        "pii": {},
    }
    polysift.run_task(tmp_path / "run", "run", settings=settings, log_file=tmp_path / "log")
    (part,) = (tmp_path / "run/export").rglob("*.parquet")
    (row,) = pq.read_table(part).to_pylist()
    assert row["id"] == "2"
    assert row["text"].startswith("Write to ")
    assert "bob@the-shop.com" not in row["text"]


def test_the_share_comes_from_the_call_and_not_from_the_scheduler(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = ("SLURM_ARRAY_TASK_ID", "POLYSIFT_TASK", "JOB_COMPLETION_INDEX", "POLYSIFT_REQUEUE")
    for name in scheduler:
        monkeypatch.setenv(name, "5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    log = io.StringIO()
    polysift.run_task("run", "embed", env={"MORE": "1"}, binary=stand_in("env"), log_file=log)
    seen = dict(line.split("=", 1) for line in log.getvalue().splitlines() if "=" in line)
    assert seen["CUDA_VISIBLE_DEVICES"] == "2"
    assert seen["MORE"] == "1"
    assert not set(scheduler) & set(seen)


def test_a_share_needs_both_numbers(stand_in: StandIn) -> None:
    with pytest.raises(ValueError, match="together"):
        polysift.run_task("run", "embed", 1, binary=stand_in("exit 0"))


def test_unfinished_tasks_are_read_from_the_array_expression(stand_in: StandIn) -> None:
    def unfinished(script: str) -> list[int]:
        return polysift.unfinished_tasks("run", "embed", 20, binary=stand_in(script))

    assert unfinished("echo 3,7-9,12") == [3, 7, 8, 9, 12]
    assert unfinished("exit 0") == []
    with pytest.raises(polysift.PermanentError, match="no run here"):
        unfinished("echo no run here >&2; exit 66")


def test_the_program_of_the_wheel_comes_before_the_path(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        metadata.distribution("polysift")
    except metadata.PackageNotFoundError:
        pytest.skip("polysift is not installed from a wheel")
    monkeypatch.setenv("PATH", os.fspath(stand_in("exit 0").parent))
    assert polysift.binary() == Path(sysconfig.get_path("scripts"), "polysift").resolve()


def test_without_a_wheel_the_program_is_found_on_the_path(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polysift._binary._of_the_wheel", lambda: None)
    program = stand_in("exit 0")
    monkeypatch.setenv("PATH", os.fspath(program.parent))
    assert polysift.binary() == program
    program.unlink()
    with pytest.raises(FileNotFoundError, match="install the wheel"):
        polysift.binary()
