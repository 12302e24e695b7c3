"""Looking at a method before a job is made of it."""

import pytest

from overnight_producer import describing


@pytest.mark.parametrize(("seconds", "said"), [(0.0, ""), (60.0, "still importing slow:f")])
def test_an_import_that_takes_long_is_told_and_ended_at_last(tmp_path, monkeypatch, capsys, seconds, said):
    (tmp_path / "slow.py").write_text(f"import time\ntime.sleep({seconds})\n\ndef f(points): return points\n")
    monkeypatch.setattr(describing, "TIMEOUT_SECONDS", 20.0 if not seconds else 2.0)
    monkeypatch.setattr(describing, "PATIENCE_SECONDS", 20.0 if not seconds else 0.5)
    facts = describing.describe("slow:f", tmp_path)
    assert facts["ok"] is not bool(seconds)
    assert capsys.readouterr().err.startswith(said)
    if seconds:
        assert facts["error"] == "importing it took over 2 s"
