import type { Migration } from "../migrate.ts";

/** Every list has an index in its order, and what lives has partial indexes that stay small as history grows. */
export const first: Migration = {
  version: 1,
  name: "first",
  sql: `
create table meta (
  key text primary key,
  value text not null
) strict, without rowid;

create table policies (
  id text primary key,
  name text not null unique,
  is_default integer not null,
  limits text not null check (json_valid(limits)),
  created_at integer not null
) strict;
create unique index policies_one_default on policies (is_default) where is_default = 1;

create table users (
  id text primary key,
  email text not null unique,
  name text not null,
  role text not null,
  active integer not null,
  password_hash text not null,
  uid integer not null,
  gid integer not null,
  policy_id text not null references policies (id),
  created_at integer not null,
  last_login_at integer
) strict;
create index users_by_creation on users (created_at, id);
create index users_active_by_role on users (role) where active = 1;

create table tokens (
  id text primary key,
  user_id text not null references users (id) on delete cascade,
  kind text not null,
  name text not null,
  hash text not null unique,
  created_at integer not null,
  expires_at integer,
  last_used_at integer
) strict;
create index tokens_by_user on tokens (user_id, kind, created_at, id);
create index tokens_by_expiry on tokens (expires_at) where expires_at is not null;

create table login_failures (
  email text not null,
  address text not null,
  failures integer not null,
  last_at integer not null,
  locked_until integer,
  primary key (email, address)
) strict, without rowid;
create index login_failures_by_time on login_failures (last_at);

create table resource_groups (
  id text primary key,
  name text not null,
  description text not null,
  active integer not null,
  public integer not null,
  is_default integer not null,
  scheduler text not null,
  placement text not null,
  allowed_types text not null check (json_valid(allowed_types)),
  pending_timeout_ms integer,
  deadlines text not null check (json_valid(deadlines)),
  round_robin_cursor text,
  created_at integer not null,
  removed_at integer
) strict;
create unique index resource_groups_one_default on resource_groups (is_default) where is_default = 1;
create unique index resource_groups_live_name on resource_groups (name) where removed_at is null;
create index resource_groups_by_creation on resource_groups (created_at, id);

create table agents (
  id text primary key,
  name text not null,
  group_id text not null references resource_groups (id),
  status text not null,
  schedulable integer not null,
  lease text not null,
  previous_lease text,
  lease_acknowledged integer not null,
  cert_serial text not null,
  cert_expires_at integer not null,
  version text not null,
  boot_id text not null,
  node text not null check (json_valid(node)),
  cap_cpu integer not null,
  cap_mem integer not null,
  reserved_cpu integer not null,
  reserved_mem integer not null,
  reserved_by_admin integer not null,
  health text not null check (json_valid(health)),
  joined_at integer not null,
  last_seen_at integer,
  removed_at integer
) strict;
create unique index agents_live_name on agents (name) where removed_at is null;
create index agents_by_joining on agents (joined_at, id);
create index agents_by_group on agents (group_id) where removed_at is null;

create table join_tokens (
  id text primary key,
  hash text not null unique,
  group_id text not null references resource_groups (id),
  created_by text not null,
  created_at integer not null,
  expires_at integer not null,
  uses_left integer not null check (uses_left >= 0)
) strict;
create index join_tokens_by_creation on join_tokens (created_at, id);

create table images (
  id text primary key,
  reference text not null,
  title text not null,
  description text not null,
  kind text not null,
  catalogue integer not null,
  size_bytes integer,
  arch text,
  digest text,
  labels text not null check (json_valid(labels)),
  created_at integer not null,
  removed_at integer
) strict;
create unique index images_live_reference on images (reference) where removed_at is null;
create index images_by_creation on images (created_at, id);

create table image_nodes (
  image_id text not null references images (id) on delete cascade,
  agent_id text not null references agents (id) on delete cascade,
  digest text,
  size_bytes integer not null,
  primary key (image_id, agent_id)
) strict, without rowid;
create index image_nodes_by_agent on image_nodes (agent_id);

create table sessions (
  seq integer primary key autoincrement,
  id text not null unique,
  name text not null,
  type text not null,
  status text not null,
  status_reason text,
  status_message text,
  status_since integer not null,
  desired text not null,
  stop_reason text,
  stop_actor text,
  owner_id text not null references users (id),
  group_id text not null references resource_groups (id),
  image_id text not null references images (id),
  image_reference text not null,
  image_kind text not null,
  agent_id text references agents (id),
  priority integer not null,
  cpu integer not null,
  mem integer not null,
  shm integer not null,
  slots text not null check (json_valid(slots)),
  environment text not null check (json_valid(environment)),
  command text check (command is null or json_valid(command)),
  use_entrypoint integer not null,
  tags text not null check (json_valid(tags)),
  preopen_ports text not null check (json_valid(preopen_ports)),
  service_ports text not null check (json_valid(service_ports)),
  notices text not null check (json_valid(notices)),
  deadlines text not null check (json_valid(deadlines)),
  pending_timeout_ms integer,
  timeout_ms integer,
  starts_at integer,
  exit_code integer,
  result text not null,
  created_at integer not null,
  started_at integer,
  ended_at integer
) strict;
create unique index sessions_live_name on sessions (owner_id, name)
  where status not in ('TERMINATED', 'CANCELLED', 'ERROR');
create index sessions_live on sessions (seq) where status not in ('TERMINATED', 'CANCELLED', 'ERROR');
create index sessions_pending on sessions (group_id, priority desc, seq) where status = 'PENDING';
create index sessions_by_owner on sessions (owner_id, seq);
create index sessions_by_owner_and_name on sessions (owner_id, name, seq);
create index sessions_by_name on sessions (name, seq);
create index sessions_by_status on sessions (status, seq);
create index sessions_by_group on sessions (group_id, seq);
create index sessions_by_agent on sessions (agent_id, seq) where agent_id is not null;
create index sessions_by_image on sessions (image_id);
create index sessions_by_end on sessions (ended_at, seq) where ended_at is not null;

create table kernels (
  id text primary key,
  session_id text not null references sessions (id) on delete cascade,
  role text not null,
  idx integer not null,
  generation integer not null,
  status text not null,
  agent_id text references agents (id),
  cpu integer not null,
  mem integer not null,
  shm integer not null,
  slots text not null check (json_valid(slots)),
  container_id text,
  epoch integer not null,
  exit_code integer,
  oom_killed integer not null,
  timed_out integer not null,
  failure_code text,
  failure_message text,
  end_reason text,
  gone integer not null,
  log_stored integer not null,
  log_bytes integer not null,
  started_at integer,
  ended_at integer
) strict;
create index kernels_by_session on kernels (session_id, idx);
create index kernels_occupying on kernels (agent_id) where gone = 0;
create index kernels_stored_logs on kernels (ended_at) where log_stored = 1;

create table session_history (
  seq integer primary key autoincrement,
  session_id text not null references sessions (id) on delete cascade,
  at integer not null,
  from_status text,
  to_status text not null,
  reason text not null,
  message text,
  actor text not null
) strict;
create index session_history_by_session on session_history (session_id, seq);

create table events (
  seq integer primary key autoincrement,
  at integer not null,
  kind text not null,
  subject text not null,
  owner_id text,
  everyone integer not null,
  data text not null check (json_valid(data))
) strict;
create index events_by_owner on events (owner_id, seq);
create index events_by_subject on events (subject, seq);
create index events_by_time on events (at);

create table idempotency_keys (
  user_id text not null,
  key text not null,
  route text not null,
  request_hash text not null,
  status integer,
  response text check (response is null or json_valid(response)),
  created_at integer not null,
  primary key (user_id, route, key)
) strict, without rowid;
create index idempotency_keys_by_time on idempotency_keys (created_at);
`,
};
