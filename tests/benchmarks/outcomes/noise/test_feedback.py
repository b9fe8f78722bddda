from pathlib import Path

from benchmarks.outcomes.noise.feedback import FEEDBACK, TOOLS, write_feedback
from benchmarks.outcomes.noise.intents import TRAIN
from benchmarks.outcomes.noise.play import draw_log
from extensions.recommender.training.feedback_file import read_feedback, read_tools
from tests.benchmarks.outcomes.noise.stages import make_stage


def test_the_log_is_read_back_as_the_released_format(tmp_path: Path) -> None:
    stage = make_stage()
    log = draw_log(stage, stage.list_tasks(TRAIN), 1)
    write_feedback(stage, log, tmp_path)
    read = read_feedback(tmp_path / FEEDBACK)
    tools = stage.pools[0].tools
    assert not read.left_out
    assert [(row.tool_id, row.success) for row in read.rows] == [
        (tools[one.place].tool_id, one.success) for one in log
    ]
    assert read.rows[0].candidates == (tools[0].tool_id, tools[1].tool_id)
    listed = [tool.tool_id for tool in read_tools(tmp_path / TOOLS)]
    assert listed == [tools[0].tool_id, tools[1].tool_id]
