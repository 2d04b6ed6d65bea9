"""Recorded sessions of other agents, read into one neutral value; only `read` touches the disk. Reading order:

recording  the neutral value and its one-line summary
lines  from untrusted bytes to JSON values, and the count of what was skipped
draft  turns while they are being read
claude_text  what a Claude Code user line really says
claude_code  Claude Code session files and those of their subagents
pi  pi session files
codex  Codex rollout files
dsh  DeepSeek-harness session logs
read  from a path to a Recording
"""

from callboard.runtime.recordings.read import read_recording
from callboard.runtime.recordings.recording import (
    RecordedAgent,
    RecordedCall,
    RecordedReply,
    RecordedTurn,
    Recording,
    RecordingError,
    summary,
)

__all__ = [
    "RecordedAgent",
    "RecordedCall",
    "RecordedReply",
    "RecordedTurn",
    "Recording",
    "RecordingError",
    "read_recording",
    "summary",
]
