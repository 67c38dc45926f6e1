import type { Generated } from "kysely";
import type { Role } from "../../contract/permissions.ts";
import type {
  AgentStatus,
  Placement,
  Scheduler,
  SessionResult,
  SessionStatus,
  SessionType,
} from "../../contract/states.ts";
import type { WallMs } from "../../kit/clock.ts";
import type {
  AgentId,
  GroupId,
  ImageId,
  JoinTokenId,
  KernelId,
  PolicyId,
  SessionId,
  TokenId,
  UserId,
} from "../../kit/ids.ts";

/** SQLite has no booleans. */
export type Flag = 0 | 1;
/** A column that holds JSON; repositories read it back through a zod schema. */
export type JsonText = string;

export type MetaTable = { key: string; value: string };

export type UserTable = {
  id: UserId;
  email: string;
  name: string;
  role: Role;
  active: Flag;
  password_hash: string;
  uid: number;
  gid: number;
  policy_id: PolicyId;
  created_at: WallMs;
  last_login_at: WallMs | null;
};

/** API tokens and browser logins alike: what a request may present instead of a password. */
export type TokenTable = {
  id: TokenId;
  user_id: UserId;
  kind: "api" | "login";
  name: string;
  /** SHA-256 of the secret, hex. */
  hash: string;
  created_at: WallMs;
  expires_at: WallMs | null;
  last_used_at: WallMs | null;
};

export type LoginFailureTable = {
  email: string;
  address: string;
  failures: number;
  last_at: WallMs;
  locked_until: WallMs | null;
};

export type PolicyTable = {
  id: PolicyId;
  name: string;
  is_default: Flag;
  limits: JsonText;
  created_at: WallMs;
};

export type GroupTable = {
  id: GroupId;
  name: string;
  description: string;
  active: Flag;
  public: Flag;
  is_default: Flag;
  scheduler: Scheduler;
  placement: Placement;
  allowed_types: JsonText;
  pending_timeout_ms: number | null;
  deadlines: JsonText;
  round_robin_cursor: string | null;
  created_at: WallMs;
  /** Kept for the sessions that were in it. */
  removed_at: WallMs | null;
};

export type AgentTable = {
  id: AgentId;
  name: string;
  group_id: GroupId;
  status: AgentStatus;
  schedulable: Flag;
  lease: string;
  previous_lease: string | null;
  lease_acknowledged: Flag;
  cert_serial: string;
  cert_expires_at: WallMs;
  version: string;
  boot_id: string;
  /** NodeInfo as the agent told it last. */
  node: JsonText;
  cap_cpu: number;
  cap_mem: number;
  reserved_cpu: number;
  reserved_mem: number;
  /** Whether an administrator set the reserve; then the agent's own wish is ignored. */
  reserved_by_admin: Flag;
  health: JsonText;
  joined_at: WallMs;
  last_seen_at: WallMs | null;
  removed_at: WallMs | null;
};

export type JoinTokenTable = {
  id: JoinTokenId;
  hash: string;
  group_id: GroupId;
  created_by: string;
  created_at: WallMs;
  expires_at: WallMs;
  uses_left: number;
};

export type ImageTable = {
  id: ImageId;
  reference: string;
  title: string;
  description: string;
  kind: "host" | "oci";
  catalogue: Flag;
  size_bytes: number | null;
  arch: string | null;
  digest: string | null;
  labels: JsonText;
  created_at: WallMs;
  removed_at: WallMs | null;
};

/** Which node has which image, as its agent reported. */
export type ImageNodeTable = {
  image_id: ImageId;
  agent_id: AgentId;
  digest: string | null;
  size_bytes: number;
};

/** What a session is meant to become; the reconciler works towards it. */
export type DesiredState = "run" | "stop" | "force";

export type SessionTable = {
  id: SessionId;
  /** Order of queueing. */
  seq: Generated<number>;
  name: string;
  type: SessionType;
  status: SessionStatus;
  status_reason: string | null;
  status_message: string | null;
  /** When the present status began; deadlines count from here. */
  status_since: WallMs;
  desired: DesiredState;
  stop_reason: string | null;
  stop_actor: string | null;
  owner_id: UserId;
  group_id: GroupId;
  image_id: ImageId;
  image_reference: string;
  image_kind: "host" | "oci";
  agent_id: AgentId | null;
  priority: number;
  cpu: number;
  mem: number;
  shm: number;
  slots: JsonText;
  environment: JsonText;
  command: JsonText | null;
  use_entrypoint: Flag;
  tags: JsonText;
  preopen_ports: JsonText;
  service_ports: JsonText;
  notices: JsonText;
  /** Deadlines frozen from the group at queueing. */
  deadlines: JsonText;
  pending_timeout_ms: number | null;
  timeout_ms: number | null;
  starts_at: WallMs | null;
  exit_code: number | null;
  result: SessionResult;
  created_at: WallMs;
  started_at: WallMs | null;
  ended_at: WallMs | null;
};

export type KernelTable = {
  id: KernelId;
  session_id: SessionId;
  role: string;
  idx: number;
  generation: number;
  status: SessionStatus;
  agent_id: AgentId | null;
  cpu: number;
  mem: number;
  shm: number;
  slots: JsonText;
  container_id: string | null;
  epoch: number;
  exit_code: number | null;
  oom_killed: Flag;
  timed_out: Flag;
  failure_code: string | null;
  failure_message: string | null;
  end_reason: string | null;
  /** Whether its container was seen gone (or never was): only then its slots are free. */
  gone: Flag;
  /** Whether the whole log is on the manager's disk. */
  log_stored: Flag;
  log_bytes: number;
  started_at: WallMs | null;
  ended_at: WallMs | null;
};

export type HistoryTable = {
  seq: Generated<number>;
  session_id: SessionId;
  at: WallMs;
  from_status: SessionStatus | null;
  to_status: SessionStatus;
  reason: string;
  message: string | null;
  actor: string;
};

export type EventTable = {
  seq: Generated<number>;
  at: WallMs;
  kind: string;
  subject: string;
  /** Whose it is; null means administrators only… unless `everyone` is set. */
  owner_id: UserId | null;
  everyone: Flag;
  data: JsonText;
};

export type IdempotencyTable = {
  user_id: string;
  key: string;
  route: string;
  request_hash: string;
  /** Null while the first request is under way. */
  status: number | null;
  response: JsonText | null;
  created_at: WallMs;
};

export type Database = {
  meta: MetaTable;
  users: UserTable;
  tokens: TokenTable;
  login_failures: LoginFailureTable;
  policies: PolicyTable;
  resource_groups: GroupTable;
  agents: AgentTable;
  join_tokens: JoinTokenTable;
  images: ImageTable;
  image_nodes: ImageNodeTable;
  sessions: SessionTable;
  kernels: KernelTable;
  session_history: HistoryTable;
  events: EventTable;
  idempotency_keys: IdempotencyTable;
};
