-- A database as the reference leaves it at schema version 1, with something of everything: leases at
-- various epochs, runtime events of two workspaces in today's and in older spellings, notes that are
-- nobody's, outbox messages pending and delivered, projections, and the inbox with the reference's own
-- results. In version 1 an actor writes to the stream of its own name.
--
-- `broker demo` migrates it. By hand:  sqlite3 old.db < version_1.sql
--                                      broker upgrade --url sqlite:///old.db

BEGIN;

CREATE TABLE metadata (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE actor_leases (
  actor_id TEXT PRIMARY KEY,
  holder_id TEXT NOT NULL,
  epoch INTEGER NOT NULL CHECK (epoch > 0),
  nonce TEXT NOT NULL,
  acquired_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE streams (
  stream_id TEXT PRIMARY KEY,
  revision INTEGER NOT NULL CHECK (revision >= 0),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE inbox (
  message_id TEXT PRIMARY KEY,
  request_hash TEXT NOT NULL,
  stream_id TEXT NOT NULL,
  applied_revision INTEGER NOT NULL,
  result_json TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
  event_id TEXT PRIMARY KEY,
  message_id TEXT NOT NULL,
  stream_id TEXT NOT NULL,
  revision INTEGER NOT NULL CHECK (revision > 0),
  event_type TEXT NOT NULL,
  payload_json TEXT NOT NULL,
  producer_epoch INTEGER NOT NULL CHECK (producer_epoch > 0),
  occurred_at INTEGER NOT NULL,
  correlation_id TEXT,
  causation_id TEXT,
  trace_id TEXT,
  FOREIGN KEY (message_id) REFERENCES inbox(message_id) DEFERRABLE INITIALLY DEFERRED,
  FOREIGN KEY (stream_id) REFERENCES streams(stream_id),
  UNIQUE (stream_id, revision)
) STRICT;

CREATE TABLE outbox (
  outbox_id TEXT PRIMARY KEY,
  message_id TEXT NOT NULL,
  event_id TEXT,
  destination TEXT NOT NULL,
  payload_json TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  available_at INTEGER NOT NULL,
  delivered_at INTEGER,
  attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  FOREIGN KEY (message_id) REFERENCES inbox(message_id) DEFERRABLE INITIALLY DEFERRED,
  FOREIGN KEY (event_id) REFERENCES events(event_id)
) STRICT;

CREATE INDEX outbox_pending_idx ON outbox(delivered_at, available_at, created_at);

CREATE TABLE projections (
  projection_id TEXT PRIMARY KEY,
  stream_id TEXT NOT NULL,
  revision INTEGER NOT NULL CHECK (revision >= 0),
  value_json TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  FOREIGN KEY (stream_id) REFERENCES streams(stream_id)
) STRICT;

INSERT INTO metadata VALUES
  ('schema_version', '1'),
  ('logical_time_floor', '1730201428120');

INSERT INTO actor_leases VALUES
  ('root-atlas', 'window-1', 12, '08057c14568d38c44551f5fcb4a23220', 1730201420973, 1730201424973, 1730201454973),
  ('teammate-reviewer', 'window-2', 3, '4aa46978e65649554d9851e883f15a56', 1730201422541, 1730201426541, 1730201456541),
  ('schedule-nightly', 'window-3', 7, '6310d734c5c152b6397c68c96350d48f', 1730201419416, 1730201423416, 1730201453416),
  ('root-borealis', 'window-1', 5, '3bf51a1833d049f3a185729f1a54861d', 1730201417870, 1730201421870, 1730201451870),
  ('teammate-writer', 'window-2', 1, '3f6678ede294c910c2d6c2f1e83d5bc7', 1730201414811, 1730201418811, 1730201448811),
  ('process-indexer', 'window-3', 2, '27c6d8fd1d7cd2dcc4f38f8ad3cf9bc4', 1730201416335, 1730201420335, 1730201450335),
  ('notes', 'window-1', 4, '4358b5009c67d0e31d7fbf1663fcd3bf', 1730201411796, 1730201415796, 1730201445796),
  ('teammate-on-leave', 'window-2', 2, '1d3da9f47b7c5f7a43fc820a35137b97', 1730201401000, 1730201405000, 1730201435000);

INSERT INTO streams VALUES
  ('root-atlas', 8, 1730201400000, 1730201424973),
  ('teammate-reviewer', 4, 1730201407015, 1730201426541),
  ('schedule-nightly', 5, 1730201405590, 1730201423416),
  ('root-borealis', 7, 1730201402773, 1730201421870),
  ('teammate-writer', 3, 1730201408451, 1730201418811),
  ('process-indexer', 3, 1730201411356, 1730201420335),
  ('notes', 5, 1730201401381, 1730201415796);

INSERT INTO inbox VALUES
  ('root-atlas/commit-1', 'b98419adf5c06c0d15a731b55f3f006ab01772f1b56c0756a265d3a9b7391953', 'root-atlas', 2, '{"messageId":"root-atlas/commit-1","streamId":"root-atlas","previousRevision":0,"revision":2,"eventIds":["root-atlas/event-1","root-atlas/event-2"],"eventCursors":[1,2],"outboxIds":["root-atlas/commit-1/message-1"],"appliedAt":1730201400000,"recovered":false}', 1730201400000),
  ('notes/commit-1', 'be63e1d1dca9078beab93a055b23ef7d1077f62cf862858c792c944610d8dd83', 'notes', 3, '{"messageId":"notes/commit-1","streamId":"notes","previousRevision":0,"revision":3,"eventIds":["notes/event-1","notes/event-2","notes/event-3"],"eventCursors":[3,4,5],"outboxIds":[],"appliedAt":1730201401381,"recovered":false}', 1730201401381),
  ('root-borealis/commit-1', '234cf29e21faefa0247f4932aac74f847cf1755ab4cceb2684ffba3876a0572f', 'root-borealis', 2, '{"messageId":"root-borealis/commit-1","streamId":"root-borealis","previousRevision":0,"revision":2,"eventIds":["root-borealis/event-1","root-borealis/event-2"],"eventCursors":[6,7],"outboxIds":["root-borealis/commit-1/message-1"],"appliedAt":1730201402773,"recovered":false}', 1730201402773),
  ('root-atlas/commit-2', 'ee17a6b7507c5cc4aa1288fe1ea1a608fa0a14514df7e81b7b2b28c9db8ed527', 'root-atlas', 4, '{"messageId":"root-atlas/commit-2","streamId":"root-atlas","previousRevision":2,"revision":4,"eventIds":["root-atlas/event-3","root-atlas/event-4"],"eventCursors":[8,9],"outboxIds":[],"appliedAt":1730201404176,"recovered":false}', 1730201404176),
  ('schedule-nightly/commit-1', '3bcfc803fda0d19acaa1de8ae0d6be6f873c4fe4813d8d13da0694c3bfe7fac4', 'schedule-nightly', 1, '{"messageId":"schedule-nightly/commit-1","streamId":"schedule-nightly","previousRevision":0,"revision":1,"eventIds":["schedule-nightly/event-1"],"eventCursors":[10],"outboxIds":[],"appliedAt":1730201405590,"recovered":false}', 1730201405590),
  ('teammate-reviewer/commit-1', 'd1fdda9c4921416697bdfaecd40bf7cca46c88ba8be0d4c30ab816a4d08d9532', 'teammate-reviewer', 2, '{"messageId":"teammate-reviewer/commit-1","streamId":"teammate-reviewer","previousRevision":0,"revision":2,"eventIds":["teammate-reviewer/event-1","teammate-reviewer/event-2"],"eventCursors":[11,12],"outboxIds":["teammate-reviewer/commit-1/message-1","teammate-reviewer/commit-1/message-2"],"appliedAt":1730201407015,"recovered":false,"reply":{"accepted":true}}', 1730201407015),
  ('teammate-writer/commit-1', '58531e2667713af2468e14859f7959a1284ddae5fd0e5c1b7ae118e79212adaf', 'teammate-writer', 1, '{"messageId":"teammate-writer/commit-1","streamId":"teammate-writer","previousRevision":0,"revision":1,"eventIds":["teammate-writer/event-1"],"eventCursors":[13],"outboxIds":[],"appliedAt":1730201408451,"recovered":false}', 1730201408451),
  ('schedule-nightly/commit-2', '9ca5a6ed08259f35f1b74e6053064fd73230f650f70e70d9fdae10e4c726e6ef', 'schedule-nightly', 3, '{"messageId":"schedule-nightly/commit-2","streamId":"schedule-nightly","previousRevision":1,"revision":3,"eventIds":["schedule-nightly/event-2","schedule-nightly/event-3"],"eventCursors":[14,15],"outboxIds":["schedule-nightly/commit-2/message-1"],"appliedAt":1730201409898,"recovered":false}', 1730201409898),
  ('process-indexer/commit-1', '48b680ff95cd30d0f0a12ded6853a47871517fbe298b8da7565d26e9ca313924', 'process-indexer', 1, '{"messageId":"process-indexer/commit-1","streamId":"process-indexer","previousRevision":0,"revision":1,"eventIds":["process-indexer/event-1"],"eventCursors":[16],"outboxIds":["process-indexer/commit-1/message-1"],"appliedAt":1730201411356,"recovered":false}', 1730201411356),
  ('root-borealis/commit-2', '031a2c992136e25e0dd014f2ec0a6c19abb7783cca0f8301b4c6cd2b65eb8aa6', 'root-borealis', 5, '{"messageId":"root-borealis/commit-2","streamId":"root-borealis","previousRevision":2,"revision":5,"eventIds":["root-borealis/event-3","root-borealis/event-4","root-borealis/event-5"],"eventCursors":[17,18,19],"outboxIds":["root-borealis/commit-2/message-1"],"appliedAt":1730201412825,"recovered":false,"reply":null}', 1730201412825),
  ('root-atlas/commit-3', 'ea073ef6d5a4814ba345701b598c0c25be8240649fad95fedc3c3a46ea32e100', 'root-atlas', 7, '{"messageId":"root-atlas/commit-3","streamId":"root-atlas","previousRevision":4,"revision":7,"eventIds":["root-atlas/event-5","root-atlas/event-6","root-atlas/event-7"],"eventCursors":[20,21,22],"outboxIds":["root-atlas/commit-3/message-1"],"appliedAt":1730201414305,"recovered":false}', 1730201414305),
  ('notes/commit-2', '2e26ffce50003396d4aa930149c334ba88ed47588e3e3297fd2b5a734138c1db', 'notes', 5, '{"messageId":"notes/commit-2","streamId":"notes","previousRevision":3,"revision":5,"eventIds":["notes/event-4","notes/event-5"],"eventCursors":[23,24],"outboxIds":[],"appliedAt":1730201415796,"recovered":false,"reply":{"saved":2}}', 1730201415796),
  ('teammate-reviewer/commit-2', 'd8fb43bf4793596fecc51d8dd63564e0ee1bec9f6eb8e6023500296526591974', 'teammate-reviewer', 4, '{"messageId":"teammate-reviewer/commit-2","streamId":"teammate-reviewer","previousRevision":2,"revision":4,"eventIds":["teammate-reviewer/event-3","teammate-reviewer/event-4"],"eventCursors":[25,26],"outboxIds":[],"appliedAt":1730201417298,"recovered":false}', 1730201417298),
  ('teammate-writer/commit-2', '0d4dacd059d2777f5700c6e9bad34c635c493c87ebe9eed98b0b7faa307e7b66', 'teammate-writer', 3, '{"messageId":"teammate-writer/commit-2","streamId":"teammate-writer","previousRevision":1,"revision":3,"eventIds":["teammate-writer/event-2","teammate-writer/event-3"],"eventCursors":[27,28],"outboxIds":["teammate-writer/commit-2/message-1"],"appliedAt":1730201418811,"recovered":false}', 1730201418811),
  ('process-indexer/commit-2', '493913946180195f2d091a0bb0752ea9cec769a60fc0210aac0d366d1552bf5f', 'process-indexer', 3, '{"messageId":"process-indexer/commit-2","streamId":"process-indexer","previousRevision":1,"revision":3,"eventIds":["process-indexer/event-2","process-indexer/event-3"],"eventCursors":[29,30],"outboxIds":["process-indexer/commit-2/message-1","process-indexer/commit-2/message-2"],"appliedAt":1730201420335,"recovered":false}', 1730201420335),
  ('root-borealis/commit-3', '913f38cab4ea41de53426cf6a415d35ad8b0829ddeb1935d545ed03f75d65a3a', 'root-borealis', 7, '{"messageId":"root-borealis/commit-3","streamId":"root-borealis","previousRevision":5,"revision":7,"eventIds":["root-borealis/event-6","root-borealis/event-7"],"eventCursors":[31,32],"outboxIds":["root-borealis/commit-3/message-1"],"appliedAt":1730201421870,"recovered":false}', 1730201421870),
  ('schedule-nightly/commit-3', '771b82a5bcca15d130b63cfc72890bcf9383b2402d9f4fe66f47b0cec5e71205', 'schedule-nightly', 5, '{"messageId":"schedule-nightly/commit-3","streamId":"schedule-nightly","previousRevision":3,"revision":5,"eventIds":["schedule-nightly/event-4","schedule-nightly/event-5"],"eventCursors":[33,34],"outboxIds":["schedule-nightly/commit-3/message-1"],"appliedAt":1730201423416,"recovered":false,"reply":{"rerun":false}}', 1730201423416),
  ('root-atlas/commit-4', 'e47c8a4807b6532f5d83647094d9fcebc5febacd1e2f03ab36e8b5b5f02e9657', 'root-atlas', 8, '{"messageId":"root-atlas/commit-4","streamId":"root-atlas","previousRevision":7,"revision":8,"eventIds":["root-atlas/event-8"],"eventCursors":[35],"outboxIds":["root-atlas/commit-4/message-1","root-atlas/commit-4/message-2"],"appliedAt":1730201424973,"recovered":false}', 1730201424973),
  ('teammate-reviewer/commit-3', 'ba0a9cf4fcc843f07579c904ddce891553e5cc8ce56c0896746f8c1f34798c3f', 'teammate-reviewer', 4, '{"messageId":"teammate-reviewer/commit-3","streamId":"teammate-reviewer","previousRevision":4,"revision":4,"eventIds":[],"eventCursors":[],"outboxIds":[],"appliedAt":1730201426541,"recovered":false}', 1730201426541);

INSERT INTO events VALUES
  ('root-atlas/event-1', 'root-atlas/commit-1', 'root-atlas', 1, 'tool_start', '{"version":"2","streamId":"root-atlas","sequence":1,"actor":{"version":"2","workspaceId":"atlas","actorKind":"root","actorId":"root-atlas","generation":9},"occurredAt":1730201400000,"kind":"tool_start","toolCallId":"call-1","toolName":"search"}', 9, 1730201400000, 'turn-1', NULL, NULL),
  ('root-atlas/event-2', 'root-atlas/commit-1', 'root-atlas', 2, 'tool_end', '{"version":"2","streamId":"root-atlas","sequence":2,"actor":{"version":"2","workspaceId":"atlas","actorKind":"root","actorId":"root-atlas","generation":9},"occurredAt":1730201400000,"kind":"tool_end","toolCallId":"call-1","toolName":"search","outcome":"succeeded"}', 9, 1730201400000, 'turn-1', NULL, NULL),
  ('notes/event-1', 'notes/commit-1', 'notes', 1, 'note', '{"text":"plain notes are nobody''s events"}', 3, 1730201401381, NULL, NULL, NULL),
  ('notes/event-2', 'notes/commit-1', 'notes', 2, 'note', '"a string"', 3, 1730201401381, NULL, NULL, NULL),
  ('notes/event-3', 'notes/commit-1', 'notes', 3, 'note', '[1,2.5,null]', 3, 1730201401381, NULL, NULL, NULL),
  ('root-borealis/event-1', 'root-borealis/commit-1', 'root-borealis', 1, 'tool.started', '{"version":2,"revision":1,"streamId":"root-borealis","sequence":1,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"root","actorId":"root-borealis","generation":4},"producerEpoch":4,"occurredAt":1730201402773,"kind":"tool.started","toolCallId":"call-7","toolName":"fetch"}', 4, 1730201402773, 'turn-1', NULL, NULL),
  ('root-borealis/event-2', 'root-borealis/commit-1', 'root-borealis', 2, 'domain.event', '{"version":2,"revision":1,"streamId":"root-borealis","sequence":2,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"root","actorId":"root-borealis","generation":4},"producerEpoch":4,"occurredAt":1730201402773,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/root-borealis/2","payload":{"state":"running","step":1}}', 4, 1730201402773, NULL, NULL, NULL),
  ('root-atlas/event-3', 'root-atlas/commit-2', 'root-atlas', 3, 'domain.event', '{"version":2,"revision":1,"streamId":"root-atlas","sequence":3,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"root","actorId":"root-atlas","generation":10},"producerEpoch":10,"occurredAt":1730201404176,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/root-atlas/3","payload":{"state":"running","step":1,"text":"naïve – 日本語 – 🚀"}}', 10, 1730201404176, NULL, NULL, NULL),
  ('root-atlas/event-4', 'root-atlas/commit-2', 'root-atlas', 4, 'domain.event', '{"version":2,"revision":1,"streamId":"root-atlas","sequence":4,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"root","actorId":"root-atlas","generation":10},"producerEpoch":10,"occurredAt":1730201404176,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/root-atlas/4","payload":{"state":"running","step":2,"tokens":9007199254740991}}', 10, 1730201404176, NULL, NULL, NULL),
  ('schedule-nightly/event-1', 'schedule-nightly/commit-1', 'schedule-nightly', 1, 'domain.event', '{"version":2,"revision":1,"streamId":"schedule-nightly","sequence":1,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"schedule","actorId":"schedule-nightly","generation":6},"producerEpoch":6,"occurredAt":1730201405590,"kind":"domain.event","eventType":"schedule.created","eventId":"schedule/1","payload":{"cron":"0 3 * * *"}}', 6, 1730201405590, NULL, NULL, NULL),
  ('teammate-reviewer/event-1', 'teammate-reviewer/commit-1', 'teammate-reviewer', 1, 'tool.started', '{"version":2,"revision":1,"streamId":"teammate-reviewer","sequence":1,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"teammate","actorId":"teammate-reviewer","generation":2},"producerEpoch":2,"occurredAt":1730201407015,"kind":"tool.started","toolCallId":"call-20","toolName":"read_file"}', 2, 1730201407015, 'turn-1', NULL, NULL),
  ('teammate-reviewer/event-2', 'teammate-reviewer/commit-1', 'teammate-reviewer', 2, 'tool.finished', '{"version":2,"revision":1,"streamId":"teammate-reviewer","sequence":2,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"teammate","actorId":"teammate-reviewer","generation":2},"producerEpoch":2,"occurredAt":1730201407015,"kind":"tool.finished","toolCallId":"call-20","toolName":"read_file","outcome":"failed"}', 2, 1730201407015, 'turn-1', NULL, NULL),
  ('teammate-writer/event-1', 'teammate-writer/commit-1', 'teammate-writer', 1, 'domain.event', '{"version":2,"revision":1,"streamId":"teammate-writer","sequence":1,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"teammate","actorId":"teammate-writer","generation":1},"producerEpoch":1,"occurredAt":1730201408451,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/teammate-writer/1","payload":{"state":"running","step":1}}', 1, 1730201408451, NULL, NULL, NULL),
  ('schedule-nightly/event-2', 'schedule-nightly/commit-2', 'schedule-nightly', 2, 'domain.event', '{"version":2,"revision":1,"streamId":"schedule-nightly","sequence":2,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"schedule","actorId":"schedule-nightly","generation":7},"producerEpoch":7,"occurredAt":1730201409898,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/schedule-nightly/2","payload":{"state":"running","step":1}}', 7, 1730201409898, NULL, NULL, NULL),
  ('schedule-nightly/event-3', 'schedule-nightly/commit-2', 'schedule-nightly', 3, 'domain.event', '{"version":2,"revision":1,"streamId":"schedule-nightly","sequence":3,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"schedule","actorId":"schedule-nightly","generation":7},"producerEpoch":7,"occurredAt":1730201409898,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/schedule-nightly/3","payload":{"state":"waiting","step":2}}', 7, 1730201409898, NULL, NULL, NULL),
  ('process-indexer/event-1', 'process-indexer/commit-1', 'process-indexer', 1, 'process_reclaimed', '{"version":"2","streamId":"process-indexer","sequence":1,"actor":{"version":"2","workspaceId":"borealis","actorKind":"process","actorId":"process-indexer","generation":2},"occurredAt":1730201411356,"kind":"process_reclaimed","processId":"pid-4242","exitCode":null,"signal":"SIGKILL"}', 2, 1730201411356, NULL, NULL, NULL),
  ('root-borealis/event-3', 'root-borealis/commit-2', 'root-borealis', 3, 'tool.finished', '{"version":2,"revision":1,"streamId":"root-borealis","sequence":3,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"root","actorId":"root-borealis","generation":4},"producerEpoch":4,"occurredAt":1730201412825,"kind":"tool.finished","toolCallId":"call-7","toolName":"fetch","outcome":"succeeded"}', 4, 1730201412825, 'turn-2', NULL, NULL),
  ('root-borealis/event-4', 'root-borealis/commit-2', 'root-borealis', 4, 'result.published', '{"version":2,"revision":1,"streamId":"root-borealis","sequence":4,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"root","actorId":"root-borealis","generation":4},"producerEpoch":4,"occurredAt":1730201412825,"kind":"result.published","publicationId":"pub-1","hasStructuredOutput":true}', 4, 1730201412825, 'turn-2', NULL, NULL),
  ('root-borealis/event-5', 'root-borealis/commit-2', 'root-borealis', 5, 'domain.event', '{"version":2,"revision":1,"streamId":"root-borealis","sequence":5,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"root","actorId":"root-borealis","generation":4},"producerEpoch":4,"occurredAt":1730201412825,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/root-borealis/5","payload":{"state":"published","step":2}}', 4, 1730201412825, NULL, NULL, NULL),
  ('root-atlas/event-5', 'root-atlas/commit-3', 'root-atlas', 5, 'tool.started', '{"version":2,"revision":1,"streamId":"root-atlas","sequence":5,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"root","actorId":"root-atlas","generation":12},"producerEpoch":12,"occurredAt":1730201414305,"kind":"tool.started","toolCallId":"call-2","toolName":"edit"}', 12, 1730201414305, 'turn-3', NULL, NULL),
  ('root-atlas/event-6', 'root-atlas/commit-3', 'root-atlas', 6, 'tool.finished', '{"version":2,"revision":1,"streamId":"root-atlas","sequence":6,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"root","actorId":"root-atlas","generation":12},"producerEpoch":12,"occurredAt":1730201414305,"kind":"tool.finished","toolCallId":"call-2","toolName":"edit","outcome":"succeeded"}', 12, 1730201414305, 'turn-3', NULL, NULL),
  ('root-atlas/event-7', 'root-atlas/commit-3', 'root-atlas', 7, 'domain.event', '{"version":2,"revision":1,"streamId":"root-atlas","sequence":7,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"root","actorId":"root-atlas","generation":12},"producerEpoch":12,"occurredAt":1730201414305,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/root-atlas/7","payload":{"state":"running","step":3}}', 12, 1730201414305, NULL, NULL, NULL),
  ('notes/event-4', 'notes/commit-2', 'notes', 4, 'note', '{"kind":"domain.event","text":"no runtime event: it has no actor"}', 4, 1730201415796, NULL, NULL, NULL),
  ('notes/event-5', 'notes/commit-2', 'notes', 5, 'note', '{"text":"the end","number":1e+21}', 4, 1730201415796, NULL, NULL, NULL),
  ('teammate-reviewer/event-3', 'teammate-reviewer/commit-2', 'teammate-reviewer', 3, 'domain.event', '{"version":2,"revision":1,"streamId":"teammate-reviewer","sequence":3,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"teammate","actorId":"teammate-reviewer","generation":3},"producerEpoch":3,"occurredAt":1730201417298,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/teammate-reviewer/3","payload":{"state":"running","step":1}}', 3, 1730201417298, NULL, NULL, NULL),
  ('teammate-reviewer/event-4', 'teammate-reviewer/commit-2', 'teammate-reviewer', 4, 'domain.event', '{"version":2,"revision":1,"streamId":"teammate-reviewer","sequence":4,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"teammate","actorId":"teammate-reviewer","generation":3},"producerEpoch":3,"occurredAt":1730201417298,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/teammate-reviewer/4","payload":{"state":"reviewed","step":2,"findings":["naming","an off-by-one"]}}', 3, 1730201417298, NULL, NULL, NULL),
  ('teammate-writer/event-2', 'teammate-writer/commit-2', 'teammate-writer', 2, 'result_published', '{"version":"2","streamId":"teammate-writer","sequence":2,"actor":{"version":"2","workspaceId":"borealis","actorKind":"teammate","actorId":"teammate-writer","generation":1},"occurredAt":1730201418811,"kind":"result_published","publicationId":"pub-2","hasStructuredOutput":false}', 1, 1730201418811, 'turn-2', NULL, NULL),
  ('teammate-writer/event-3', 'teammate-writer/commit-2', 'teammate-writer', 3, 'domain.event', '{"version":2,"revision":1,"streamId":"teammate-writer","sequence":3,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"teammate","actorId":"teammate-writer","generation":1},"producerEpoch":1,"occurredAt":1730201418811,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/teammate-writer/3","payload":{"state":"published","step":2}}', 1, 1730201418811, NULL, NULL, NULL),
  ('process-indexer/event-2', 'process-indexer/commit-2', 'process-indexer', 2, 'process.reclaimed', '{"version":2,"revision":1,"streamId":"process-indexer","sequence":2,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"process","actorId":"process-indexer","generation":2},"producerEpoch":2,"occurredAt":1730201420335,"kind":"process.reclaimed","processId":"pid-4243","exitCode":0,"signal":null}', 2, 1730201420335, NULL, NULL, NULL),
  ('process-indexer/event-3', 'process-indexer/commit-2', 'process-indexer', 3, 'domain.event', '{"version":2,"revision":1,"streamId":"process-indexer","sequence":3,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"process","actorId":"process-indexer","generation":2},"producerEpoch":2,"occurredAt":1730201420335,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/process-indexer/3","payload":{"state":"indexed","step":1,"files":1204}}', 2, 1730201420335, NULL, NULL, NULL),
  ('root-borealis/event-6', 'root-borealis/commit-3', 'root-borealis', 6, 'run.settled', '{"version":2,"revision":1,"streamId":"root-borealis","sequence":6,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"root","actorId":"root-borealis","generation":5},"producerEpoch":5,"occurredAt":1730201421870,"kind":"run.settled","outcome":"completed"}', 5, 1730201421870, 'turn-3', NULL, NULL),
  ('root-borealis/event-7', 'root-borealis/commit-3', 'root-borealis', 7, 'domain.event', '{"version":2,"revision":1,"streamId":"root-borealis","sequence":7,"actor":{"version":2,"revision":1,"workspaceId":"borealis","actorKind":"root","actorId":"root-borealis","generation":5},"producerEpoch":5,"occurredAt":1730201421870,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/root-borealis/7","payload":{"state":"settled","step":3}}', 5, 1730201421870, NULL, NULL, NULL),
  ('schedule-nightly/event-4', 'schedule-nightly/commit-3', 'schedule-nightly', 4, 'run_settled', '{"version":"2","streamId":"schedule-nightly","sequence":4,"actor":{"version":"2","workspaceId":"atlas","actorKind":"schedule","actorId":"schedule-nightly","generation":7},"occurredAt":1730201423416,"kind":"run_settled","outcome":"failed","error":"the checkout was not clean"}', 7, 1730201423416, 'turn-3', NULL, NULL),
  ('schedule-nightly/event-5', 'schedule-nightly/commit-3', 'schedule-nightly', 5, 'domain.event', '{"version":2,"revision":1,"streamId":"schedule-nightly","sequence":5,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"schedule","actorId":"schedule-nightly","generation":7},"producerEpoch":7,"occurredAt":1730201423416,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/schedule-nightly/5","payload":{"state":"settled","step":3}}', 7, 1730201423416, NULL, NULL, NULL),
  ('root-atlas/event-8', 'root-atlas/commit-4', 'root-atlas', 8, 'domain.event', '{"version":2,"revision":1,"streamId":"root-atlas","sequence":8,"actor":{"version":2,"revision":1,"workspaceId":"atlas","actorKind":"root","actorId":"root-atlas","generation":12},"producerEpoch":12,"occurredAt":1730201424973,"kind":"domain.event","eventType":"teammate.runtime-read-model.frame.v2","eventId":"frame/root-atlas/8","payload":{"state":"waiting","step":4}}', 12, 1730201424973, NULL, NULL, NULL);

INSERT INTO outbox VALUES
  ('root-atlas/commit-1/message-1', 'root-atlas/commit-1', 'root-atlas/event-2', 'timeline', '{"text":"search finished","ok":true}', 1730201400000, 1730201400000, 1730201400800, 2),
  ('root-borealis/commit-1/message-1', 'root-borealis/commit-1', 'root-borealis/event-2', 'timeline', '{"text":"fetch began"}', 1730201402773, 1730201402773, 1730201403610, 1),
  ('teammate-reviewer/commit-1/message-1', 'teammate-reviewer/commit-1', 'teammate-reviewer/event-2', 'timeline', '{"text":"read_file failed"}', 1730201407015, 1730201407015, 1730201407889, 1),
  ('teammate-reviewer/commit-1/message-2', 'teammate-reviewer/commit-1', 'teammate-reviewer/event-2', 'notifications', '{"to":"lead","text":"a tool failed"}', 1730201407015, 1730201407015, 1730201407926, 1),
  ('schedule-nightly/commit-2/message-1', 'schedule-nightly/commit-2', NULL, 'timeline', '{"text":"nightly run began"}', 1730201409898, 1730201409898, NULL, 0),
  ('process-indexer/commit-1/message-1', 'process-indexer/commit-1', 'process-indexer/event-1', 'audit', '{"process":"pid-4242","signal":"SIGKILL"}', 1730201411356, 1730201411356, 1730201412341, 1),
  ('root-borealis/commit-2/message-1', 'root-borealis/commit-2', 'root-borealis/event-5', 'notifications', '{"to":"owner","text":"a result was published"}', 1730201412825, 1730201412825, 1730201413847, 1),
  ('root-atlas/commit-3/message-1', 'root-atlas/commit-3', 'root-atlas/event-7', 'timeline', '{"text":"edit finished"}', 1730201414305, 1730201414305, 1730201415364, 1),
  ('teammate-writer/commit-2/message-1', 'teammate-writer/commit-2', 'teammate-writer/event-3', 'notifications', '{"to":"owner","text":"a draft is ready"}', 1730201418811, 1730201418811, 1730201419907, 4),
  ('process-indexer/commit-2/message-1', 'process-indexer/commit-2', 'process-indexer/event-3', 'audit', '{"process":"pid-4243","exit":0}', 1730201420335, 1730201420335, NULL, 0),
  ('process-indexer/commit-2/message-2', 'process-indexer/commit-2', 'process-indexer/event-3', 'timeline', '{"text":"index is up to date"}', 1730201420335, 1730201480335, NULL, 0),
  ('root-borealis/commit-3/message-1', 'root-borealis/commit-3', 'root-borealis/event-7', 'timeline', '{"text":"run settled"}', 1730201421870, 1730201421870, NULL, 0),
  ('schedule-nightly/commit-3/message-1', 'schedule-nightly/commit-3', 'schedule-nightly/event-5', 'notifications', '{"to":"lead","text":"the nightly run failed"}', 1730201423416, 1730201423416, NULL, 0),
  ('root-atlas/commit-4/message-1', 'root-atlas/commit-4', 'root-atlas/event-8', 'timeline', '{"text":"waiting for review"}', 1730201424973, 1730201424973, NULL, 0),
  ('root-atlas/commit-4/message-2', 'root-atlas/commit-4', 'root-atlas/event-8', 'notifications', '{"to":"reviewer","text":"please review"}', 1730201424973, 1730201424973, NULL, 0);

INSERT INTO projections VALUES
  ('reviews/latest', 'teammate-reviewer', 4, '{"findings":2}', 1730201417298),
  ('runs/root-atlas', 'root-atlas', 8, '{"state":"waiting","step":4}', 1730201424973),
  ('runs/root-borealis', 'root-borealis', 7, '{"state":"settled","step":3}', 1730201421870),
  ('runs/schedule-nightly', 'schedule-nightly', 5, '{"state":"settled","step":3}', 1730201423416);

PRAGMA user_version = 1;
COMMIT;
