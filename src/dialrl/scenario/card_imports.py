"""Cards from elsewhere: EMPA-style markdown (a heading or a "key: value" line a field, English or Chinese) and flat
JSON objects (one key a field, as in a simple JSONL).

Only the shape is read; what a field must hold is ``support_card``'s, and its errors name what is missing. Pure.
"""

import re
from collections.abc import Mapping
from typing import Any

_PERSON = ("name", "age", "gender", "occupation", "background", "outward", "inward")
_MEMORIES = ("childhood", "teen", "youth", "current")
_STAGES = ("recall", "reflection", "self_examination", "outburst")

# Field: how cards name it. The first is the flat key.
_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "card id", "编号"),
    "language": ("language", "语言"),
    "split": ("split",),
    "theme": ("theme", "主题"),
    "crisis": ("crisis", "危机"),
    "name": ("name", "姓名"),
    "age": ("age", "年龄"),
    "gender": ("gender", "性别"),
    "occupation": ("occupation", "职业"),
    "background": ("background", "背景"),
    "outward": ("outward", "social personality", "社交性格", "社会人格"),
    "inward": ("inward", "inner personality", "内在性格", "内在人格"),
    "threshold": ("threshold", "empathy threshold", "共情阈值"),
    "topic": ("topic", "wants to talk about", "想聊的话题", "倾诉内容"),
    "hopes": ("hopes", "hoped reply", "期待的回应", "期望回复"),
    "priorities": ("priorities", "need priority", "需求优先级"),
    "deficit": ("deficit", "initial deficit", "初始缺失"),
    "thread": ("thread", "hidden thread", "隐线", "暗线"),
    "childhood": ("childhood", "童年"),
    "teen": ("teen", "teenage years", "少年"),
    "youth": ("youth", "青年"),
    "current": ("current", "present", "现状", "当前"),
    "trigger": ("trigger", "trigger scene", "触发场景"),
    "recall": ("recall", "stage 1", "回忆"),
    "reflection": ("reflection", "stage 2", "反思"),
    "self_examination": ("self_examination", "self-examination", "stage 3", "自省", "自我审视"),
    "outburst": ("outburst", "stage 4", "爆发"),
    "outcome": ("outcome", "结局"),
    "interlude": ("interlude", "插曲"),
    "opening": ("opening", "opening line", "开场白"),
    "strategy": ("strategy", "conversation strategy", "对话策略"),
}
_FIELD_OF = {name: field for field, names in _NAMES.items() for name in names}
_HEADING = re.compile(r"^\s*(?:#{1,6}\s+(.*?)|\*\*(.+?)\*\*)\s*[:：]?\s*$")
_PAIR = re.compile(r"^\s*(?:[-*]\s+)?(?:\*\*)?([^:：*]{1,40}?)(?:\*\*)?\s*[:：]\s*(?:\*\*)?\s*(.+?)\s*$")
_NUMBERING = re.compile(r"^(?:\d+[.、)]?\s*|[一二三四五六七八九十]+、\s*)")
_LEVEL = re.compile(r"([A-Z](?:\.\d+)?)\s*[:：=]\s*(\d+)")
_VALUES = {
    "gender": {"female": "woman", "f": "woman", "女": "woman", "male": "man", "m": "man", "男": "man"},
    "threshold": {"高": "high", "中": "mid", "medium": "mid", "低": "low"},
}


def card_values(text: str, name: str) -> dict[str, Any]:
    """The values of a markdown card, for ``read_card``. ``name``: its id unless it says one.

    A heading starts a field; the lines under it are its text. A line ``Age: 41`` is a field wherever it stands, except
    under a heading that is a field. Headings that name no field (groups such as "Memories") are passed over.
    """
    found: dict[str, str] = {"id": name}
    field: str | None = None
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            field = _field(heading.group(1) or heading.group(2))
            continue
        pair = _PAIR.match(line)
        own = _field(pair.group(1)) if pair else None
        if field is None and pair is not None and own is not None:
            found[own] = pair.group(2)
        elif field is not None and line.strip():
            said = line.strip().lstrip("-*").strip()
            found[field] = f"{found[field]} {said}" if field in found and field != "id" else said
    return nested(found)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A flat object as a card's values: ``name``, ``age`` ... under person, periods and stages under theirs.

    Levels may be written as ``C: 3, A: 2``. Keys that are no field stay, for the error that names them.
    """
    values = {key: _value(key, value) for key, value in flat.items()}
    card: dict[str, Any] = {key: value for key, value in values.items() if key not in _GROUPED}
    for group, names in (("person", _PERSON), ("memories", _MEMORIES), ("stages", _STAGES)):
        card.setdefault(group, {name: values[name] for name in names if name in values})
    return card


_GROUPED = frozenset((*_PERSON, *_MEMORIES, *_STAGES))


def is_flat(values: Any) -> bool:
    """Whether an object holds the fields of a card on one level."""
    return isinstance(values, Mapping) and "person" not in values and "name" in values


def _field(name: str) -> str | None:
    return _FIELD_OF.get(_NUMBERING.sub("", name.strip()).strip(" :：").casefold())


def _value(field: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if field in ("priorities", "deficit"):
        return {key: int(level) for key, level in _LEVEL.findall(value)}
    return _VALUES.get(field, {}).get(value.strip().casefold(), value)
