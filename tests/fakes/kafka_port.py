"""The port to Kafka, on a `World`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fakes.gate import Gate
from fakes.world import World
from fencepost_operator.api import KafkaConnection, ObjectKey
from fencepost_operator.errors import Unreachable
from fencepost_operator.observation import NO_RECORD, TopicSettings, UnreadRecords, Watermarks


@dataclass(slots=True)
class FakeOffsets:
    world: World
    gate: Gate

    async def ends(self, connection: KafkaConnection, *, age: float = 0.0) -> Watermarks | None:
        del age
        return await self.gate.read("source", lambda: None if self.world.driver_only else self._ends(connection))

    def _ends(self, connection: KafkaConnection) -> Watermarks:
        if self.world.kafka_down:
            raise Unreachable("no broker answers", remedy="check Kafka")
        topics = {key.rpartition("/")[0] for key in self.world.ends}
        missing = tuple(topic for topic in connection.topics if topic not in topics)
        asked = {key: end for key, end in self.world.ends.items() if key.rpartition("/")[0] in connection.topics}
        offline = self.world.leaderless & asked.keys()
        ends = {key: end for key, end in asked.items() if key not in offline}
        starts = {key: self.world.starts.get(key, 0) for key in ends}
        present = [topic for topic in connection.topics if topic in topics]
        ids = {topic: self.world.topic_ids.get(topic, f"id-{topic}") for topic in present}
        marks = {key: end + self.world.held.get(key, 0) for key, end in ends.items()}
        return Watermarks(
            ends=ends,
            starts=starts,
            high_watermarks=marks,
            missing_topics=missing,
            offline=tuple(sorted(offline)),
            topic_ids=ids,
        )

    async def at(self, connection: KafkaConnection, timestamp: datetime) -> Mapping[str, int]:
        return await self.gate.read("at", lambda: self._at(connection, timestamp))

    def _at(self, connection: KafkaConnection, timestamp: datetime) -> Mapping[str, int]:
        keys = self._ends(connection).ends
        return {
            key: next((end for end, at in self.world.growth.get(key, ()) if at >= timestamp), NO_RECORD) for key in keys
        }

    async def unread(
        self, reader: ObjectKey, connection: KafkaConnection, source: Watermarks, positions: Mapping[str, int]
    ) -> UnreadRecords:
        del reader, source
        return await self.gate.read("unread", lambda: self._unread(connection, positions))

    def _unread(self, connection: KafkaConnection, positions: Mapping[str, int]) -> UnreadRecords:
        if self.world.kafka_down:
            raise Unreachable("no broker answers", remedy="check Kafka")
        retention = dict.fromkeys(connection.topics, self.world.retention)
        return UnreadRecords(
            retention=retention, oldest={key: self.world.arrived(key, at) for key, at in positions.items()}
        )

    async def settings(self, connection: KafkaConnection) -> Mapping[str, TopicSettings]:
        return await self.gate.read("topic_settings", lambda: self._settings(connection))

    def _settings(self, connection: KafkaConnection) -> Mapping[str, TopicSettings]:
        if self.world.kafka_down:
            raise Unreachable("no broker answers", remedy="check Kafka")
        return dict.fromkeys(connection.topics, self.world.topic_settings)
