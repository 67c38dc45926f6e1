/** Session states in the order in which a session passes them; the last three are final. */
export const SESSION_STATUSES = [
  "PENDING",
  "SCHEDULED",
  "PREPARING",
  "PULLING",
  "CREATING",
  "RUNNING",
  "DEGRADED",
  "PAUSED",
  "TERMINATING",
  "TERMINATED",
  "CANCELLED",
  "ERROR",
] as const;
export type SessionStatus = (typeof SESSION_STATUSES)[number];

export const FINAL_STATUSES = [
  "TERMINATED",
  "CANCELLED",
  "ERROR",
] as const satisfies readonly SessionStatus[];
export type FinalStatus = (typeof FINAL_STATUSES)[number];

export function isFinal(status: SessionStatus): status is FinalStatus {
  return (FINAL_STATUSES as readonly SessionStatus[]).includes(status);
}

export const SESSION_TYPES = ["interactive", "batch", "inference", "system"] as const;
export type SessionType = (typeof SESSION_TYPES)[number];

/** Result of a batch session: SUCCESS means that its command ended with exit code 0. */
export const SESSION_RESULTS = ["UNDEFINED", "SUCCESS", "FAILURE"] as const;
export type SessionResult = (typeof SESSION_RESULTS)[number];

export const AGENT_STATUSES = ["JOINED", "ALIVE", "LOST", "REMOVED"] as const;
export type AgentStatus = (typeof AGENT_STATUSES)[number];

export const SCHEDULERS = ["fifo", "lifo"] as const;
export type Scheduler = (typeof SCHEDULERS)[number];

export const PLACEMENTS = ["dispersed", "concentrated", "round-robin"] as const;
export type Placement = (typeof PLACEMENTS)[number];

export const SEVERITIES = ["info", "warning", "error"] as const;
export type Severity = (typeof SEVERITIES)[number];
