"""Service levels on real servers: what a person sees of them."""

from __future__ import annotations

from tests.vigil.test_modes import running_node, see, wait_episodes

OPTIONS = "service_level=ServiceLevel(end_s=60, success=0.6, window=20)"


def test_a_level_is_declared_kept_broken_and_seen(connected, write_app, tmp_path):
    write_app()
    app = tmp_path / "watch.py"
    text = app.read_text().replace("from vigil import", "from vigil import ServiceLevel,")
    text = text.replace('subject_key="host")', f'subject_key="host", {OPTIONS})')
    fails = """return 1 / 0 if state["host"] == "a" else ConvergeResult("""
    app.write_text(text.replace("return ConvergeResult(", fails))

    with running_node(connected):
        for host in ("a", "b"):
            see(connected, host)
        wait_episodes(connected, done=1, failed=1)
        shown = connected.run("actors", "show", "watcher").stdout
        episodes = [
            connected.ask("episodes", "show", each["episode_id"])
            for each in connected.ask("episodes", "list")
        ]
        (level,) = connected.ask("sql", "select * from service_levels")

    assert "service_level.end_s=60" in shown
    assert {(each["status"], each["level_outcome"]) for each in episodes} == {
        ("done", "met"),
        ("failed", "failed"),
    }
    assert episodes[0]["service_level"]["end_s"] == 60
    assert (level["episodes"], level["met"], level["failed"]) == (2, 1, 1)
    assert (level["ratio"], level["is_kept"]) == (0.5, False)
