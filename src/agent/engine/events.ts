import { BerthError } from "../../kit/errors.ts";
import { CALL_MS, type EngineClient, engineError, field } from "./client.ts";
import type { EngineEvent, Ownership } from "./engine.ts";
import { isOwn, refOfLabels } from "./names.ts";
import { jsonLines } from "./output.ts";

const CONTAINER_ACTIONS = ["start", "die", "oom", "destroy"] as const;
const IMAGE_ACTIONS = ["pull", "tag", "untag", "delete", "import", "load"];

/** What an event of the engine means to this agent; undefined when nothing. */
export function readEvent(owner: Ownership, value: unknown): EngineEvent | undefined {
  const type = field(value, "Type");
  if (type === "image") return { kind: "image" };
  const action = CONTAINER_ACTIONS.find((known) => known === field(value, "Action"));
  const actor = field(value, "Actor");
  const containerId = field(actor, "ID");
  if (type !== "container" || action === undefined || typeof containerId !== "string") return undefined;
  const labels = textsOf(field(actor, "Attributes"));
  const kernel = refOfLabels(labels);
  if (kernel === undefined || !isOwn(owner, labels)) return undefined;
  return { kind: "container", action, kernel, containerId };
}

function textsOf(value: unknown): Record<string, string> {
  if (typeof value !== "object" || value === null) return {};
  const pairs = Object.entries(value).flatMap(([k, v]) => (typeof v === "string" ? [[k, v] as const] : []));
  return Object.fromEntries(pairs);
}

/** Events from now on until `signal` aborts. Throws `engine-unreachable` when the engine goes away. */
export async function* engineEvents(
  client: EngineClient,
  owner: Ownership,
  signal: AbortSignal,
): AsyncGenerator<EngineEvent> {
  const filters = { type: ["container", "image"], event: [...CONTAINER_ACTIONS, ...IMAGE_ACTIONS] };
  const stream = await client.call(
    "events",
    (docker) => docker.getEvents({ filters: JSON.stringify(filters), abortSignal: signal }),
    CALL_MS,
  );
  try {
    for await (const value of jsonLines(stream)) {
      if (signal.aborted) return;
      const event = readEvent(owner, value);
      if (event !== undefined) yield event;
    }
  } catch (error) {
    if (signal.aborted) return;
    throw engineError(error, "events");
  }
  if (signal.aborted) return;
  throw new BerthError("engine-unreachable", "The container engine stopped sending events.");
}
